package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/leaseclient"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/lease"
)

func statusCommand(getenv func(string) string) *cobra.Command {
	a := &access{getenv: getenv}
	timeout := 15 * time.Second
	c := &cobra.Command{
		Use:   "status --group <group>",
		Short: "Show a failover group and its leases as deploy jobs see them",
		Long: `Shows whether a failover group is stable and who holds leases on it, as the lease
API answers this caller. That the group looks well is no permission to go on after
a lease was lost. -o json prints the answer of the API.

` + exitCodesOfStatus,
		Example: `  slipway lease status --group orders`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.environment(); err != nil {
				return err
			}
			if !lease.ValidName(a.group) {
				return exit.Misuse("--group is needed: the name of a MysqlFailoverGroup, not %q", a.group)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			observed, err := client.Observe(ctx, a.group)
			if err != nil {
				return explain(err, timeout)
			}
			if a.output == "json" {
				encoder := json.NewEncoder(c.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(observed)
			}
			return show(c.OutOrStdout(), observed, time.Now())
		},
	}
	a.addFlags(c)
	c.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the answer")
	return c
}

// explain says what an error of the API means for the user.
func explain(err error, timeout time.Duration) error {
	var refused *leaseclient.Error
	var broken *leaseclient.ConnectionError
	code, text := exit.Failed, safe(err.Error())
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code, text = exit.Away, fmt.Sprintf("no answer within %s (--timeout): %s", timeout, text)
	case errors.As(err, &refused) && refused.Away() || errors.As(err, &broken):
		code = exit.Away
	case refused != nil:
		code = exit.Refused
	}
	return &exit.Error{Code: code, Text: text, Err: err}
}

// show prints an observation for a person.
func show(out io.Writer, o lease.Observation, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, safe(fmt.Sprintf(format, args...))) // Flush tells
	}
	line("group", "%s/%s", o.Namespace, o.Group)
	line("active site", "%s, generation %d", dash(o.ActiveSite), o.TopologyGeneration)
	if o.Stable {
		line("stable", "yes")
	} else {
		line("stable", "no: %s", o.UnstableReason)
	}
	replication := "running"
	if !o.Health.ReplicationRunning {
		replication = "not running"
	}
	line("replication", "%s, %g s behind", replication, o.Health.ReplicationLagSeconds)
	if f := o.Operations.PlannedFailover; f.Phase != "" {
		line("planned failover", "%s %s", f.Phase, f.Reason)
	}
	for _, operation := range []struct{ name, phase string }{
		{"ordered update", o.Operations.UpdatePhase},
		{"restore in place", o.Operations.RestoreInPlace},
		{"dragonfly upgrade", o.Operations.DragonflyUpgrade},
	} {
		if operation.phase != "" {
			line(operation.name, "%s", operation.phase)
		}
	}
	if len(o.Leases) == 0 {
		line("leases", "none")
	}
	if err := w.Flush(); err != nil || len(o.Leases) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(w, "\nLEASE\tOPERATION\tINSTANCE\tGENERATION\tEXPIRES")
	for _, v := range o.Leases {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s (in %s)\n", safe(string(v.Kind)), safe(v.OperationID), safe(v.Instance), v.TopologyGeneration,
			v.ExpiresAt.Local().Format(time.TimeOnly), v.ExpiresAt.Sub(now).Round(time.Second))
	}
	return w.Flush()
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
