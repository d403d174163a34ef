package planned

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// The exit codes; the help tells the user.
const (
	exitDeferred = 75 // EX_TEMPFAIL of sysexits.h
)

// Requester asks for planned operations; coordination.Planner is one.
type Requester interface {
	Request(ctx context.Context, namespace, group string, request wire.PlannedRequest) (wire.PlannedAnswer, error)
}

// Connect makes a Requester, and what closes it.
type Connect func() (requester Requester, closer func(), err error)

// Command is "slipway planned".
func Command(connect Connect) *cobra.Command {
	c := &cobra.Command{
		Use:   "planned",
		Short: "Ask for planned operations of a failover group",
	}
	c.AddCommand(requestCommand(connect))
	return c
}

func requestCommand(connect Connect) *cobra.Command {
	var namespace, group, output string
	var request wire.PlannedRequest
	timeout := 30 * time.Second
	c := &cobra.Command{
		Use:   "request --namespace <namespace> --group <group> --kind <kind> [--target <target>]",
		Short: "Ask for a planned operation, which waits for the failover holds of deploys",
		Long: `Asks for a planned operation of a failover group: PlannedFailover, OrderedUpdate
or RestoreInPlace. While deploys hold a failover hold it is deferred, no new lease
is granted, and the operation goes on by itself when the last hold has ended. The
same command again says how it is then. To give a deferred operation up, cancel its
workflow: temporal workflow cancel --workflow-id planned/<namespace>/<group>

The address and the credentials of Temporal come from its own variables
(TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_…),
its API key from SLIPWAY_TEMPORAL_API_KEY_FILE where there is one, and the keys of
encrypted histories from SLIPWAY_CODEC_KEYS_FILE.

Exit codes:
  0   admitted: handed over to the operator
  1   something unexpected happened
  2   the command was not used right
  4   refused
  5   Temporal, the leader or the API server is away, or did not answer in time;
      the request may have been taken, and may be repeated
  75  deferred`,
		Example: `  slipway planned request --namespace shop --group orders --kind PlannedFailover --target pdx`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case !lease.ValidNamespace(namespace):
				return exit.Misuse("--namespace is needed: the namespace of the MysqlFailoverGroup, not %q", namespace)
			case !lease.ValidName(group):
				return exit.Misuse("--group is needed: the name of a MysqlFailoverGroup, not %q", group)
			case output != "text" && output != "json":
				return exit.Misuse("--output is text or json, not %q", output)
			}
			if err := request.Check(); err != nil {
				return exit.Misuse("--%w", err) // it begins with the name of the member, which is the flag's
			}
			requester, closer, err := connect()
			if err != nil {
				return err
			}
			defer closer()
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			answer, err := requester.Request(ctx, namespace, group, request)
			if err != nil {
				return explain(err, timeout)
			}
			if err := show(c.OutOrStdout(), output, answer); err != nil {
				return err
			}
			return outcome(answer)
		},
	}
	flags := c.Flags()
	flags.StringVarP(&namespace, "namespace", "n", "", "namespace of the group")
	flags.StringVarP(&group, "group", "g", "", "name of the MysqlFailoverGroup")
	flags.StringVar((*string)(&request.Kind), "kind", "", "PlannedFailover, OrderedUpdate or RestoreInPlace")
	flags.StringVar(&request.Target, "target", "", "site to fail over to; for the other kinds a text of your own")
	flags.StringVarP(&output, "output", "o", "text", "text or json")
	flags.DurationVar(&timeout, "timeout", timeout, "how long to wait for the answer")
	return c
}

// explain says what an error means for the user.
func explain(err error, timeout time.Duration) error {
	if exit.TemporalAway(err) {
		return exit.With(exit.Away, fmt.Errorf("no answer (--timeout %s): Temporal is away, or nobody leads; the request may have been taken: %s", timeout, safe(err.Error())))
	}
	if application, ok := errors.AsType[*temporal.ApplicationError](err); ok && application.Type() == wire.ErrorUnavailable {
		return exit.With(exit.Away, fmt.Errorf("unavailable: %s", safe(application.Message())))
	}
	return &exit.Error{Code: exit.Failed, Text: safe(err.Error()), Err: err}
}

// outcome is the exit code of an answer, which was shown.
func outcome(answer wire.PlannedAnswer) error {
	switch answer.Status {
	case wire.PlannedAdmitted:
		return nil
	case wire.PlannedDeferred:
		return &exit.Error{Code: exitDeferred}
	case wire.PlannedRefused:
		return &exit.Error{Code: exit.Refused}
	}
	return &exit.Error{Code: exit.Failed, Text: "an answer with an unknown status: " + safe(answer.Status)}
}

func show(w io.Writer, output string, answer wire.PlannedAnswer) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(answer)
	}
	text := safe(answer.Status)
	if answer.Reason != "" {
		text += " (" + safe(answer.Reason) + ")"
	}
	if answer.Message != "" {
		text += ": " + safe(answer.Message)
	}
	if !answer.RetryAfter.IsZero() {
		text += ", until " + answer.RetryAfter.UTC().Format(time.RFC3339) + " if nobody renews it"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// safe keeps what others wrote, operation IDs too, from steering a terminal.
func safe(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}
