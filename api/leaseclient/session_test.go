package leaseclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/lease"
)

// fake is an API in memory. Time is that of a synctest bubble.
type fake struct {
	t *testing.T

	mu       sync.Mutex
	calls    []string // "12s PUT migration"
	busy     map[lease.Kind]int
	began    time.Time
	observed lease.Observation
	// grant and renew, when set, answer instead.
	grant   func(n int, r Request) (Grant, error)
	renew   func(ctx context.Context, n int, l Lease) (Renewal, error)
	release func(n int) error
	grants  int
	renewed map[lease.Kind]int
	frees   int
}

func newFake(t *testing.T) *fake {
	return &fake{t: t, began: time.Now(), busy: map[lease.Kind]int{}, renewed: map[lease.Kind]int{}}
}

func (f *fake) enter(method string, kind lease.Kind) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf("%s %s", method, kind))
	f.busy[kind]++
	if f.busy[kind] > 1 {
		f.t.Errorf("two requests of the %s lease at once: %v", kind, f.calls)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy[kind]--
	}
}

func (f *fake) Observe(context.Context, string) (lease.Observation, error) { return f.observed, nil }

func (f *fake) Grant(_ context.Context, _ string, r Request) (Grant, error) {
	defer f.enter("POST", r.Kind)()
	f.grants++
	if f.grant != nil {
		return f.grant(f.grants, r)
	}
	return granted(30 * time.Second), nil
}

func granted(ttl time.Duration) Grant {
	return Grant{Token: "t", ExpiresAt: time.Now().Add(ttl), TopologyGeneration: 17, New: true}
}

func (f *fake) Renew(ctx context.Context, l Lease, ttl int64) (Renewal, error) {
	defer f.enter("PUT", l.Kind)()
	f.mu.Lock()
	f.renewed[l.Kind]++
	n := f.renewed[l.Kind]
	f.mu.Unlock()
	if f.renew != nil {
		return f.renew(ctx, n, l)
	}
	return Renewal{time.Now().Add(time.Duration(ttl) * time.Second), 17}, nil
}

func (f *fake) Release(_ context.Context, l Lease) error {
	defer f.enter("DELETE", l.Kind)()
	f.frees++
	if f.release != nil {
		return f.release(f.frees)
	}
	return nil
}

// story is the calls but for renewals.
func (f *fake) story() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var told []string
	for _, c := range f.calls {
		if !strings.HasPrefix(c, "PUT") {
			told = append(told, c)
		}
	}
	return strings.Join(told, ", ")
}

const whole = "POST migration, POST failover-hold, DELETE failover-hold, DELETE migration"

// clocks are those of a machine, in a bubble: they may jump.
type clocks struct {
	mu         sync.Mutex
	began      time.Time
	boot, wall time.Duration // ahead of the bubble's time
}

func (c *clocks) clock() Clock {
	return Clock{
		Wall: func() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return time.Now().Add(c.wall) },
		Boot: func() time.Duration {
			c.mu.Lock()
			defer c.mu.Unlock()
			return time.Since(c.began) + c.boot
		},
	}
}

func (c *clocks) jump(boot, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot, c.wall = c.boot+boot, c.wall+wall
}

func config(c *clocks) Config {
	return Config{Group: "orders", Instance: "orders-app", OperationID: "op", TTL: 30 * time.Second, Clock: c.clock()}
}

// bubble runs a test with time of its own, and with an API and clocks.
func bubble(t *testing.T, test func(t *testing.T, f *fake, c *clocks)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, newFake(t), &clocks{began: time.Now()})
	})
}

// lostAt waits for the loss and returns how long that took.
func lostAt(t *testing.T, s *Session) (time.Duration, *LostError) {
	t.Helper()
	began := time.Now()
	select {
	case <-s.Done():
	case <-time.After(time.Hour):
		require.Fail(t, "the leases were not lost within an hour")
	}
	lost, ok := errors.AsType[*LostError](s.Err())
	require.True(t, ok)
	return time.Since(began), lost
}

