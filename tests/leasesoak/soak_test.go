package leasesoak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/tests/stand"
)

// again is how soon a caller that got no answer asks again. Many callers wait
// longer: they are not to be the load.
func again() time.Duration { return long(time.Second, 300*time.Millisecond) }

// TestSoak holds two leases in each of many groups, renewed at a third of their
// TTL, while every piece is killed and restarted, each away for less than 30 s.
// All of them stay, and those that nobody renews go.
func TestSoak(t *testing.T) {
	count, abandoned, ttl := long(100, 8), long(10, 2), long(120, 30)
	var held, left []string
	for i := range count + abandoned {
		if i < count {
			held = append(held, fmt.Sprintf("held-%d", i))
		} else {
			left = append(left, fmt.Sprintf("left-%d", i))
		}
	}
	s := newScene(t, append(held, left...)...)
	s.leader(t)

	begin := time.Now()
	var mine []Call
	for _, group := range held {
		for _, kind := range []lease.Kind{lease.KindMigration, lease.KindHold} {
			granted, err := s.untilDone(t.Context(), Call{
				What: Grant, Group: group, Kind: kind, Operation: "mine", TTL: time.Duration(ttl) * time.Second,
			}, time.Minute)
			require.NoError(t, err)
			mine = append(mine, granted)
		}
	}
	t.Logf("%d leases granted in %s", len(mine), time.Since(begin))

	running, stop := context.WithCancel(t.Context())
	defer stop()
	callers, ctx := errgroup.WithContext(running)
	for i, granted := range mine {
		callers.Go(func() error { return s.keep(ctx, granted, time.Duration(i)*granted.TTL/3/time.Duration(len(mine))) })
	}
	for i, group := range held {
		callers.Go(func() error { return s.intrude(ctx, group, time.Duration(long(5, 1))*time.Second, uint64(i)) })
	}
	for _, group := range left {
		callers.Go(func() error { return s.inherit(ctx, group) })
	}
	s.breakAll(t, begin.Add(soakTime))
	await(t, time.Minute, func() error { return s.usable(t.Context(), held) })
	for _, group := range left { // whoever inherits it
		await(t, time.Minute, func() error { return s.handedOn(group) })
	}
	stop()
	require.NoError(t, callers.Wait())
	for _, group := range held {
		await(t, time.Minute, func() error { // another may be about to lead
			a := s.ask(t.Context(), http.MethodGet, group, nil, nil)
			if a.Status != http.StatusOK {
				return fmt.Errorf("%s: status %d", group, a.Status)
			}
			require.Len(t, a.Leases, 2, group)
			return nil
		})
	}
	s.check(t)
}

// breakAll kills and restarts every piece, in the time until over.
func (s *scene) breakAll(t *testing.T, over time.Time) {
	t.Helper()
	faults := []struct {
		name string
		do   func()
	}{
		// The next leader begins its term without Temporal.
		{"Temporal, and the leader meanwhile,", func() {
			leader := s.leader(t)
			require.NoError(t, s.Kill(stand.Temporal))
			require.NoError(t, s.Kill(leader))
			s.leader(t)
			pause(t.Context(), long(5*time.Second, 0))
			require.NoError(t, s.Start(stand.Temporal))
			require.NoError(t, s.Start(leader))
		}},
		{"the replica that does not lead", func() {
			leader := s.leader(t)
			for _, replica := range replicas {
				if replica != leader {
					require.NoError(t, s.Restart(replica))
				}
			}
		}},
		{"the API server", func() {
			s.kube.Kill()
			pause(t.Context(), long(10*time.Second, time.Second))
			s.kube.Start(t)
		}},
	}
	for i, fault := range faults {
		since := time.Now()
		fault.do()
		t.Logf("%s was killed and restarted: %s", fault.name, time.Since(since).Round(100*time.Millisecond))
		s.leader(t)
		t.Logf("somebody leads after %s", time.Since(since).Round(100*time.Millisecond))
		// The rest of the time is shared by the faults that are left.
		pause(t.Context(), max(0, time.Until(over)/time.Duration(len(faults)-i)))
	}
}

// untilDone makes a call again and again until there is an answer that says
// something, and it is OK.
func (s *scene) untilDone(ctx context.Context, c Call, limit time.Duration) (Call, error) {
	deadline := time.Now().Add(limit)
	for {
		made, a := s.do(ctx, c)
		switch {
		case made.Outcome == OK:
			return made, nil
		case made.Outcome == Revoked || made.Outcome == Refused && a.Status != http.StatusLocked:
			return made, fmt.Errorf("%d %s: %s", a.Status, a.Error, made)
		case ctx.Err() != nil:
			return made, ctx.Err()
		case time.Now().After(deadline):
			return made, fmt.Errorf("no answer in time: %s", made)
		}
		pause(ctx, again())
	}
}

// keep renews a lease at a third of its TTL, first after a while, and finds
// that it is never lost.
func (s *scene) keep(ctx context.Context, granted Call, first time.Duration) error {
	for pause(ctx, first); ctx.Err() == nil; pause(ctx, granted.TTL/3) {
		renewal := granted
		renewal.What = Renew
		renewed, err := s.untilDone(ctx, renewal, time.Until(granted.ExpiresAt))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("a lease is lost that was to last until %s: %w", granted.ExpiresAt.Format(clock), err)
		}
		granted.ExpiresAt = renewed.ExpiresAt
	}
	return nil
}

// intrude asks for the migration of a group that another holds.
func (s *scene) intrude(ctx context.Context, group string, every time.Duration, stream uint64) error {
	r := random(stream)
	for ctx.Err() == nil {
		pause(ctx, every/2+time.Duration(r.Int64N(int64(every))))
		_, a := s.do(ctx, Call{What: Grant, Group: group, Kind: lease.KindMigration, Operation: "intruder", TTL: lease.MinTTL})
		if a.Status == http.StatusCreated {
			return fmt.Errorf("%s was granted to an intruder", group)
		}
	}
	return nil
}

// inherit lets operations follow one another in a group, none of which renews
// or releases. That none is early is for Check to find.
func (s *scene) inherit(ctx context.Context, group string) error {
	var late sync.WaitGroup
	defer late.Wait()
	for next := 0; ctx.Err() == nil; {
		made, _ := s.do(ctx, Call{What: Grant, Group: group, Kind: lease.KindMigration, Operation: fmt.Sprint("heir-", next), TTL: lease.MinTTL})
		if made.Outcome == OK {
			// Its token must be good for nothing once it has expired.
			late.Go(func() {
				pause(ctx, time.Until(made.ExpiresAt.Add(10*time.Millisecond)))
				made.What, made.ExpiresAt = Renew, time.Time{}
				s.do(ctx, made)
			})
			next++
		}
		pause(ctx, again())
	}
	return nil
}

// usable is an error while a group cannot be looked at.
func (s *scene) usable(ctx context.Context, groups []string) error {
	for _, group := range groups {
		if a := s.ask(ctx, http.MethodGet, group, nil, nil); a.Status != http.StatusOK {
			return fmt.Errorf("%s: %d %s", group, a.Status, a.Error)
		}
	}
	return nil
}

// handedOn is an error until three operations had a group.
func (s *scene) handedOn(group string) error {
	had := 0
	for _, c := range s.Calls() {
		if c.Group == group && c.What == Grant && c.Outcome == OK {
			had++
		}
	}
	if had < 3 {
		return errors.New("a lease that nobody renews is still held")
	}
	return nil
}
