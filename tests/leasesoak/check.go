package leasesoak

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/schema/lease"
)

// What is done in a call.
type What string

// The calls of a history.
const (
	// Grant, Renew and Release are those of the API.
	Grant   What = "grant"
	Renew   What = "renew"
	Release What = "release"
	// RevokeOne revokes one lease, and succeeds when it is known to be revoked.
	RevokeOne What = "revoke one"
	// RevokeAll ends every lease that the group had when the call began: an
	// operator asked for it, or the topology changed.
	RevokeAll What = "revoke all"
	// Planned is a planned operation in force, from when its caller was told
	// that it is admitted to when the operator began to report its end.
	Planned What = "planned operation"
)

// Outcome of a call.
type Outcome string

// The outcomes of calls.
const (
	// OK: it is done.
	OK Outcome = "ok"
	// Revoked: a 409 that says so.
	Revoked Outcome = "revoked"
	// Refused: any other answer that says no; nothing was done.
	Refused Outcome = "refused"
	// Unknown: no answer, or one that says nothing.
	Unknown Outcome = "unknown"
)

// Call is one call of a history.
type Call struct {
	Start, End time.Time
	What       What
	Group      string
	Kind       lease.Kind // of a lease
	Operation  string     // of a lease
	// Token is the one that was presented, or that was granted.
	Token   string
	Outcome Outcome
	// TTL that was asked for, and ExpiresAt that was answered.
	TTL       time.Duration
	ExpiresAt time.Time
}

func (c Call) String() string {
	return fmt.Sprintf("%s %s %s/%s: %s, %s to %s, expires %s, token %.6s", c.What, c.Group, c.Kind, c.Operation, c.Outcome,
		c.Start.Format(clock), c.End.Format(clock), c.ExpiresAt.Format(clock), c.Token)
}

const clock = "15:04:05.000000"

func (c Call) of(other Call) bool {
	return c.Group == other.Group && c.Kind == other.Kind && c.Operation == other.Operation
}

// confirms says whether the caller knows since this call that it has the lease.
func (c Call) confirms() bool { return c.Outcome == OK && (c.What == Grant || c.What == Renew) }

// lateEffect is how long after its caller gave up a call may still be carried
// out: the time limit of a request, and the longest that a replica is frozen.
const lateEffect = 30 * time.Second

// mayEnd says whether this call may have ended a lease that c confirmed.
func (c Call) mayEnd(confirmed Call) bool {
	end := c.End
	if c.Outcome == Unknown {
		end = end.Add(lateEffect)
	}
	if end.Before(confirmed.Start) {
		return false
	}
	return c.What == RevokeAll && c.Group == confirmed.Group ||
		(c.What == Release || c.What == RevokeOne) && c.of(confirmed)
}

// mayShorten is the earliest expiry that this call can have given to a lease
// that c confirmed: the newest TTL counts, also where it is the shorter one.
func (c Call) mayShorten(confirmed Call) (time.Time, bool) {
	if c.What != Grant && c.What != Renew || !c.of(confirmed) || c.Outcome != OK && c.Outcome != Unknown {
		return time.Time{}, false
	}
	if c.Outcome == Unknown {
		return c.Start.Add(c.TTL), !c.End.Add(lateEffect).Before(confirmed.Start)
	}
	return c.ExpiresAt, !c.End.Before(confirmed.Start)
}

// History is what callers record. They may do so at once.
type History struct {
	mu    sync.Mutex
	calls []Call
}

