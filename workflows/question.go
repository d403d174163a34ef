package workflows

import (
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/schema/wire"
)

// question is the update that a run was started for, with its answer A. The
// first update decides; every other of the same run gets the same answer or
// refusal.
type question[A any] struct {
	asked   bool // the first update came
	decided bool // and has its answer or refusal
	answer  A
	refusal error
}

// ask is the update. Only the first one decides, in bounded time.
func (q *question[A]) ask(ctx workflow.Context, decide func() (A, error)) (A, error) {
	if !q.asked {
		q.asked = true
		q.answer, q.refusal = decide()
		q.decided = true
		return q.answer, q.refusal
	}
	if err := workflow.Await(ctx, func() bool { return q.decided }); err != nil {
		var none A
		return none, forCaller(err)
	}
	return q.answer, q.refusal
}

// refuse decides without an update: those that come get the refusal.
func (q *question[A]) refuse(refusal error) {
	q.asked, q.decided, q.refusal = true, true, refusal
}

// run is the life of a run: it waits for the question and for its answer, goes
// on with carryOut unless that is a refusal, and ends when every update has
// been answered. what names the run in its details.
func (q *question[A]) run(ctx workflow.Context, what string, carryOut func() (wire.BuildResult, error)) (wire.BuildResult, error) {
	asked, err := workflow.AwaitWithTimeout(ctx, firstUpdate, func() bool { return q.asked })
	if err != nil {
		return wire.BuildResult{}, err
	}
	if !asked {
		return wire.BuildResult{Outcome: "no request"}, nil
	}
	// An operator may cancel meanwhile; what was decided is wanted all the same.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	if err := workflow.Await(disconnected, func() bool { return q.decided }); err != nil {
		return wire.BuildResult{}, err
	}
	var result wire.BuildResult
	if q.refusal != nil {
		result = wire.BuildResult{Outcome: "refused", Reason: reason(q.refusal)}
		workflow.SetCurrentDetails(ctx, what+" refused: "+result.Reason)
		err = ctx.Err() // cancelled, if that is why
	} else {
		result, err = carryOut()
	}
	if err := workflow.Await(disconnected, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return result, err
	}
	return result, err
}
