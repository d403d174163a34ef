package planned

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// asked is a Requester that remembers.
type asked struct {
	t      *testing.T
	calls  []string
	answer wire.PlannedAnswer
	err    error
	hangs  bool
	closed bool
}

func (a *asked) Request(ctx context.Context, namespace, group string, r wire.PlannedRequest) (wire.PlannedAnswer, error) {
	a.calls = append(a.calls, strings.Join([]string{namespace, group, string(r.Kind), r.Target}, " "))
	if a.hangs {
		<-ctx.Done()
		return wire.PlannedAnswer{}, ctx.Err()
	}
	return a.answer, a.err
}

func (a *asked) run(args ...string) (string, error) {
	c := exit.Strict(Command(func() (Requester, func(), error) { return a, func() { a.closed = true }, nil }))
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"request"}, args...))
	err := c.ExecuteContext(a.t.Context())
	return out.String(), err
}

var request = []string{"--namespace", "shop", "--group", "orders", "--kind", "PlannedFailover", "--target", "pdx"}

func TestRequest(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for name, test := range map[string]struct {
		asked asked
		code  int
		out   string
		err   string
	}{
		"admitted": {asked{answer: wire.PlannedAnswer{Status: "admitted", Message: "handed over to the operator"}}, 0, "admitted: handed over to the operator\n", ""},
		"deferred": {asked{answer: wire.PlannedAnswer{Status: "deferred", Reason: lease.ReasonDeploymentHold, RetryAfter: until, Message: "hold of a\x1b[31m"}},
			75, "deferred (DeploymentHold): hold of a\uFFFD[31m, until 2026-01-02T03:04:05Z if nobody renews it\n", ""},
		"refused":     {asked{answer: wire.PlannedAnswer{Status: "refused", Reason: "TargetUnknown"}}, 4, "refused (TargetUnknown)\n", ""},
		"unavailable": {asked{err: temporal.NewNonRetryableApplicationError("connection refused", wire.ErrorUnavailable, nil)}, 5, "", "unavailable: connection refused"},
		"too late":    {asked{hangs: true}, 5, "", "no answer (--timeout 10ms)"},
		"unreachable": {asked{err: serviceerror.NewUnavailable("connection refused")}, 5, "", "connection refused"},
		"unexpected":  {asked{err: errors.New("no")}, 1, "", "no"},
		"nonsense":    {asked{answer: wire.PlannedAnswer{Status: "other"}}, 1, "other\n", "unknown status"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &test.asked
			a.t = t
			out, err := a.run(append(request, "--timeout", "10ms")...)
			require.Equal(t, test.code, exit.Code(err))
			require.Equal(t, test.out, out)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
			}
			require.Equal(t, []string{"shop orders PlannedFailover pdx"}, a.calls)
			require.True(t, a.closed)
		})
	}
}

func TestRequestAsJSON(t *testing.T) {
	a := &asked{t: t, answer: wire.PlannedAnswer{Status: "deferred", Reason: "DeploymentHold", RetryAfter: time.Unix(1, 0).UTC(), Message: "m"}}
	out, err := a.run(append(request, "-o", "json")...)
	require.Equal(t, exitDeferred, exit.Code(err))
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, map[string]any{"status": "deferred", "reason": "DeploymentHold", "retryAfter": "1970-01-01T00:00:01Z", "message": "m"}, got)
}

func TestRequestUsedWrong(t *testing.T) {
	for _, args := range [][]string{
		{},
		append(request, "-o", "yaml"),
		append(request, "--namespace", "Shop"),
		append(request, "--group", "a/b"),
		append(request, "--kind", "Failover"),
		append(request, "--target", ""),
		append(request, "--site", "pdx"),
		append(request, "again"),
	} {
		a := &asked{t: t}
		_, err := a.run(args...)
		require.Equal(t, exit.Usage, exit.Code(err), args)
		require.Empty(t, a.calls)
	}
}
