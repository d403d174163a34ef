package kube

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSharedReadsAreNeverOlderThanTheirCaller(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	begins, finish := make(chan struct{}), make(chan struct{})
	s := &shared[int64]{read: func(ctx context.Context) (int64, error) {
		n := begun.Add(1)
		begins <- struct{}{}
		<-finish
		return n, nil
	}}
	results := make(chan int64, 3)
	get := func() {
		n, err := s.get(t.Context())
		if err != nil {
			t.Error(err)
		}
		results <- n
	}
	go get()
	<-begins
	go get() // both came after the first read had begun
	go get()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.next != nil && s.next.waiting == 2
	}, 10*time.Second, time.Millisecond)
	finish <- struct{}{}
	require.EqualValues(t, 1, <-results)
	<-begins
	finish <- struct{}{}
	require.EqualValues(t, 2, <-results)
	require.EqualValues(t, 2, <-results)
}

func TestSharedReadEndsWithItsLastCaller(t *testing.T) {
	t.Parallel()
	begins, ended := make(chan struct{}, 2), make(chan error, 2)
	s := &shared[int]{read: func(ctx context.Context) (int, error) {
		begins <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	}}
	first, leaveFirst := context.WithCancel(t.Context())
	second, leaveSecond := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	get := func(ctx context.Context) {
		_, err := s.get(ctx)
		errs <- err
	}
	go get(first)
	<-begins
	go get(second)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.next != nil
	}, 10*time.Second, time.Millisecond)
	leaveFirst()
	require.ErrorIs(t, <-errs, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
	<-begins // that of the second, which nobody cancelled
	leaveSecond()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.ErrorIs(t, <-errs, context.Canceled)
}
