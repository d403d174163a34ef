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
// itself, 3 s before another one may begin.
const (
	electionLease = 8 * time.Second
	electionRenew = 5 * time.Second
	electionRetry = time.Second
)

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
	Log *zap.Logger

	elector atomic.Pointer[leaderelection.LeaderElector]
}

// Leading reports whether this process leads now. One that was paused for
// longer than a term knows that it does not.
func (e *Election) Leading() bool {
	elector := e.elector.Load()
	return elector != nil && elector.IsLeader() && elector.Check(0) == nil
}

// Run takes part until ctx ends, and then lets go at once. lead is called for
// each term; its context ends with the term, and the next one begins only when
// it has returned. Its error ends the run.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
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
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
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

// term is one term of leading.
func (e *Election) term(ctx context.Context, lead func(ctx context.Context) error) error {
	e.Log.Info("leads: looks after leases", zap.String("identity", e.Identity))
	e.label(ctx, `"true"`)
	err := lead(ctx)
	e.label(context.WithoutCancel(ctx), "null")
	e.Log.Info("does not lead any more", zap.String("identity", e.Identity))
	return err
}

// label sets the label of this process's pod, by which the Service of the API
// finds the leader, to a JSON value. null removes it.
func (e *Election) label(ctx context.Context, value string) {
	if e.Pod == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, labelTime)
	defer cancel()
	patch := []byte(`{"metadata":{"labels":{"slipway/leader":` + value + `}}}`)
	if _, err := e.Cluster.core.Pods(e.Namespace).Patch(ctx, e.Pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		e.Log.Warn("cannot label the pod, so the Service may not find the leader", zap.String("pod", e.Pod), zap.Error(err))
	}
}