func TestBothAreRenewedAtAThirdAndReleased(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		s, err := Acquire(t.Context(), f, config(c))
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.NoError(t, s.Err())
		require.Greater(t, s.Deadline().Left(c.clock()), 19*time.Second)
		require.NoError(t, s.Release(t.Context()))
		require.NoError(t, s.Release(t.Context()), "twice is once")
		require.Equal(t, whole, f.story())
		for _, kind := range []lease.Kind{lease.KindMigration, lease.KindHold} {
			require.GreaterOrEqual(t, f.renewed[kind], 60, kind)
			require.LessOrEqual(t, f.renewed[kind], 67, kind)
		}
		time.Sleep(time.Minute)
		require.Equal(t, whole, f.story())
	})
}

func TestNoHold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		o := config(c)
		o.NoHold = true
		s, err := Acquire(t.Context(), f, o)
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context()))
		require.Equal(t, "POST migration, DELETE migration", f.story())
	})
}

// What ends authority, and when: at once, or a lead before the deadline.
func TestALossIsSeenInTimeAndNeverAskedFor(t *testing.T) {
	at := func(status int, code Code) error { return &Error{Status: status, Code: code} }
	never := func(error) func(context.Context) (Renewal, error) {
		return func(ctx context.Context) (Renewal, error) {
			<-ctx.Done()
			return Renewal{}, &ConnectionError{Err: ctx.Err()}
		}
	}
	for name, test := range map[string]struct {
		answer func(ctx context.Context) (Renewal, error)
		cause  Cause
		late   bool // only when the deadline comes
	}{
		"404":           {failing(at(404, CodeNotFound)), CauseGone, false},
		"404 of others": {failing(at(404, "")), CauseGone, false},
		"409":           {failing(&Error{Status: 409, Code: CodeRevoked, Reason: "operator_revoked"}), CauseRevoked, false},
		"403 token":     {failing(at(403, CodeTokenMismatch)), CauseTaken, false},
		"403":           {failing(at(403, CodeForbidden)), CauseTaken, false},
		"generation": {func(context.Context) (Renewal, error) {
			return Renewal{time.Now().Add(time.Hour), 18}, nil
		}, CauseGeneration, false},
		"423":         {failing(&Error{Status: 423, Code: CodeUnstable, RetryAfter: time.Second}), CauseDeadline, true},
		"503":         {failing(at(503, CodeNotLeader)), CauseDeadline, true},
		"401":         {failing(at(401, CodeUnauthorized)), CauseDeadline, true},
		"502":         {failing(at(502, "")), CauseDeadline, true},
		"no token":    {failing(errors.New("token file: gone")), CauseDeadline, true},
		"connection":  {failing(&ConnectionError{Err: errors.New("refused")}), CauseDeadline, true},
		"never":       {never(nil), CauseDeadline, true},
		"in the past": {func(context.Context) (Renewal, error) { return Renewal{time.Now(), 17}, nil }, CauseDeadline, false},
	} {
		for _, kind := range []lease.Kind{lease.KindMigration, lease.KindHold} {
			t.Run(name+" "+string(kind), func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake, c *clocks) {
					f.renew = func(ctx context.Context, _ int, l Lease) (Renewal, error) {
						if l.Kind == kind {
							return test.answer(ctx)
						}
						return Renewal{time.Now().Add(30 * time.Second), 17}, nil
					}
					s, err := Acquire(t.Context(), f, config(c))
					require.NoError(t, err)
					took, lost := lostAt(t, s)
					require.Equal(t, test.cause, lost.Cause)
					require.Equal(t, kind, lost.Kind)
					if test.late {
						require.Equal(t, 25*time.Second, took, "the lead of 30 s is 5 s")
						require.Error(t, lost.Err)
					} else {
						require.LessOrEqual(t, took, 10*time.Second+tick)
					}
					renewals := f.renewed[kind]
					time.Sleep(5 * time.Minute)
					require.Equal(t, renewals, f.renewed[kind], "nothing is renewed after a loss")
					_ = s.Release(t.Context())
					require.Equal(t, whole, f.story(), "nothing is granted after a loss, all is released")
				})
			})
		}
	}
}

