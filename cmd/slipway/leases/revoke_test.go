package leases

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// revoker remembers what it was asked, and answers err or nothing at all.
type revoker struct {
	asked []wire.LeaseRef
	err   error
	hangs bool
}

func (r *revoker) Revoke(ctx context.Context, ref wire.LeaseRef, _ lease.Reason) error {
	r.asked = append(r.asked, ref)
	if r.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return r.err
}

func (r *revoker) run(t *testing.T, args ...string) (string, error) {
	c := exit.Strict(Command(func(string) string { return "" }, func() (Revoker, func(), error) { return r, func() {}, nil }))
	var out bytes.Buffer
	c.SetOut(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"revoke"}, args...))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestRevoke(t *testing.T) {
	given := []string{"-n", "shop", "-g", "orders", "--operation-id", "job", "--kind", "failover-hold", "--timeout", "10ms"}
	for name, test := range map[string]struct {
		revoker revoker
		code    int
		says    string
	}{
		"done":        {revoker{}, 0, "failover-hold lease of operation \"job\" on shop/orders"},
		"unreachable": {revoker{err: serviceerror.NewUnavailable("connection refused")}, 5, "may not be revoked: connection refused"},
		"too late":    {revoker{hangs: true}, 5, "no answer from Temporal (--timeout 10ms)"},
		"forbidden":   {revoker{err: serviceerror.NewPermissionDenied("not you", "")}, 1, "not you"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := test.revoker.run(t, given...)
			require.Equal(t, test.code, exit.Code(err))
			if err != nil {
				out = err.Error()
			}
			require.Contains(t, out, test.says)
			require.Equal(t, []wire.LeaseRef{{Namespace: "shop", Group: "orders", Kind: lease.KindHold, OperationID: "job"}}, test.revoker.asked)
		})
	}
	for says, args := range map[string][]string{
		`--namespace is needed: the namespace of the MysqlFailoverGroup, not ""`: {},
		`not "Orders"`:                    append(given, "-g", "Orders"),
		`--kind is migration or failover`: append(given, "--kind", "hold"),
		`--operation-id is needed`:        append(given, "--operation-id", ""),
	} {
		r := revoker{}
		_, err := r.run(t, args...)
		require.ErrorContains(t, err, says)
		require.Equal(t, exit.Usage, exit.Code(err))
		require.Empty(t, r.asked)
	}
}
