package leaseclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"slipway.dev/slipway/schema/lease"
)

// Acquire takes the migration lease and then the hold, and keeps renewing both.
// It fails with the *Error of the answer that refused, a *ConnectionError where
// there was none, a *LostError where the first was lost before the second was
// granted, or what the context ended with. It has released then what it had,
// but for a grant whose answer got lost: that one ends by itself.
func Acquire(ctx context.Context, api API, config Config) (*Session, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	s := newSession(api, config)
	began := time.Now()
	kinds := []lease.Kind{lease.KindMigration, lease.KindHold}
	if config.NoHold {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		if err := s.take(ctx, kind, began); err != nil {
			_ = s.Release(context.WithoutCancel(ctx)) // reported; the leases end by themselves
			return nil, err
		}
	}
	return s, nil
}

// awayPatience is how long an API that does not answer is tried: another
// replica leads after about 10 seconds.
const awayPatience = 15 * time.Second

// take asks for a lease until it is granted or the time is over.
func (s *Session) take(ctx context.Context, kind lease.Kind, began time.Time) error {
	ours := false // a request got no answer, and may have been granted
	for {
		if err := s.Err(); err != nil {
			return err
		}
		sent := s.config.Clock.boot()
		grant, asked, err := s.ask(ctx, kind, ours, began)
		if err == nil {
			return s.begin(kind, sent, grant)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var patience time.Duration
		refused, answered := errors.AsType[*Error](err)
		_, broken := errors.AsType[*ConnectionError](err)
		switch {
		case broken || answered && refused.Away():
			ours = ours || broken && asked
			patience = max(s.config.Wait, awayPatience)
		case answered && (refused.Code == CodeHeld || refused.Status == http.StatusLocked):
			patience = s.config.Wait
		default:
			return err
		}
		left := patience - time.Since(began)
		if left <= 0 {
			return err
		}
		pause := min(pauseBefore(time.Since(began), refused, s.config.Clock), left)
		s.report(Event{Kind: EventWaiting, Lease: kind, Err: err, Again: pause})
		s.rest(ctx, pause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// rest sleeps, but not longer than the leases that are held already last.
func (s *Session) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.done:
	case <-ctx.Done():
	}
}

// ask asks once. A migration that the operation holds already is another run's,
// unless ours says that it may be this one's.
func (s *Session) ask(ctx context.Context, kind lease.Kind, ours bool, began time.Time) (grant Grant, asked bool, err error) {
	limit := min(s.ttl, requestLimit)
	if s.config.Wait > 0 {
		limit = min(limit, max(time.Second, s.config.Wait-time.Since(began)))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	careful := kind == lease.KindMigration && !ours
	if careful {
		observed, err := s.api.Observe(ctx, s.config.Group)
		if err != nil {
			return Grant{}, false, err
		}
		for _, v := range observed.Leases {
			if v.Kind == kind && v.OperationID == s.config.OperationID {
				return Grant{}, false, &Error{Status: http.StatusConflict, Code: CodeHeld, Holder: &Holder{v.OperationID, v.Instance, v.ExpiresAt}}
			}
		}
	}
	grant, err = s.api.Grant(ctx, s.config.Group, Request{
		Kind: kind, OperationID: s.config.OperationID, Instance: s.config.Instance, TTL: int64(s.ttl / time.Second),
	})
	if err == nil && careful && !grant.New {
		return Grant{}, true, fmt.Errorf("another process runs the operation %q at the same time: give each run an operation of its own", s.config.OperationID)
	}
	return grant, true, err
}

// pauseBefore is how long to wait before the next question: 5 seconds at
// first, and less the longer one has waited, down to 2, so that who came first
// more likely finds the lease free; shortly after the holder's expiry, if that
// is sooner; never less than a second.
func pauseBefore(waited time.Duration, refused *Error, clock Clock) time.Duration {
	const first, last, over = 5 * time.Second, 2 * time.Second, 2 * time.Minute
	pause := first - time.Duration(float64(first-last)*min(1, waited.Seconds()/over.Seconds()))
	spread := pause / 4
	if refused != nil && refused.Code != CodeHeld {
		pause = max(time.Second, refused.RetryAfter)
	}
	if refused != nil && refused.Holder != nil {
		pause = min(pause, max(time.Second, refused.Holder.ExpiresAt.Sub(clock.wall())))
	}
	return pause + rand.N(spread)
}
