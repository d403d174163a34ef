package deployer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/schema/deployment"
)

// errLapsed: the database took no renewal for Limits.Lapse.
var errLapsed = errors.New("the fence was not renewed in time")

// fence is the right to run the deployer of a build.
type fence struct {
	journal Journal
	ref     deployment.Ref
	id      uuid.UUID
	limits  Limits

	// sent is when the last request that succeeded was sent, in nanoseconds
	// of bootTime. The database counts from a later moment.
	sent atomic.Int64

	once sync.Once
	lost chan struct{} // closed when the deployer must not run any more
	err  error         // why, once lost is closed: deployment.ErrFenced or errLapsed
}

func newFence(journal Journal, ref deployment.Ref, limits Limits) *fence {
	return &fence{journal: journal, ref: ref, id: uuid.New(), limits: limits, lost: make(chan struct{})}
}

// acquire tries to get the fence until the database answers, Limits.Acquire is
// over, or ctx ends. It returns the length of the log so far.
func (f *fence) acquire(ctx context.Context) (logged int64, err error) {
	// A call that is under way when ctx ends may succeed all the same: it is
	// waited for, so that the fence does not stay behind unknown.
	calls := context.WithoutCancel(ctx)
	trying, stop := context.WithTimeout(ctx, f.limits.Acquire)
	defer stop()
	for {
		err = f.attempt(calls, func(ctx context.Context) (err error) {
			logged, err = f.journal.AcquireFence(ctx, f.ref, f.id)
			return err
		})
		if err == nil || errors.Is(err, deployment.ErrFenced) || errors.Is(err, deployment.ErrAlreadyRan) {
			return logged, err
		}
		if pause(trying, retryDelay) != nil {
			return 0, fmt.Errorf("acquire the fence of %s: %w", f.ref, err)
		}
	}
}

// keep renews the fence until ctx ends or the fence is lost.
func (f *fence) keep(ctx context.Context) {
	// A renewal can hang. Time is watched by somebody who cannot.
	go f.watch(ctx)
	wait := f.limits.Renew
	for {
		if pause(ctx, wait) != nil || !f.held() {
			return
		}
		err := f.attempt(ctx, func(ctx context.Context) error { return f.journal.RenewFence(ctx, f.ref, f.id) })
		wait = f.limits.Renew
		switch {
		case errors.Is(err, deployment.ErrFenced):
			f.lose(deployment.ErrFenced)
		case err != nil:
			wait = min(wait, retryDelay)
		}
	}
}

func (f *fence) watch(ctx context.Context) {
	for pause(ctx, f.limits.Lapse/60) == nil && f.held() {
		if bootTime()-time.Duration(f.sent.Load()) >= f.limits.Lapse {
			f.lose(errLapsed)
		}
	}
}

// attempt makes a call whose success holds the fence.
func (f *fence) attempt(ctx context.Context, do func(context.Context) error) error {
	sent := bootTime()
	err := f.call(ctx, do)
	if err == nil {
		f.sent.Store(int64(sent))
	}
	return err
}

// call makes a call of the journal that takes at most Limits.Call.
func (f *fence) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, f.limits.Call)
	defer cancel()
	return do(ctx)
}

func (f *fence) lose(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.lost)
	})
}

func (f *fence) held() bool {
	select {
	case <-f.lost:
		return false
	default:
		return true
	}
}

// bootTime is the time since the machine booted, sleep included, which the
// timers of Go leave out.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("CLOCK_BOOTTIME: %v", err)) // the clock is part of Linux
	}
	return time.Duration(ts.Nano())
}
