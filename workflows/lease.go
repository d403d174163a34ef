package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// looksPerRun is after how many looks at a lease its run continues as new: a
// lease may be renewed for days.
const looksPerRun = 500

// Lease is the life of a lease, from its grant to its end, which is its result.
// The API server has the record, and renewals are written there past this
// workflow: when the lease would have lapsed, it looks and sleeps on. A lease
// holds and ends in time without it too; it is where an operator finds the
// lease, and what writes down that it expired.
func Lease(ctx workflow.Context, in wire.LeaseInput) (wire.LeaseResult, error) {
	l := &leaseLife{ref: in.LeaseRef, wake: in.Adopt}
	if err := l.setup(ctx); err != nil {
		return wire.LeaseResult{}, err
	}
	return l.run(ctx)
}

type leaseLife struct {
	ref wire.LeaseRef
	// wake: something happened to the lease, or should.
	wake bool
	// revoke is the reason of a revocation that somebody asked for.
	revoke lease.Reason
}

func (l *leaseLife) setup(ctx workflow.Context) error {
	l.details(ctx, "waits for its request")
	if err := workflow.SetUpdateHandler(ctx, wire.UpdateGrant, l.grant); err != nil {
		return err
	}
	if err := workflow.SetUpdateHandler(ctx, wire.UpdateRelease, l.release); err != nil {
		return err
	}
	revocations := workflow.GetSignalChannel(ctx, wire.SignalRevoke)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var asked wire.Revocation
			revocations.Receive(ctx, &asked)
			l.revoke, l.wake = lease.RevokeReason(string(asked.Reason)), true
		}
	})
	return nil
}

// run looks after the lease until it has ended, whoever ended it.
func (l *leaseLife) run(ctx workflow.Context) (wire.LeaseResult, error) {
	asked, err := awaitWithin(ctx, workflow.AwaitOptions{
		Timeout:      firstUpdate,
		TimerOptions: workflow.TimerOptions{Summary: "nobody asks for anything"},
	}, func() bool { return l.wake })
	if err != nil {
		return wire.LeaseResult{}, err
	}
	if !asked {
		return wire.LeaseResult{Outcome: "no request"}, nil
	}
	for looks := 1; ; looks++ {
		if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
			return wire.LeaseResult{}, err
		}
		state, err := l.look(ctx)
		switch {
		case err != nil:
			return wire.LeaseResult{}, err
		case l.wake || !workflow.AllHandlersFinished(ctx):
			continue // something happened since
		case state.State != lease.StateActive:
			return l.ended(ctx, state), nil
		case looks >= looksPerRun || workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return wire.LeaseResult{}, workflow.NewContinueAsNewError(ctx, wire.WorkflowLease, wire.LeaseInput{LeaseRef: l.ref, Adopt: true})
		}
		l.details(ctx, "is held until "+state.ExpiresAt.Format(time.RFC3339)+" if nobody renews it")
		_, err = awaitWithin(ctx, workflow.AwaitOptions{
			Timeout:      state.Lapses + time.Millisecond, // at its expiry it still holds
			TimerOptions: workflow.TimerOptions{Summary: "the lease lapses, if nobody renews it"},
		}, func() bool { return l.wake })
		if err != nil {
			return wire.LeaseResult{}, err
		}
	}
}

// awaitWithin ends its timer with the wait: one that is left behind wakes the
// workflow for nothing.
func awaitWithin(ctx workflow.Context, o workflow.AwaitOptions, done func() bool) (bool, error) {
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	return workflow.AwaitWithOptions(ctx, o, done)
}

// look finds out how the lease is, after it has revoked it where that is asked.
func (l *leaseLife) look(ctx workflow.Context) (wire.LeaseState, error) {
	var a *kube.Activities
	var state wire.LeaseState
	l.wake = false
	if reason := l.revoke; reason != "" {
		l.revoke = ""
		l.details(ctx, "is being revoked: "+string(reason))
		in := kube.RevokeInput{LeaseRef: l.ref, Reason: reason}
		err := workflow.ExecuteActivity(tending(ctx, "revoke the lease: "+string(reason)), a.RevokeLease, in).Get(ctx, &state)
		return state, err
	}
	err := workflow.ExecuteActivity(tending(ctx, "look how the lease is"), a.LookAtLease, l.ref).Get(ctx, &state)
	return state, err
}

func (l *leaseLife) ended(ctx workflow.Context, state wire.LeaseState) wire.LeaseResult {
	result := wire.LeaseResult{Outcome: string(state.State), Reason: state.Reason}
	if result.Outcome == "" {
		result.Outcome = "none"
	}
	switch state.State {
	case lease.StateRevoked:
		l.details(ctx, "was revoked: "+string(state.Reason))
	case lease.StateReleased, lease.StateExpired:
		l.details(ctx, "has "+map[lease.State]string{lease.StateReleased: "been released", lease.StateExpired: "expired"}[state.State])
	default:
		l.details(ctx, "is not there")
	}
	return result
}

// grant is the update.
func (l *leaseLife) grant(ctx workflow.Context, request wire.GrantRequest) (wire.LeaseAnswer, error) {
	var a *kube.Activities
	var answer wire.LeaseAnswer
	in := kube.GrantInput{LeaseRef: l.ref, GrantRequest: request}
	err := workflow.ExecuteLocalActivity(onRequest(ctx, "grant the lease"), a.GrantLease, in).Get(ctx, &answer)
	l.wake = true
	if err != nil {
		return answer, forCaller(err)
	}
	return answer, nil
}

// release is the update.
func (l *leaseLife) release(ctx workflow.Context, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	var a *kube.Activities
	var answer wire.LeaseAnswer
	in := kube.ReleaseInput{LeaseRef: l.ref, ReleaseRequest: request}
	err := workflow.ExecuteLocalActivity(onRequest(ctx, "release the lease"), a.ReleaseLease, in).Get(ctx, &answer)
	l.wake = true
	if err != nil {
		return answer, forCaller(err)
	}
	return answer, nil
}

func (l *leaseLife) details(ctx workflow.Context, what string) {
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("The %s lease of operation `%s` on `%s/%s` %s.",
		l.ref.Kind, l.ref.OperationID, l.ref.Namespace, l.ref.Group, what))
}