func failing(err error) func(context.Context) (Renewal, error) {
	return func(context.Context) (Renewal, error) { return Renewal{}, err }
}

func TestTroubleThatPassesIsNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.renew = func(_ context.Context, n int, _ Lease) (Renewal, error) {
			if n%4 != 0 {
				return Renewal{}, &Error{Status: 423, Code: CodeUnstable, RetryAfter: time.Second}
			}
			return Renewal{time.Now().Add(30 * time.Second), 17}, nil
		}
		s, err := Acquire(t.Context(), f, config(c))
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.NoError(t, s.Err())
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestTheDeadlineCountsFromWhenTheRequestWasSent(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.renew = func(_ context.Context, n int, _ Lease) (Renewal, error) {
			if n > 1 {
				return Renewal{}, &Error{Status: 503}
			}
			time.Sleep(9 * time.Second)
			return Renewal{time.Now().Add(30 * time.Second), 17}, nil
		}
		s, err := Acquire(t.Context(), f, config(c))
		require.NoError(t, err)
		took, _ := lostAt(t, s)
		// Sent at 9 to 10 s, so it is 34 to 35 s, and not 43.
		require.InDelta(t, 34.5, took.Seconds(), 0.6)
	})
}

func TestClocks(t *testing.T) {
	for name, test := range map[string]struct {
		boot, wall time.Duration // the jump after 5 s
		took       time.Duration
	}{
		"still":              {0, 0, 25 * time.Second},
		"wall set back":      {0, -time.Hour, 25 * time.Second},
		"wall set forward":   {0, 10 * time.Second, 15 * time.Second},
		"the machine slept":  {time.Minute, time.Minute, 5 * time.Second},
		"slept, wall behind": {time.Minute, 0, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, c *clocks) {
				f.renew = func(context.Context, int, Lease) (Renewal, error) { return Renewal{}, &Error{Status: 503} }
				s, err := Acquire(t.Context(), f, config(c))
				require.NoError(t, err)
				time.AfterFunc(5*time.Second, func() { c.jump(test.boot, test.wall) })
				took, lost := lostAt(t, s)
				require.Equal(t, CauseDeadline, lost.Cause)
				require.InDelta(t, test.took.Seconds(), took.Seconds(), tick.Seconds())
			})
		})
	}
}

// The answer to a renewal comes, but the machine slept over the deadline.
func TestAnAnswerAfterTheDeadlineIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.renew = func(context.Context, int, Lease) (Renewal, error) {
			c.jump(30*time.Second, 30*time.Second)
			return Renewal{time.Now().Add(time.Hour), 17}, nil
		}
		s, err := Acquire(t.Context(), f, config(c))
		require.NoError(t, err)
		_, lost := lostAt(t, s)
		require.Equal(t, CauseDeadline, lost.Cause)
		require.LessOrEqual(t, s.Deadline().Left(c.clock()), time.Duration(0), "the deadline did not move")
	})
}

