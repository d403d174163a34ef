package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// A reader that goes away (`slipway-dev up | head`) must not end the program
	// before it has stopped what it started. Notify, not Ignore: children would
	// inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err := root(os.LookupEnv).ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "slipway-dev:", err)
		os.Exit(1)
	}
}

// lookup reads one variable of the environment.
type lookup func(name string) (string, bool)

func root(env lookup) *cobra.Command {
	command := &cobra.Command{
		Use:   "slipway-dev",
		Short: "Run everything that slipway needs on one machine",
		Long: `slipway-dev runs everything that slipway needs on one machine, for development
and for tests. It listens on 127.0.0.1 only, and keeps its state in one folder,
.slipway by default.

Start with

  slipway-dev up      (or: make dev)

from the top of a clone. The other commands run, or make, single parts of that.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.AddCommand(upCommand(env), downCommand(), temporalCommand(env), postgresCommand(env), kubeCommand(env), baoCommand(env), panelCommand(env), issuerCommand(), tokenCommand())
	return command
}

// stopSignals are those that ask a program to stop: Ctrl-C, kill, and a
// terminal that was closed.
func stopSignals() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
}

// untilStopped is a context that the first stop signal ends. The second one
// ends the program, as it does by default.
func untilStopped(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := signal.NotifyContext(parent, stopSignals()...)
	context.AfterFunc(ctx, cancel)
	return ctx, cancel
}
