package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// An operation that was handed over keeps its group reserved until the operator
// reports it, which is looked for every reportEvery, reportLooks times.
const (
	reportEvery = 5 * time.Second
	reportLooks = 12 // a minute
)

// PlannedOperation carries one planned operation of a group: it reserves the
// group, waits for the failover holds to end, and hands over to the operator.
// The group has the reservation. A run that was terminated leaves it standing,
// and the same request again takes it up; one that is cancelled withdraws it.
func PlannedOperation(ctx workflow.Context, in wire.PlannedInput) (wire.PlannedResult, error) {
	p := &planned{in: in}
	if in.Adopt != nil {
		p.request, p.decided = in.Adopt, true
		p.state = wire.PlannedState{Phase: lease.PhaseDeferred}
	}
	if err := p.setup(ctx); err != nil {
		return wire.PlannedResult{}, err
	}
	return p.run(ctx)
}

type planned struct {
	in      wire.PlannedInput
	request *wire.PlannedRequest // nil before the first
	decided bool                 // and has its first answer or refusal
	refusal error
	state   wire.PlannedState
}

func (p *planned) setup(ctx workflow.Context) error {
	workflow.SetCurrentDetails(ctx, "Planned operation on `"+p.in.Namespace+"/"+p.in.Group+"`: waits for its request.")
	return workflow.SetUpdateHandlerWithOptions(ctx, wire.UpdateRequest, p.ask, workflow.UpdateHandlerOptions{
		Validator: func(request wire.PlannedRequest) error {
			if err := request.Check(); err != nil {
				return temporal.NewNonRetryableApplicationError(err.Error(), wire.ErrorInvalidOperation, nil)
			}
			return nil
		},
	})
}

// ask is the update. The first request of a run is the run's. The same again is
// answered with how it is now, so that a caller can follow it.
func (p *planned) ask(ctx workflow.Context, request wire.PlannedRequest) (wire.PlannedAnswer, error) {
	// An operator may cancel meanwhile; what was decided is wanted all the same.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	switch {
	case p.request == nil:
		p.request = &request
		p.details(ctx, "is being reserved")
		var a *kube.Activities
		err := workflow.ExecuteLocalActivity(onRequest(disconnected, "reserve the group"), a.ReservePlanned, p.operation()).Get(disconnected, &p.state)
		if err != nil {
			p.refusal = forCaller(err)
		}
		p.decided = true
	case *p.request != request:
		return wire.PlannedAnswer{
			Status: wire.PlannedRefused, Reason: lease.ReasonConcurrentOperation,
			Message: fmt.Sprintf("%s has the group", operationName(*p.request)),
		}, nil
	default:
		if err := workflow.Await(disconnected, func() bool { return p.decided }); err != nil {
			return wire.PlannedAnswer{}, forCaller(err)
		}
	}
	if p.refusal != nil {
		return wire.PlannedAnswer{}, p.refusal
	}
	return p.state.Answer(), nil
}

func (p *planned) run(ctx workflow.Context) (wire.PlannedResult, error) {
	asked, err := workflow.AwaitWithTimeout(ctx, firstUpdate, func() bool { return p.request != nil })
	if p.request == nil {
		if err == nil && !asked {
			return wire.PlannedResult{Outcome: "no request"}, nil
		}
		return wire.PlannedResult{}, err
	}
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	if err := workflow.Await(disconnected, func() bool { return p.decided }); err != nil {
		return wire.PlannedResult{}, err
	}
	result, err := p.carry(ctx, disconnected)
	if err := workflow.Await(disconnected, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return result, err
	}
	return result, err
}

