package workflows

import (
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// Destroy hauls a deployment out. The update destroy records the build first
// and is answered then; the run goes on to its end. It evaluates nothing: the
// deployer runs with what the newest deploy was started with.
func Destroy(ctx workflow.Context, in wire.DestroyInput) (wire.BuildResult, error) {
	d := &destroy{in: in, build: build{action: deployment.ActionDestroy}}
	if err := d.setup(ctx); err != nil {
		return wire.BuildResult{}, err
	}
	return d.run(ctx)
}

type destroy struct {
	in    wire.DestroyInput
	build build

	asked   bool // the first update came
	decided bool // and has its answer
	ours    bool // and this run takes the build to its end
	answer  wire.DestroyAnswer
	refusal error
}

func (d *destroy) setup(ctx workflow.Context) error {
	workflow.SetCurrentDetails(ctx, "Destroy of `"+d.in.Deployment+"`: waits for its request.")
	if err := workflow.SetUpdateHandler(ctx, wire.UpdateDestroy, d.destroy); err != nil {
		return err
	}
	return workflow.SetUpdateHandler(ctx, wire.UpdateCancel, d.build.cancel)
}

func (d *destroy) run(ctx workflow.Context) (wire.BuildResult, error) {
	asked, err := workflow.AwaitWithTimeout(ctx, firstUpdate, func() bool { return d.asked })
	if err != nil {
		return wire.BuildResult{}, err
	}
	if !asked {
		return wire.BuildResult{Outcome: "no request"}, nil
	}
	// The first update ends in any case: its step is bounded.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	if err := workflow.Await(disconnected, func() bool { return d.decided }); err != nil {
		return wire.BuildResult{}, err
	}
	var result wire.BuildResult
	switch {
	case d.refusal != nil:
		result = wire.BuildResult{Outcome: "refused", Reason: reason(d.refusal)}
		workflow.SetCurrentDetails(ctx, "Destroy of `"+d.in.Deployment+"` refused: "+result.Reason)
		err = ctx.Err() // an operator may have cancelled it
	case d.answer.Idle:
		result = wire.BuildResult{Outcome: "idle", Reason: "nothing was up"}
		workflow.SetCurrentDetails(ctx, "`"+d.in.Deployment+"` is idle already.")
	case !d.ours:
		result = wire.BuildResult{Outcome: "joined", Build: d.answer.Build, Reason: "an earlier destroy is on its way"}
		d.build.details(ctx, "an earlier destroy is on its way")
	default:
		result, err = d.build.run(ctx)
	}
	if err := workflow.Await(disconnected, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return result, err
	}
	return result, err
}

// destroy is the update. A second one of the same run gets the same answer.
func (d *destroy) destroy(ctx workflow.Context) (wire.DestroyAnswer, error) {
	if !d.asked {
		d.asked = true
		d.answer, d.refusal = d.record(ctx)
		d.decided = true
		return d.answer, d.refusal
	}
	if err := workflow.Await(ctx, func() bool { return d.decided }); err != nil {
		return wire.DestroyAnswer{}, forCaller(err)
	}
	return d.answer, d.refusal
}

func (d *destroy) record(ctx workflow.Context) (wire.DestroyAnswer, error) {
	var a *store.Activities
	var recorded store.RecordedDestroy
	in := store.Destroy{
		Deployment: d.in.Deployment,
		Request:    d.in.Request,
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID,
	}
	// As with a submit: once a record may have happened, its result is wanted.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	err := workflow.ExecuteLocalActivity(onRequest(disconnected, "record the destroy"), a.RecordDestroy, in).Get(disconnected, &recorded)
	if err != nil {
		return wire.DestroyAnswer{}, forCaller(err)
	}
	if recorded.Build != 0 {
		d.ours = recorded.Ours
		if err := d.build.recorded(ctx, deployment.Ref{Deployment: d.in.Deployment, Build: recorded.Build}); err != nil {
			return wire.DestroyAnswer{}, forCaller(err)
		}
	}
	return wire.DestroyAnswer{Build: recorded.Build, Idle: recorded.Idle}, nil
}