// Add records a call that has ended.
func (h *History) Add(c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

// Calls are those so far.
func (h *History) Calls() []Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// interval is a time in which an operation is sure of its lease.
type interval struct {
	from, to time.Time
	call     Call
}

// Check returns what cannot have happened, in words.
func Check(calls []Call) []string {
	groups := map[string][]Call{}
	for _, c := range calls {
		groups[c.Group] = append(groups[c.Group], c)
	}
	var findings []string
	for _, group := range groups {
		slices.SortFunc(group, func(a, b Call) int { return a.Start.Compare(b.Start) })
		findings = append(findings, exclusion(group)...)
		findings = append(findings, successes(group)...)
	}
	slices.Sort(findings)
	return findings
}

// exclusion finds operations of one group that were sure of what excludes each
// other at the same time.
func exclusion(group []Call) []string {
	var migrations, holds, planned []interval
	for _, c := range group {
		switch {
		case c.What == Planned:
			planned = append(planned, interval{c.Start, c.End, c})
		case !c.confirms():
		case c.Kind == lease.KindMigration:
			migrations = append(migrations, sure(group, c))
		case c.Kind == lease.KindHold:
			holds = append(holds, sure(group, c))
		}
	}
	var findings []string
	for i, a := range migrations {
		for _, b := range migrations[i+1:] {
			if a.call.Operation != b.call.Operation && a.overlaps(b) {
				findings = append(findings, fmt.Sprintf("two migrations at once: %s; %s", a.call, b.call))
			}
		}
	}
	for _, a := range planned {
		for _, b := range holds {
			if a.overlaps(b) {
				findings = append(findings, fmt.Sprintf("a hold during a planned operation: %s; %s", b.call, a.call))
			}
		}
	}
	return findings
}

func (i interval) overlaps(other interval) bool {
	return i.from.Before(i.to) && other.from.Before(other.to) && i.from.Before(other.to) && other.from.Before(i.to)
}

// sure is when the caller of a call that confirms a lease is sure of it.
func sure(group []Call, c Call) interval {
	to := c.ExpiresAt
	for _, other := range group {
		if other.Start.Before(to) && other.mayEnd(c) {
			to = other.Start
		}
		if shorter, ok := other.mayShorten(c); ok && shorter.Before(to) {
			to = shorter
		}
	}
	return interval{c.End, to, c}
}

// successes finds calls of one group that succeeded and cannot have.
func successes(group []Call) []string {
	var findings []string
	for _, c := range group {
		if !c.confirms() {
			continue
		}
		found := func(rule string, because Call) {
			findings = append(findings, fmt.Sprintf("%s: %s; %s", rule, c, because))
		}
		for _, before := range group {
			if !before.End.Before(c.Start) {
				continue
			}
			if before.of(c) && (before.Outcome == Revoked || before.What == RevokeOne && before.Outcome == OK) {
				found("success after revocation", before)
			}
		}
		if c.What == Renew {
			renewal(group, c, found)
		}
	}
	return findings
}

// renewal looks at the token of a renewal that succeeded.
func renewal(group []Call, c Call, found func(rule string, because Call)) {
	granted := slices.IndexFunc(group, func(g Call) bool {
		return g.What == Grant && g.Outcome == OK && g.of(c) && g.Token == c.Token
	})
	if granted < 0 || !group[granted].Start.Before(c.End) {
		found("a token that nobody granted", c)
		return
	}
	grant := group[granted]
	last := grant // what the lease had its latest expiry of
	latest := grant.ExpiresAt
	for _, other := range group {
		// Calls that overlap this one say nothing about its token.
		wholly := grant.End.Before(other.Start) && other.End.Before(c.Start)
		switch {
		case other == c:
		case other.What == RevokeAll && other.Outcome == OK && wholly:
			found("a token of before a revocation", other)
		case !other.of(c):
		case other.What == Grant && other.Outcome == OK && wholly:
			found("a token that another replaced", other)
		case other.What == Release && other.Outcome == OK && other.Token == c.Token && wholly:
			found("a token that was released", other)
		case (other.What == Grant || other.What == Renew) && other.Start.Before(c.End):
			if expiry := other.expiry(); expiry.After(latest) {
				last, latest = other, expiry
			}
		}
	}
	if c.Start.After(latest) {
		found("renewed after its expiry", last)
	}
}

// expiry is the latest that a call can have given to a lease, or no time.
func (c Call) expiry() time.Time {
	switch c.Outcome {
	case OK:
		return c.ExpiresAt
	case Unknown:
		return c.End.Add(lateEffect + c.TTL)
	}
	return time.Time{}
}