func TestWaiting(t *testing.T) {
	held := func(left time.Duration) error {
		return &Error{Status: 409, Code: CodeHeld, Holder: &Holder{"other", "orders-app", time.Now().Add(left)}}
	}
	unstable := &Error{Status: 423, Code: CodeUnstable, Reason: "PlannedFailover", RetryAfter: time.Second}
	for name, test := range map[string]struct {
		wait   time.Duration
		grant  func(n int, r Request) (Grant, error)
		code   Code
		least  time.Duration
		most   time.Duration
		grants int // at most
	}{
		"held, no wait":     {0, func(int, Request) (Grant, error) { return Grant{}, held(time.Minute) }, CodeHeld, 0, 0, 1},
		"unstable, no wait": {0, func(int, Request) (Grant, error) { return Grant{}, unstable }, CodeUnstable, 0, 0, 1},
		"away, no wait":     {0, func(int, Request) (Grant, error) { return Grant{}, &Error{Status: 503, Code: CodeNotLeader} }, CodeNotLeader, 15 * time.Second, 16 * time.Second, 16},
		"revoked":           {time.Hour, func(int, Request) (Grant, error) { return Grant{}, &Error{Status: 409, Code: CodeRevoked} }, CodeRevoked, 0, 0, 1},
		"forbidden":         {time.Hour, func(int, Request) (Grant, error) { return Grant{}, &Error{Status: 403, Code: CodeForbidden} }, CodeForbidden, 0, 0, 1},
		"unauthorized":      {time.Hour, func(int, Request) (Grant, error) { return Grant{}, &Error{Status: 401, Code: CodeUnauthorized} }, CodeUnauthorized, 0, 0, 1},
		"held for ever":     {10 * time.Minute, func(int, Request) (Grant, error) { return Grant{}, held(20 * time.Second) }, CodeHeld, 10 * time.Minute, 10*time.Minute + time.Second, 300},
		"held, expires": {time.Minute, func() func(int, Request) (Grant, error) {
			return func(n int, r Request) (Grant, error) {
				if n == 1 {
					return Grant{}, held(1500 * time.Millisecond)
				}
				return granted(30 * time.Second), nil
			}
		}(), "", 1500 * time.Millisecond, 3 * time.Second, 3},
		"the hold is unstable": {10 * time.Second, func(_ int, r Request) (Grant, error) {
			if r.Kind == lease.KindHold {
				return Grant{}, unstable
			}
			return granted(30 * time.Second), nil
		}, CodeUnstable, 10 * time.Second, 11 * time.Second, 12},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, c *clocks) {
				f.grant = test.grant
				o := config(c)
				o.Wait = test.wait
				began := time.Now()
				s, err := Acquire(t.Context(), f, o)
				require.GreaterOrEqual(t, time.Since(began), test.least)
				require.LessOrEqual(t, time.Since(began), test.most)
				require.LessOrEqual(t, f.grants, test.grants)
				if test.code == "" {
					require.NoError(t, err)
					require.NoError(t, s.Release(t.Context()))
					return
				}
				refused, ok := errors.AsType[*Error](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, test.code, refused.Code)
				require.Equal(t, strings.Contains(f.story(), "POST failover-hold"), strings.HasSuffix(f.story(), "DELETE migration"), f.story())
			})
		})
	}
}

func TestWaitingIsInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.grant = func(int, Request) (Grant, error) {
			return Grant{}, &Error{Status: 409, Code: CodeHeld}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		o := config(c)
		o.Wait = time.Hour
		began := time.Now()
		_, err := Acquire(ctx, f, o)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestAMigrationLostWhileTheHoldIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.grant = func(_ int, r Request) (Grant, error) {
			if r.Kind == lease.KindHold {
				return Grant{}, &Error{Status: 423, Code: CodeUnstable}
			}
			return granted(30 * time.Second), nil
		}
		f.renew = func(context.Context, int, Lease) (Renewal, error) {
			return Renewal{}, &Error{Status: 409, Code: CodeRevoked, Reason: "topology_changed"}
		}
		o := config(c)
		o.Wait = time.Hour
		_, err := Acquire(t.Context(), f, o)
		lost, ok := errors.AsType[*LostError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, CauseRevoked, lost.Cause)
		require.True(t, strings.HasSuffix(f.story(), "DELETE migration"), f.story())
	})
}

