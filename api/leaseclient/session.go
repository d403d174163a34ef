package leaseclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"slipway.dev/slipway/schema/lease"
)

// API is what a Session calls; *Client is one.
type API interface {
	Observe(ctx context.Context, group string) (lease.Observation, error)
	Grant(ctx context.Context, group string, r Request) (Grant, error)
	Renew(ctx context.Context, l Lease, ttl int64) (Renewal, error)
	Release(ctx context.Context, l Lease) error
}

// Config of a Session.
type Config struct {
	Group    string
	Instance string
	// OperationID is that of this run and of no other: a new UUID.
	OperationID string
	// TTL is brought into 5 s to 120 s, whole seconds, as the API does.
	TTL time.Duration
	// Wait is how long Acquire waits for its turn; 0: the first answer decides.
	// An API that does not answer is tried for 15 seconds in any case.
	Wait time.Duration
	// NoHold takes the migration lease alone: planned operations may move the
	// primary meanwhile.
	NoHold bool
	// Report, when set, is told what happens, one event at a time. It must
	// return quickly.
	Report func(Event)
	// Clock is replaced by tests.
	Clock Clock
}

// Check says what of the configuration the API would refuse.
func (c Config) Check() error {
	switch {
	case !lease.ValidName(c.Group):
		return errors.New("the group is not the name of a group")
	case !lease.ValidName(c.Instance):
		return errors.New("the instance is not the name of a database")
	case !lease.ValidOperation(c.OperationID):
		return errors.New("the operation has 1 to 128 bytes without control characters")
	case c.TTL <= 0 || c.Wait < 0:
		return errors.New("the TTL has to be above zero, and the wait not below")
	}
	return nil
}

// EventKind says what an Event is.
type EventKind string

// The kinds of events. Which members are set beside Lease is said here.
const (
	EventWaiting     EventKind = "waiting"     // Err: who or what for; Again
	EventGranted     EventKind = "granted"     // ExpiresAt, Generation
	EventRenewed     EventKind = "renewed"     // ExpiresAt, Generation
	EventUnconfirmed EventKind = "unconfirmed" // Err; Again; ExpiresAt of the last renewal
	EventLost        EventKind = "lost"        // Err, a *LostError
	EventReleased    EventKind = "released"
	EventUnreleased  EventKind = "unreleased" // Err; ExpiresAt, when it ends by itself
)

// Event is something that happened to a lease.
type Event struct {
	Kind       EventKind
	Lease      lease.Kind
	ExpiresAt  time.Time
	Generation int64
	// Again is when it is tried again, from now.
	Again time.Duration
	Err   error
}

// Session holds the leases of one operation. It is made by Acquire and ended by
// Release.
type Session struct {
	api    API
	config Config
	ttl    time.Duration // clamped
	done   chan struct{} // closed when lost

	// renewing is cancelled by Release and by a loss.
	renewing context.Context
	stop     context.CancelFunc
	renewals sync.WaitGroup

	reporting sync.Mutex

	releasing sync.Once

	mu     sync.Mutex
	leases []*held // in the order of the grants; some once Acquire has returned
	lost   *LostError
}

// held is a lease of a Session.
type held struct {
	Lease
	generation int64
	expiresAt  time.Time
	deadline   Deadline
	trouble    error // why the last renewal was not confirmed
}

func newSession(api API, config Config) *Session {
	s := &Session{
		api: api, config: config, ttl: lease.ClampTTL(int64(config.TTL / time.Second)), done: make(chan struct{}),
	}
	s.renewing, s.stop = context.WithCancel(context.Background())
	return s
}

// Done is closed when work under the leases has to end: a lease was lost, or
// the deadline minus Lead has come.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is the *LostError after Done was closed, and nil before.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		return nil
	}
	return s.lost
}

// TTL is the time to live of the leases, as the API clamps it.
func (s *Session) TTL() time.Duration { return s.ttl }

// Deadline is when authority ends if nothing more is confirmed. It moves with
// every renewal, and never after a loss.
func (s *Session) Deadline() Deadline {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline()
}

func (s *Session) deadline() Deadline {
	earliest := s.leases[0].deadline
	for _, h := range s.leases[1:] {
		earliest = earliest.and(h.deadline)
	}
	return earliest
}

func (s *Session) report(e Event) {
	if s.config.Report == nil {
		return
	}
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.config.Report(e)
}

// begin takes a grant in, and renews it from then on. sent is the boot-time
// clock when it was asked for.
func (s *Session) begin(kind lease.Kind, sent time.Duration, g Grant) error {
	h := &held{
		Lease:      Lease{Group: s.config.Group, Kind: kind, OperationID: s.config.OperationID, Token: g.Token},
		generation: g.TopologyGeneration, expiresAt: g.ExpiresAt,
		deadline: Deadline{Boot: sent + s.ttl, Wall: g.ExpiresAt},
	}
	s.mu.Lock()
	first := len(s.leases) == 0
	s.leases = append(s.leases, h)
	moved := s.leases[0].generation != g.TopologyGeneration
	s.mu.Unlock()
	s.report(Event{Kind: EventGranted, Lease: kind, ExpiresAt: g.ExpiresAt, Generation: g.TopologyGeneration})
	switch {
	case moved:
		s.lose(&LostError{Kind: kind, Cause: CauseGeneration, Err: generations(s.leases[0].generation, g.TopologyGeneration)})
	case h.deadline.Left(s.config.Clock) <= Lead(s.ttl):
		s.lose(&LostError{Kind: kind, Cause: CauseDeadline, Err: errors.New("the grant came too late, or the clock of this machine is ahead of the API's")})
	}
	if s.Err() != nil {
		return s.Err()
	}
	s.renewals.Go(func() { s.renew(h) })
	if first {
		s.renewals.Go(s.watch)
	}
	return nil
}

