package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/activities/deployer"
	"slipway.dev/slipway/activities/store"
)

// superviseName is the command that a worker starts for each run of a
// deployer.
const superviseName = "supervise"

func superviseCommand() *cobra.Command {
	return &cobra.Command{
		Use:    superviseName,
		Short:  "Run a deployer on behalf of a worker (started by it)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return deployer.Supervise(c.Context(), os.Stdin, os.Stdout, openJournal)
		},
	}
}

// openJournal opens the database for one supervisor: connections for the fence,
// the log and the exit, none of which may wait for another. The first is made at
// once, since the supervisor may be a spare with time for it.
func openJournal(ctx context.Context, url string) (deployer.Journal, func(), error) {
	s, err := store.Open(ctx, url, 3)
	if err != nil {
		return nil, nil, err
	}
	go s.Warm(ctx)
	return s, s.Close, nil
}