func TestGrantsOfTwoGenerationsAreALoss(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.grant = func(n int, _ Request) (Grant, error) {
			g := granted(30 * time.Second)
			g.TopologyGeneration += int64(n)
			return g, nil
		}
		_, err := Acquire(t.Context(), f, config(c))
		lost, ok := errors.AsType[*LostError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, CauseGeneration, lost.Cause)
		require.Equal(t, whole, f.story())
	})
}

func TestAClockAheadOfTheAPIsIsALossAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		c.jump(0, time.Minute)
		_, err := Acquire(t.Context(), f, config(c))
		require.ErrorContains(t, err, "the clock of this machine is ahead")
		require.Equal(t, "POST migration, DELETE migration", f.story())
	})
}

func TestTheSameOperationTwice(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.observed.Leases = []lease.View{{Kind: lease.KindMigration, OperationID: "op", Instance: "orders-app", ExpiresAt: time.Now().Add(time.Second)}}
		_, err := Acquire(t.Context(), f, config(c))
		refused, ok := errors.AsType[*Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, "op", refused.Holder.OperationID)
		require.Empty(t, f.story(), "a POST would take the lease away from the other run")

		f.observed.Leases = nil
		f.grant = func(int, Request) (Grant, error) {
			g := granted(30 * time.Second)
			g.New = false
			return g, nil
		}
		_, err = Acquire(t.Context(), f, config(c))
		require.ErrorContains(t, err, "another process runs the operation")
		require.Equal(t, "POST migration", f.story())
	})
}

func TestAGrantWhoseAnswerWasLostIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.grant = func(n int, _ Request) (Grant, error) {
			if n == 1 {
				f.observed.Leases = []lease.View{{Kind: lease.KindMigration, OperationID: "op"}}
				return Grant{}, &ConnectionError{Err: errors.New("reset")}
			}
			g := granted(30 * time.Second)
			g.New = n != 2
			return g, nil
		}
		s, err := Acquire(t.Context(), f, config(c))
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context()))
		require.Equal(t, "POST migration, "+whole, f.story())
	})
}

func TestReleaseTriesAgainAndGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		var events []EventKind
		o := config(c)
		o.Report = func(e Event) { events = append(events, e.Kind) }
		f.release = func(n int) error {
			if n < 3 {
				return &Error{Status: http.StatusServiceUnavailable}
			}
			return nil
		}
		s, err := Acquire(t.Context(), f, o)
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context()))
		require.Equal(t, []EventKind{EventGranted, EventGranted, EventReleased, EventReleased}, events)
	})
	bubble(t, func(t *testing.T, f *fake, c *clocks) {
		f.release = func(int) error { return &ConnectionError{Err: errors.New("refused")} }
		s, err := Acquire(t.Context(), f, config(c))
		require.NoError(t, err)
		began := time.Now()
		require.ErrorContains(t, s.Release(t.Context()), "release the failover-hold lease")
		require.InDelta(t, 10, time.Since(began).Seconds(), 1)
	})
}

func TestConfigIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"the group":     func(c *Config) { c.Group = "Orders/x" },
		"the instance":  func(c *Config) { c.Instance = "" },
		"the operation": func(c *Config) { c.OperationID = "a\nb" },
		"the TTL":       func(c *Config) { c.TTL = 0 },
	} {
		c := config(&clocks{})
		change(&c)
		_, err := Acquire(t.Context(), newFake(t), c)
		require.ErrorContains(t, err, want)
	}
}

// The longer one has waited, the sooner one asks again.
func TestPausesAreFairAndPolite(t *testing.T) {
	held := &Error{Status: 409, Code: CodeHeld, Holder: &Holder{ExpiresAt: time.Now().Add(time.Hour)}}
	for range 100 {
		young, old := pauseBefore(0, held, Clock{}), pauseBefore(time.Hour, held, Clock{})
		require.Greater(t, young, old)
		require.GreaterOrEqual(t, old, 2*time.Second)
		require.LessOrEqual(t, young, 7*time.Second)
	}
}