func generations(granted, now int64) error {
	return fmt.Errorf("generation %d, granted at %d", now, granted)
}

// lose ends the authority, once.
func (s *Session) lose(lost *LostError) {
	s.mu.Lock()
	if s.lost != nil || s.renewing.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.lost = lost
	s.mu.Unlock()
	s.stop()
	close(s.done)
	s.report(Event{Kind: EventLost, Lease: lost.Kind, Err: lost})
}

// tick is the longest sleep of watch: timers of a process stand still while the
// machine sleeps.
const tick = 250 * time.Millisecond

// watch loses the leases when their deadline is near.
func (s *Session) watch() {
	for {
		left := s.Deadline().Left(s.config.Clock) - Lead(s.ttl)
		if left <= 0 {
			s.expire()
			return
		}
		if !sleep(s.renewing, min(left, tick)) {
			return
		}
	}
}

// expire loses the lease whose deadline is the earliest.
func (s *Session) expire() {
	s.mu.Lock()
	first := s.leases[0]
	for _, h := range s.leases[1:] {
		if h.deadline.Left(s.config.Clock) < first.deadline.Left(s.config.Clock) {
			first = h
		}
	}
	lost := &LostError{Kind: first.Kind, Cause: CauseDeadline, Err: first.trouble}
	s.mu.Unlock()
	s.lose(lost)
}

// renew renews one lease until it is lost or released.
func (s *Session) renew(h *held) {
	pause := s.interval()
	for sleep(s.renewing, pause) {
		ctx, cancel := context.WithTimeout(s.renewing, min(s.ttl/3, requestLimit))
		s.mu.Lock()
		if h.trouble == nil {
			h.trouble = errUnanswered
		}
		s.mu.Unlock()
		began, sent := time.Now(), s.config.Clock.boot()
		renewal, err := s.api.Renew(ctx, h.Lease, int64(s.ttl/time.Second))
		cancel()
		switch cause := lossOf(err); {
		case s.renewing.Err() != nil:
			return
		case err == nil && renewal.TopologyGeneration != h.generation:
			s.lose(&LostError{Kind: h.Kind, Cause: CauseGeneration, Err: generations(h.generation, renewal.TopologyGeneration)})
			return
		case err == nil:
			if !s.confirm(h, sent, renewal) {
				s.expire()
				return
			}
			s.report(Event{Kind: EventRenewed, Lease: h.Kind, ExpiresAt: renewal.ExpiresAt, Generation: renewal.TopologyGeneration})
			pause = s.interval() - time.Since(began)
		case cause != "":
			s.lose(&LostError{Kind: h.Kind, Cause: cause, Err: err})
			return
		default:
			pause = max(jitter(s.ttl/20), retryAfter(err))
			s.mu.Lock()
			h.trouble = err
			s.mu.Unlock()
			s.report(Event{Kind: EventUnconfirmed, Lease: h.Kind, Err: err, Again: pause, ExpiresAt: h.expiresAt})
		}
	}
}

// errUnanswered is the trouble of a lease while its renewal is on its way.
var errUnanswered = errors.New("the renewal has not been answered")

// confirm moves the deadline of a lease, unless that of the session has come
// while the answer was on its way.
func (s *Session) confirm(h *held, sent time.Duration, r Renewal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadline().Left(s.config.Clock) <= Lead(s.ttl) {
		return false
	}
	h.deadline, h.expiresAt, h.trouble = Deadline{Boot: sent + s.ttl, Wall: r.ExpiresAt}, r.ExpiresAt, nil
	return true
}

// requestLimit is how long a request may take: as long as the API lets it.
const requestLimit = 10 * time.Second

// interval is from one renewal to the next: a third of the TTL, or a little
// less, so that the clients of a group do not ask all at once.
func (s *Session) interval() time.Duration {
	third := s.ttl / 3
	return third - rand.N(third/10)
}

// jitter is d, give or take half of it.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

func retryAfter(err error) time.Duration {
	if refused, ok := errors.AsType[*Error](err); ok {
		return min(refused.RetryAfter, 2*time.Second)
	}
	return 0
}

// Release ends the renewals and gives the leases back, the hold first. It tries
// for 10 seconds, or until the lease has ended by itself; a lease that it could
// not give back is part of the error.
//
// Only the first call does anything.
func (s *Session) Release(ctx context.Context) (err error) {
	s.releasing.Do(func() { err = s.releaseAll(ctx) })
	return err
}

func (s *Session) releaseAll(ctx context.Context) error {
	s.stop()
	s.renewals.Wait()
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	var errs []error
	for _, h := range slices.Backward(s.leases) {
		if err := s.release(ctx, h); err != nil {
			errs = append(errs, fmt.Errorf("release the %s lease: %w", h.Kind, err))
			s.report(Event{Kind: EventUnreleased, Lease: h.Kind, ExpiresAt: h.expiresAt, Err: err})
			continue
		}
		s.report(Event{Kind: EventReleased, Lease: h.Kind})
	}
	return errors.Join(errs...)
}

func (s *Session) release(ctx context.Context, h *held) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, requestLimit/3)
		err := s.api.Release(attempt, h.Lease)
		cancel()
		if err == nil || lossOf(err) != "" || h.deadline.Left(s.config.Clock) <= 0 {
			return err
		}
		if !sleep(ctx, jitter(500*time.Millisecond)) {
			return err
		}
	}
}

// sleep says whether the context lasted as long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
