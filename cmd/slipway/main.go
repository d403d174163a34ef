package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/coordination"
	"slipway.dev/slipway/cmd/slipway/deployments"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/cmd/slipway/leases"
	"slipway.dev/slipway/cmd/slipway/planned"
	"slipway.dev/slipway/cmd/slipway/source"
)

func main() {
	ctx, stop := context.Background(), func() {}
	if len(os.Args) < 2 || os.Args[1] != superviseName { // a supervisor has its own way with signals
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	}
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "slipway:", err)
	}
	os.Exit(exit.Code(err))
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
  slipway source check     whether a module source keeps the contract

Use it:
  slipway deployments submit example -f example.json --follow
  slipway lease run        run a migration under the leases of a failover group
  slipway lease revoke     end the lease of a deploy job on a failover group
  slipway planned request  ask for a planned operation of a failover group`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(
		serveCommand("serve", "Run the API and a worker in one process", parts{api: true, worker: true}),
		serveCommand("api", "Run the API alone", parts{api: true}),
		serveCommand("worker", "Run a worker alone", parts{worker: true}),
		migrateCommand(), temporalSetupCommand(), configCommand(), versionCommand(), superviseCommand(),
		source.Command(os.Environ, func() []string { return picked(os.Environ(), nixVariables...) }),
		deployments.Command(os.Getenv),
		leases.Command(os.Getenv, func() (leases.Revoker, func(), error) {
			t, err := commandClient()
			if err != nil {
				return nil, nil, err
			}
			return coordination.NewTemporal(t), t.Close, nil
		}),
		planned.Command(func() (planned.Requester, func(), error) {
			t, err := commandClient()
			if err != nil {
				return nil, nil, err
			}
			return coordination.NewPlanner(t), t.Close, nil
		}),
	)
	return exit.Strict(c)
}
