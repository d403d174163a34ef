package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/temporalserver"
)

func temporalCommand(env lookup) *cobra.Command {
	var (
		options   temporalserver.Options
		noUI      bool
		readyPath string
	)
	command := &cobra.Command{
		Use:   "temporal",
		Short: "Run the Temporal server and its Web UI in the foreground",
		Long: `Runs the Temporal server (all four services) and its Web UI in the foreground,
on an SQLite file. The file is made where it is absent, and so are the namespace
"default" and the search attributes of slipway.

When everything can be used it prints one line that begins with "ready", and
writes the same line to --ready-file. That file is removed at the start, so
waiting for it to appear is waiting for the server.

Ctrl-C or SIGTERM stops it within seconds. It may also be killed at any moment:
started again on the same file it goes on where it was.`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(&options.ConfigFile, "config", "temporal-dev.yaml", "configuration of the server")
	flags.StringVar(&options.Database, "db", ".slipway/temporal/temporal.db", "SQLite file")
	port := newPortFlag(flags, "Temporal frontend (gRPC)", "port", "DEV_TEMPORAL_PORT", 7233)
	uiPort := newPortFlag(flags, "Temporal Web UI", "ui-port", "DEV_UI_PORT", 8233)
	flags.BoolVar(&noUI, "no-ui", false, "run without the Web UI")
	flags.StringVar(&readyPath, "ready-file", "", "file to write when the server can be used")
	command.RunE = func(command *cobra.Command, _ []string) error {
		wanted := []*portFlag{port, uiPort}
		if noUI {
			wanted = wanted[:1]
		}
		if err := resolveAndCheck(command.Flags(), env, wanted...); err != nil {
			return err
		}
		line := "ready: Temporal on " + ports.Address(port.value)
		options.Port = port.value
		if !noUI {
			options.UIPort = uiPort.value
			line += ", Web UI on http://" + ports.Address(uiPort.value)
		}
		ready := readyFile{readyPath}
		if err := ready.remove(); err != nil {
			return err
		}
		ctx, cancel := untilStopped(command.Context())
		defer cancel()
		return temporalserver.Run(ctx, options, func() error {
			fmt.Fprintln(command.OutOrStdout(), line)
			return ready.write(line + "\n")
		})
	}
	return command
}
