package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaderLease is the name of the Lease object of leader election. It is none of
// a deployment, and nobody should delete it.
const leaderLease = "slipway-leader"

// The times of leader election: a leader that could not renew for 5 s stops by
// itself, 3 s before another one may begin. Others look 0.3 to 0.7 s after they
// did last (client-go waits up to 2.2 times as long), so that where a leader lets
// go there is one again before a client tries again.
const (
	electionLease = 8 * time.Second
	electionRenew = 5 * time.Second
	electionRetry = 300 * time.Millisecond
)

// handOverLook is how often one that let go looks whether another one leads.
const handOverLook = 100 * time.Millisecond

// labelTime bounds the labelling of the leader's pod.
const labelTime = 5 * time.Second

// Election decides which of several processes looks after leases.
type Election struct {
	Cluster *Cluster
	// Namespace is where the Lease of the election, and the pod, are.
	Namespace string
	// Identity is this process's, unlike any other's.
	Identity string
	// Pod is the pod of this process, which carries the label slipway/leader
	// while it leads; empty outside of Kubernetes.
	Pod string
	// Resign is closed when the process is about to stop; nil: never. See Run.
	Resign <-chan struct{}
	Log    *zap.Logger

	elector atomic.Pointer[leaderelection.LeaderElector]
	// wants is what the label of the pod should say.
	wants   atomic.Bool
	changed chan struct{}
}

// Leading reports whether this process leads now. One that was paused for
// longer than a term knows that it does not.
func (e *Election) Leading() bool {
	elector := e.elector.Load()
	return elector != nil && elector.IsLeader() && elector.Check(0) == nil
}

// Run takes part until ctx ends or it resigns, and then lets go at once. lead is
// called for each term; its context ends with the term, and the next one begins
// only when it has returned. Its error ends the run.
//
// Who resigns keeps the label until another one leads, or ctx ends: the Service
// has somebody then who says that it is not the leader and when to try again,
// instead of nobody.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	e.changed = make(chan struct{}, 1)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	labels := make(chan struct{})
	labelling, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(labels)
		e.keepLabel(labelling)
	}()
	defer func() { stop(); <-labels }()
	whole := ctx
	ctx, resign := context.WithCancel(ctx)
	defer resign()
	go func() {
		select {
		case <-e.Resign:
			resign()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		var t terms
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: leaderLease},
				Client:     e.Cluster.leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
			},
			LeaseDuration: electionLease, RenewDeadline: electionRenew, RetryPeriod: electionRetry,
			ReleaseOnCancel: true,
			Name:            leaderLease,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					t.begin(func() {
						if err := e.term(ctx, lead); err != nil {
							fail(err)
						}
					})
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fmt.Errorf("leader election: %w", err)
		}
		e.elector.Store(elector)
		elector.Run(ctx)
		t.end()
	}
	if e.resigned() && e.wants.Load() {
		e.handOver(whole)
	}
	if err := context.Cause(whole); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (e *Election) resigned() bool {
	select {
	case <-e.Resign:
		return true
	default:
		return false
	}
}

// handOver waits until another one leads, or ctx ends.
func (e *Election) handOver(ctx context.Context) {
	look := time.NewTicker(handOverLook)
	defer look.Stop()
	for {
		lease, err := e.Cluster.leases.Leases(e.Namespace).Get(ctx, leaderLease, metav1.GetOptions{})
		if err == nil {
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" && *holder != e.Identity {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// terms is the one term of an elector, which begins it in the background, maybe
// only after it has lost the election again.
type terms struct {
	mu      sync.Mutex
	over    bool
	running sync.WaitGroup
}

func (t *terms) begin(lead func()) {
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	t.running.Add(1)
	t.mu.Unlock()
	defer t.running.Done()
	lead()
}

// end waits for the end of the term, and lets none begin any more.
func (t *terms) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.running.Wait()
}

// term is one term of leading. The label goes with the term's context, unless it
// resigned: what has been begun may take longer to end.
func (e *Election) term(ctx context.Context, lead func(ctx context.Context) error) error {
	e.Log.Info("leads: looks after leases", zap.String("identity", e.Identity))
	e.want(true)
	over := func() {
		if !e.resigned() {
			e.want(false)
		}
	}
	lost := context.AfterFunc(ctx, over)
	defer func() {
		if lost() {
			over()
		}
	}()
	err := lead(ctx)
	e.Log.Info("does not lead any more", zap.String("identity", e.Identity))
	return err
}

func (e *Election) want(label bool) {
	e.wants.Store(label)
	select {
	case e.changed <- struct{}{}:
	default: // it looks soon anyway
	}
}

// keepLabel keeps the label of the pod as it should be until ctx ends. At the
// start it may have that of a process that was killed in the same pod, and what
// ends a term is often an API server that is away: then it is tried again.
func (e *Election) keepLabel(ctx context.Context) {
	if e.Pod == "" {
		return
	}
	retry := time.NewTicker(electionRetry)
	defer retry.Stop()
	known, is := false, false
	var failed error
	for {
		if want := e.wants.Load(); !known || is != want {
			err := e.label(context.WithoutCancel(ctx), want)
			known, is = err == nil, want
			if err != nil && failed == nil { // not each time
				e.Log.Warn("cannot label the pod, so the Service may not find the leader", zap.String("pod", e.Pod), zap.Error(err))
			}
			failed = err
		}
		select {
		case <-ctx.Done():
			if is || !known {
				_ = e.label(context.WithoutCancel(ctx), false) // nobody is left to try again
			}
			return
		case <-e.changed:
		case <-retry.C:
		}
	}
}

// label sets or removes the label of this process's pod, by which the Service of
// the API finds the leader.
func (e *Election) label(ctx context.Context, leads bool) error {
	ctx, cancel := context.WithTimeout(ctx, labelTime)
	defer cancel()
	value := "null"
	if leads {
		value = `"true"`
	}
	patch := []byte(`{"metadata":{"labels":{"slipway/leader":` + value + `}}}`)
	_, err := e.Cluster.core.Pods(e.Namespace).Patch(ctx, e.Pod, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
