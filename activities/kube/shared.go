package kube

import (
	"context"
	"sync"
)

// shared lets callers share a read that takes long. Nobody gets what was read
// before it asked: a read that has begun is for those who waited for it to
// begin, and who comes later waits for the next one. So it is as live as a
// read of one's own.
type shared[A any] struct {
	read func(ctx context.Context) (A, error)

	mu      sync.Mutex
	running bool
	next    *flight[A]
}

// flight is a read, to be begun or running.
type flight[A any] struct {
	waiting int
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	result  A
	err     error
}

// get reads. The result is others' too and must not be changed.
func (s *shared[A]) get(ctx context.Context) (A, error) {
	f := s.join(ctx)
	select {
	case <-f.done:
		return f.result, f.err
	case <-ctx.Done():
		s.leave(f)
		var none A
		return none, ctx.Err()
	}
}

func (s *shared[A]) join(ctx context.Context) *flight[A] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &flight[A]{done: make(chan struct{})}
		s.next.ctx, s.next.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	f := s.next
	f.waiting++
	if !s.running {
		s.begin()
	}
	return f
}

// leave ends a read that nobody waits for any more.
func (s *shared[A]) leave(f *flight[A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return
	}
	f.cancel()
	if s.next == f {
		s.next = nil
	}
}

// begin begins the next read, if anybody waits for one. It is called with the
// lock.
func (s *shared[A]) begin() {
	f := s.next
	s.next, s.running = nil, f != nil
	if f == nil {
		return
	}
	go func() {
		f.result, f.err = s.read(f.ctx)
		f.cancel()
		close(f.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begin()
	}()
}
