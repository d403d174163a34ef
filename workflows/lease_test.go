package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/workflows"
)

var leaseRef = wire.LeaseRef{Namespace: "db", Group: "orders", Kind: lease.KindMigration, OperationID: "op-1"}

// record is the record of one lease, behind the activities of the real thing.
type record struct {
	*testsuite.TestWorkflowEnvironment
	mu      sync.Mutex
	state   lease.State
	reason  lease.Reason
	expires time.Time
	looks   int
	away    int // calls that fail first
}

func newRecord(t *testing.T) *record {
	var suite testsuite.WorkflowTestSuite
	r := &record{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	r.SetTestTimeout(20 * time.Second)
	var a *kube.Activities
	r.RegisterActivity(a)
	step := func(do func() wire.LeaseState) (wire.LeaseState, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.away > 0 {
			r.away--
			return wire.LeaseState{}, errors.New("the API server is away")
		}
		return do(), nil
	}
	view := func() wire.LeaseState {
		s := wire.LeaseState{State: r.state, Reason: r.reason, ExpiresAt: r.expires}
		if r.state == lease.StateActive {
			s.Lapses = r.expires.Sub(r.Now())
		}
		return s
	}
	r.OnActivity(a.GrantLease, mock.Anything, mock.Anything).Return(func(_ context.Context, in kube.GrantInput) (wire.LeaseAnswer, error) {
		var answer wire.LeaseAnswer
		_, err := step(func() wire.LeaseState {
			answer.Kind = lease.VerdictHeld
			if r.state != lease.StateActive || in.Holder.Instance == "again" {
				r.state, r.expires = lease.StateActive, r.Now().Add(in.TTL)
				answer.Kind, answer.ExpiresAt = lease.VerdictGrant, r.expires
			}
			return view()
		})
		return answer, err
	}).Maybe()
	r.OnActivity(a.ReleaseLease, mock.Anything, mock.Anything).Return(func(_ context.Context, in kube.ReleaseInput) (wire.LeaseAnswer, error) {
		_, err := step(func() wire.LeaseState { r.state = lease.StateReleased; return view() })
		return wire.LeaseAnswer{Verdict: lease.Verdict{Kind: lease.VerdictRelease}}, err
	}).Maybe()
	r.OnActivity(a.LookAtLease, mock.Anything, mock.Anything).Return(func(_ context.Context, ref wire.LeaseRef) (wire.LeaseState, error) {
		return step(func() wire.LeaseState {
			r.looks++
			if r.state == lease.StateActive && r.Now().After(r.expires) {
				r.state = lease.StateExpired
			}
			return view()
		})
	}).Maybe()
	r.OnActivity(a.RevokeLease, mock.Anything, mock.Anything).Return(func(_ context.Context, in kube.RevokeInput) (wire.LeaseState, error) {
		return step(func() wire.LeaseState {
			if r.state == lease.StateActive {
				r.state, r.reason = lease.StateRevoked, in.Reason
			}
			return view()
		})
	}).Maybe()
	return r
}

// renew is a renewal, of which the workflow hears nothing.
func (r *record) renew(ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expires = r.Now().Add(ttl)
}

// update asks at some time, and notes the answer.
func (r *record) update(t *testing.T, at time.Duration, name string, argument any, answer *wire.LeaseAnswer) {
	r.RegisterDelayedCallback(func() {
		r.UpdateWorkflow(name, fmt.Sprint(name, at), &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { t.Errorf("%s is rejected: %v", name, err) },
			OnComplete: func(result any, err error) {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if answer != nil {
					*answer = result.(wire.LeaseAnswer)
				}
			},
		}, argument)
	}, at)
}

func request30(instance string) wire.GrantRequest {
	return wire.GrantRequest{Holder: lease.Holder{OperationID: "op-1", Instance: instance}, TTL: 30 * time.Second}
}

func (r *record) run(t *testing.T, in wire.LeaseInput) wire.LeaseResult {
	t.Helper()
	r.ExecuteWorkflow(workflows.Lease, in)
	require.True(t, r.IsWorkflowCompleted())
	require.NoError(t, r.GetWorkflowError())
	var result wire.LeaseResult
	require.NoError(t, r.GetWorkflowResult(&result))
	return result
}

func TestLeaseExpires(t *testing.T) {
	r := newRecord(t)
	begin := r.Now()
	var answer wire.LeaseAnswer
	r.update(t, 0, wire.UpdateGrant, request30("a"), &answer)
	// It is renewed twice, past the workflow.
	for _, at := range []time.Duration{10 * time.Second, 35 * time.Second} {
		r.RegisterDelayedCallback(func() { r.renew(30 * time.Second) }, at)
	}
	require.Equal(t, wire.LeaseResult{Outcome: "expired"}, r.run(t, wire.LeaseInput{LeaseRef: leaseRef}))
	require.Equal(t, lease.VerdictGrant, answer.Kind)
	require.WithinDuration(t, begin.Add(65*time.Second), r.Now(), time.Second)
	require.LessOrEqual(t, r.looks, 4, "it looks when the lease would lapse, and not before")
}

