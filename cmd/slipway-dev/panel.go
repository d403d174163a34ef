package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/cmd/slipway-dev/panel"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

func newPanelPort(flags *pflag.FlagSet) *portFlag {
	return newPortFlag(flags, "example panel", "panel-port", "DEV_PANEL_PORT", 8084)
}

func panelCommand(env lookup) *cobra.Command {
	var options panel.Options
	var readyPath string
	command := &cobra.Command{
		Use:   "panel",
		Short: "Run the example panel in the foreground",
		Long: `Runs the example panel, a front-end of slipway, in the foreground. A person signs
in as one of two example users, without a password: it is for a machine on which
only its developer is. docs/front-ends.md explains how it is made.

slipway takes its tokens and its pages, for the default port, with

  SLIPWAY_TRUSTED_ISSUERS='[{"issuer":"http://127.0.0.1:8084","audience":"` + issuer.DefaultAudience + `"}]'
  SLIPWAY_CORS_ORIGINS=http://127.0.0.1:8084

In the data folder are its drafts and the key pair of its tokens. When it can be
used it prints one line that begins with "ready", and writes the same line to
--ready-file. That file is removed at the start.`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(&options.Folder, "data-dir", ".slipway/panel", "folder of the drafts and of the key pair")
	flags.StringVar(&options.API, "api-url", "http://127.0.0.1:8082", "the deployments API, as browsers reach it")
	flags.StringVar(&options.Audience, "audience", issuer.DefaultAudience, "claim aud of its tokens")
	port := newPanelPort(flags)
	flags.StringVar(&readyPath, "ready-file", "", "file to write when the panel can be used")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := resolveAndCheck(command.Flags(), env, port); err != nil {
			return err
		}
		ready := readyFile{readyPath}
		if err := ready.remove(); err != nil {
			return err
		}
		options.Origin = "http://" + ports.Address(port.value)
		options.Log = log.New(os.Stderr, "", log.LstdFlags)
		p, err := panel.New(options)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", ports.Address(port.value))
		if err != nil {
			return err
		}
		server := &http.Server{
			Handler: p.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
			WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		}
		ctx, cancel := untilStopped(command.Context())
		defer cancel()
		stopped := make(chan error, 1)
		go func() {
			<-ctx.Done()
			end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			stopped <- server.Shutdown(end)
		}()
		line := "ready: the example panel on " + options.Origin
		fmt.Fprintln(command.OutOrStdout(), line)
		if err := ready.write(line + "\n"); err != nil {
			return err
		}
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return <-stopped
	}
	return command
}
