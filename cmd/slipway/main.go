package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/cmd/slipway/deployments"
)

func main() {
	ctx, stop := context.Background(), func() {}
	if len(os.Args) < 2 || os.Args[1] != superviseName { // a supervisor has its own way with signals
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	}
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintln(os.Stderr, "slipway:", err)
	}
	os.Exit(deployments.ExitCode(err))
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "slipway",
		Short: "Launches, holds and hauls out deployments",
		Long: `slipway is a deployment control plane on Temporal.

Run it:
  slipway migrate          bring the database up to date
  slipway temporal-setup   register the search attributes
  slipway serve            API and worker in one process (or: api, worker)
  slipway config           what it would run with, and where each value is from

Use it:
  slipway deployments submit example -f example.json --follow`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(
		serveCommand("serve", "Run the API and a worker in one process", parts{api: true, worker: true}),
		serveCommand("api", "Run the API alone", parts{api: true}),
		serveCommand("worker", "Run a worker alone", parts{worker: true}),
		migrateCommand(), temporalSetupCommand(), configCommand(), versionCommand(), superviseCommand(),
		deployments.Command(os.Getenv),
	)
	return c
}