func TestLeaseIsReleased(t *testing.T) {
	r := newRecord(t)
	r.update(t, 0, wire.UpdateGrant, request30("a"), nil)
	var answer wire.LeaseAnswer
	r.update(t, 10*time.Second, wire.UpdateRelease, wire.ReleaseRequest{}, &answer)
	require.Equal(t, wire.LeaseResult{Outcome: "released"}, r.run(t, wire.LeaseInput{LeaseRef: leaseRef}))
	require.Equal(t, lease.VerdictRelease, answer.Kind)
}

func TestLeaseIsRevoked(t *testing.T) {
	for asked, want := range map[lease.Reason]lease.Reason{
		lease.ReasonTopologyChanged: lease.ReasonTopologyChanged, lease.ReasonOperatorRevoked: lease.ReasonOperatorRevoked,
		"because": lease.ReasonOperatorRevoked, "": lease.ReasonOperatorRevoked,
	} {
		r := newRecord(t)
		r.update(t, 0, wire.UpdateGrant, request30("a"), nil)
		r.RegisterDelayedCallback(func() { r.SignalWorkflow(wire.SignalRevoke, wire.Revocation{Reason: asked}) }, 10*time.Second)
		require.Equal(t, wire.LeaseResult{Outcome: "revoked", Reason: want}, r.run(t, wire.LeaseInput{LeaseRef: leaseRef}))
	}
}

// A run that a signal started has no grant of its own.
func TestLeaseIsAdopted(t *testing.T) {
	r := newRecord(t)
	r.state, r.expires = lease.StateActive, r.Now().Add(20*time.Second)
	require.Equal(t, wire.LeaseResult{Outcome: "expired"}, r.run(t, wire.LeaseInput{LeaseRef: leaseRef, Adopt: true}))

	r = newRecord(t)
	r.state, r.expires = lease.StateActive, r.Now().Add(20*time.Second)
	r.RegisterDelayedCallback(func() { r.SignalWorkflow(wire.SignalRevoke, wire.Revocation{}) }, 0)
	require.Equal(t, wire.LeaseResult{Outcome: "revoked", Reason: lease.ReasonOperatorRevoked}, r.run(t, wire.LeaseInput{LeaseRef: leaseRef}))
}

func TestLeaseIsRefused(t *testing.T) {
	r := newRecord(t)
	r.state, r.expires = lease.StateActive, r.Now().Add(20*time.Second) // another's, in truth
	var answer wire.LeaseAnswer
	r.update(t, 0, wire.UpdateGrant, request30("a"), &answer)
	r.run(t, wire.LeaseInput{LeaseRef: leaseRef})
	require.Equal(t, lease.VerdictHeld, answer.Kind)
}

func TestLeaseWithoutARequest(t *testing.T) {
	require.Equal(t, wire.LeaseResult{Outcome: "no request"}, newRecord(t).run(t, wire.LeaseInput{LeaseRef: leaseRef}))
}

// The API server is away when the lease lapses: the run waits for it.
func TestLeaseWhileTheServerIsAway(t *testing.T) {
	r := newRecord(t)
	r.update(t, 0, wire.UpdateGrant, request30("a"), nil)
	r.RegisterDelayedCallback(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.away = 7
	}, 20*time.Second)
	require.Equal(t, wire.LeaseResult{Outcome: "expired"}, r.run(t, wire.LeaseInput{LeaseRef: leaseRef}))
}

// A lease that is renewed for days does not make one endless history.
func TestLeaseContinuesAsNew(t *testing.T) {
	r := newRecord(t)
	r.state, r.expires = lease.StateActive, r.Now().Add(time.Second)
	for i := range 700 {
		r.RegisterDelayedCallback(func() { r.renew(1500 * time.Millisecond) }, time.Duration(i)*time.Second)
	}
	r.ExecuteWorkflow(workflows.Lease, wire.LeaseInput{LeaseRef: leaseRef, Adopt: true})
	var anew *workflow.ContinueAsNewError
	require.ErrorAs(t, r.GetWorkflowError(), &anew)
}

func TestLeaseIsCancelledByAnOperator(t *testing.T) {
	r := newRecord(t)
	r.update(t, 0, wire.UpdateGrant, request30("a"), nil)
	r.RegisterDelayedCallback(r.CancelWorkflow, 10*time.Second)
	r.ExecuteWorkflow(workflows.Lease, wire.LeaseInput{LeaseRef: leaseRef})
	require.True(t, temporal.IsCanceledError(r.GetWorkflowError()))
	require.Equal(t, lease.StateActive, r.state, "the lease holds without its workflow")
}