// carry takes the operation from its reservation to its end. Only the wait can
// be cancelled.
func (p *planned) carry(ctx, disconnected workflow.Context) (wire.PlannedResult, error) {
	if p.refusal != nil {
		// Nobody knows whether the group is reserved. The caller was told that
		// nothing happened, so nothing may; an annotation asks again.
		if err := p.withdraw(disconnected, wire.ErrorUnavailable, true); err != nil {
			return wire.PlannedResult{}, err
		}
	}
	for looks := 1; p.state.Phase == lease.PhaseDeferred; looks++ {
		if ctx.Err() == nil && (looks > looksPerRun || workflow.GetInfo(ctx).GetContinueAsNewSuggested()) {
			if err := workflow.Await(disconnected, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
				return wire.PlannedResult{}, err
			}
			in := p.in
			in.Adopt = p.request
			return wire.PlannedResult{}, workflow.NewContinueAsNewError(ctx, wire.WorkflowPlanned, in)
		}
		if err := p.wait(ctx); err != nil {
			if ctx.Err() == nil {
				return wire.PlannedResult{}, err
			}
			if err := p.withdraw(disconnected, "Cancelled", false); err != nil {
				return wire.PlannedResult{}, err
			}
			if p.state.Phase != lease.PhasePending {
				return p.ended(disconnected, "withdrawn"), err
			}
		}
	}
	if p.state.Phase == lease.PhasePending && p.request.Kind != lease.PlannedFailover {
		return p.handOver(disconnected)
	}
	return p.ended(disconnected, p.state.Answer().Status), nil
}

// wait sleeps until the next look, and looks.
func (p *planned) wait(ctx workflow.Context) error {
	what := "waits"
	if p.state.Reason != "" {
		what += " (" + p.state.Reason + ")"
	}
	if p.state.Message != "" {
		what += ": " + p.state.Message
	}
	if !p.state.RetryAfter.IsZero() {
		what += ", until " + p.state.RetryAfter.Format(time.RFC3339) + " if nobody renews it"
	}
	p.details(ctx, what)
	if p.state.Again > 0 { // not for a run that carries on another one
		timer := workflow.NewTimerWithOptions(ctx, p.state.Again, workflow.TimerOptions{Summary: "until the next look at the holds"})
		if err := timer.Get(ctx, nil); err != nil {
			return err
		}
	}
	var a *kube.Activities
	var state wire.PlannedState
	if err := workflow.ExecuteActivity(tending(ctx, "look whether a hold defers it"), a.LookAtPlanned, p.operation()).Get(ctx, &state); err != nil {
		return err
	}
	p.state = state
	return nil
}

// withdraw gives the operation up, unless it has been handed over.
func (p *planned) withdraw(ctx workflow.Context, reason string, keepRequest bool) error {
	p.details(ctx, "is being withdrawn: "+reason)
	var a *kube.Activities
	in := kube.WithdrawInput{OperationInput: p.operation(), Reason: reason, KeepRequest: keepRequest}
	return workflow.ExecuteActivity(tending(ctx, "withdraw the reservation"), a.WithdrawPlanned, in).Get(ctx, &p.state)
}

// handOver keeps the reservation until the operator reports the operation, or
// its time is over.
func (p *planned) handOver(ctx workflow.Context) (wire.PlannedResult, error) {
	p.details(ctx, "has been handed over, and is not in the status of the group yet")
	var a *kube.Activities
	for looks := 0; ; looks++ {
		var state wire.PlannedState
		in := kube.ClearInput{OperationInput: p.operation(), Overdue: looks >= reportLooks}
		if err := workflow.ExecuteActivity(tending(ctx, "look whether the operator reports it"), a.ClearPlanned, in).Get(ctx, &state); err != nil {
			return wire.PlannedResult{}, err
		}
		if state.Phase == "" {
			result := p.ended(ctx, wire.PlannedAdmitted)
			result.Reason = state.Reason
			return result, nil
		}
		timer := workflow.NewTimerWithOptions(ctx, reportEvery, workflow.TimerOptions{Summary: "until the operator reports it"})
		if err := timer.Get(ctx, nil); err != nil {
			return wire.PlannedResult{}, err
		}
	}
}

func (p *planned) ended(ctx workflow.Context, outcome string) wire.PlannedResult {
	result := wire.PlannedResult{Outcome: outcome, PlannedRequest: *p.request, Reason: p.state.Reason, Message: p.state.Message}
	what := "was " + outcome
	if result.Reason != "" {
		what += ": " + result.Reason
	}
	p.details(ctx, what)
	return result
}

func (p *planned) operation() kube.OperationInput {
	return kube.OperationInput{Namespace: p.in.Namespace, Group: p.in.Group, PlannedRequest: *p.request}
}

func (p *planned) details(ctx workflow.Context, what string) {
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("%s on `%s/%s` %s.", operationName(*p.request), p.in.Namespace, p.in.Group, what))
}

func operationName(r wire.PlannedRequest) string {
	if r.Target == "" {
		return string(r.Kind)
	}
	return fmt.Sprintf("%s to `%s`", r.Kind, r.Target)
}
