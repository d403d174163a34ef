package leasesoak

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/lease"
)

// at is a time of made-up histories, in seconds.
func at(seconds float64) time.Time {
	return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// a call from start to end, which is what else is said of it.
func made(start, end float64, what What, operation, token string, more ...func(*Call)) Call {
	c := Call{
		Start: at(start), End: at(end), What: what, Group: "orders", Kind: lease.KindMigration, Operation: operation, Token: token,
		Outcome: OK, TTL: 10 * time.Second,
	}
	if what == Grant || what == Renew {
		c.ExpiresAt = at(start + 10)
	}
	for _, f := range more {
		f(&c)
	}
	return c
}

func short(c *Call) {
	c.TTL = 3 * time.Second
	c.ExpiresAt = c.Start.Add(c.TTL)
}

func hold(c *Call)    { c.Kind = lease.KindHold }
func other(c *Call)   { c.Group = "billing" }
func unknown(c *Call) { c.Outcome, c.ExpiresAt = Unknown, time.Time{} }
func refused(c *Call) { c.Outcome, c.ExpiresAt = Refused, time.Time{} }
func revoked(c *Call) { c.Outcome, c.ExpiresAt = Revoked, time.Time{} }

func TestCheck(t *testing.T) {
	grant := made(0, 1, Grant, "a", "t1")
	for _, test := range []struct {
		name  string
		calls []Call
		want  string // what a finding begins with; empty for none
	}{
		{"a life", []Call{grant, made(3, 4, Renew, "a", "t1"), made(5, 6, Release, "a", "t1"), made(7, 8, Grant, "b", "t2")}, ""},

		{"two migrations", []Call{grant, made(2, 3, Grant, "b", "t2")}, "two migrations at once"},
		{"two migrations by a renewal", []Call{grant, made(5, 6, Renew, "a", "t1"), made(11, 12, Grant, "b", "t2")}, "two migrations at once"},
		{"in two groups", []Call{grant, made(2, 3, Grant, "b", "t2", other)}, ""},
		{"a refused one", []Call{grant, made(2, 3, Grant, "b", "", refused)}, ""},
		{"after the expiry", []Call{grant, made(9, 10.1, Grant, "b", "t2")}, ""},
		{"after a release", []Call{grant, made(2, 9, Release, "a", "t1"), made(3, 4, Grant, "b", "t2")}, ""},
		{"after a release that nobody answered", []Call{grant, made(2, 3, Release, "a", "t1", unknown), made(4, 5, Grant, "b", "t2")}, ""},
		{"a release of another", []Call{grant, made(2, 3, Release, "c", ""), made(4, 5, Grant, "b", "t2")}, "two migrations at once"},
		{"a release that came before", []Call{made(-2, -1, Release, "a", ""), grant, made(4, 5, Grant, "b", "t2")}, "two migrations at once"},
		{"after a revocation", []Call{grant, made(2, 3, RevokeAll, "", ""), made(4, 5, Grant, "b", "t2")}, ""},
		{"during a revocation of it", []Call{grant, made(2, 8, RevokeOne, "a", ""), made(4, 5, Grant, "b", "t2")}, ""},

		{"a hold and a planned operation", []Call{made(0, 1, Grant, "a", "t1", hold), made(2, 3, Planned, "", "")}, "a hold during a planned operation"},
		{"a hold granted in one", []Call{made(0, 9, Planned, "", ""), made(2, 3, Grant, "a", "t1", hold)}, "a hold during a planned operation"},
		{"a migration and a planned operation", []Call{grant, made(2, 3, Planned, "", "")}, ""},
		{"one after the hold", []Call{made(0, 1, Grant, "a", "t1", hold), made(10.5, 11, Planned, "", "")}, ""},
		{"one after the release", []Call{made(0, 1, Grant, "a", "t1", hold), made(2, 3, Release, "a", "t1", hold), made(4, 5, Planned, "", "")}, ""},

		{"one after a renewal shortened the hold", []Call{
			made(0, 1, Grant, "a", "t1", hold), made(2, 3, Renew, "a", "t1", hold, short), made(6, 7, Planned, "", ""),
		}, ""},
		{"one before a renewal shortened the hold", []Call{
			made(0, 1, Grant, "a", "t1", hold), made(2, 3, Planned, "", ""), made(4, 5, Renew, "a", "t1", hold, short),
		}, "a hold during a planned operation"},
		{"one after nobody answered whether the hold is shorter", []Call{
			made(0, 1, Grant, "a", "t1", hold), made(2, 3, Renew, "a", "t1", hold, short, unknown), made(6, 7, Planned, "", ""),
		}, ""},

		{"a renewal after revoked", []Call{grant, made(2, 3, Renew, "a", "t1", revoked), made(4, 5, Renew, "a", "t1")}, "success after revocation"},
		{"a grant after revoked", []Call{grant, made(2, 3, Renew, "a", "t1", revoked), made(40, 50, Grant, "a", "t2")}, "success after revocation"},
		{"a grant after a revocation of it", []Call{grant, made(2, 3, RevokeOne, "a", ""), made(40, 50, Grant, "a", "t2")}, "success after revocation"},
		{"a grant after a revocation that nobody asked for", []Call{grant, made(2, 3, Renew, "a", "t1", revoked), made(4, 5, Grant, "b", "t2")}, "two migrations at once"},
		{"a renewal after revoke all", []Call{grant, made(2, 3, RevokeAll, "", ""), made(4, 5, Renew, "a", "t1")}, "a token of before a revocation"},
		{"a renewal during revoke all", []Call{grant, made(2, 5, RevokeAll, "", ""), made(4, 5, Renew, "a", "t1")}, ""},
		{"a grant during revoke all", []Call{made(0, 3, Grant, "a", "t1"), made(2, 3, RevokeAll, "", ""), made(4, 5, Renew, "a", "t1")}, ""},

		{"a renewal after expiry", []Call{grant, made(10.1, 11, Renew, "a", "t1")}, "renewed after its expiry"},
		{"a renewal at expiry", []Call{grant, made(10, 11, Renew, "a", "t1")}, ""},
		{"after one that nobody answered", []Call{grant, made(9, 10, Renew, "a", "t1", unknown), made(11, 12, Renew, "a", "t1")}, ""},
		{"long after one that nobody answered", []Call{grant, made(9, 10, Renew, "a", "t1", unknown), made(60, 61, Renew, "a", "t1")}, "renewed after its expiry"},
		{"after one that was refused", []Call{grant, made(9, 10, Renew, "a", "t1", refused), made(11, 12, Renew, "a", "t1")}, "renewed after its expiry"},

		{"a replaced token", []Call{grant, made(2, 3, Grant, "a", "t2"), made(4, 5, Renew, "a", "t1")}, "a token that another replaced"},
		{"a token that is being replaced", []Call{grant, made(2, 5, Grant, "a", "t2"), made(4, 5, Renew, "a", "t1")}, ""},
		{"the new token", []Call{grant, made(2, 3, Grant, "a", "t2"), made(4, 5, Renew, "a", "t2")}, ""},
		{"an invented token", []Call{grant, made(4, 5, Renew, "a", "t9")}, "a token that nobody granted"},
		{"a token of another", []Call{grant, made(11, 12, Renew, "b", "t1")}, "a token that nobody granted"},
		{"a token of the other kind", []Call{grant, made(4, 5, Renew, "a", "t1", hold)}, "a token that nobody granted"},
		{"a released token", []Call{grant, made(2, 3, Release, "a", "t1"), made(4, 5, Renew, "a", "t1")}, "a token that was released"},
	} {
		t.Run(test.name, func(t *testing.T) {
			findings := Check(test.calls)
			if test.want == "" {
				require.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			require.Contains(t, findings[0], test.want+": ")
		})
	}
}
