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
	question[wire.DestroyAnswer]
	in    wire.DestroyInput
	build build
	ours  bool // this run takes the build to its end
	// newest is the newest build of a deployment that is idle already.
	newest int64
}

func (d *destroy) setup(ctx workflow.Context) error {
	workflow.SetCurrentDetails(ctx, "Destroy of `"+d.in.Deployment+"`: waits for its request.")
	if err := workflow.SetUpdateHandler(ctx, wire.UpdateDestroy, d.destroy); err != nil {
		return err
	}
	return workflow.SetUpdateHandler(ctx, wire.UpdateCancel, d.build.cancel)
}

func (d *destroy) run(ctx workflow.Context) (wire.BuildResult, error) {
	return d.question.run(ctx, "Destroy of `"+d.in.Deployment+"`", func() (wire.BuildResult, error) {
		switch {
		case d.answer.Idle:
			workflow.SetCurrentDetails(ctx, "`"+d.in.Deployment+"` is idle already.")
			// A submit that was superseded before it ran, and an import that did not
			// deploy, have left secrets too.
			if d.in.Secrets && workflow.GetVersion(ctx, "secrets of an idle deployment", workflow.DefaultVersion, 1) == 1 {
				if err := (&secrets{}).haulOut(ctx, deployment.Ref{Deployment: d.in.Deployment, Build: d.newest}); err != nil {
					return wire.BuildResult{}, err
				}
			}
			return wire.BuildResult{Outcome: "idle", Reason: "nothing was up"}, nil
		case !d.ours:
			d.build.details(ctx, "an earlier destroy is on its way")
			return wire.BuildResult{Outcome: "joined", Build: d.answer.Build, Reason: "an earlier destroy is on its way"}, nil
		default:
			result, err := d.build.run(ctx)
			if d.build.callback {
				d.build.callBack(ctx)
			}
			if d.in.Secrets && err == nil && result.Outcome == string(deployment.StatusSucceeded) {
				err = (&secrets{}).haulOut(ctx, d.build.ref)
			}
			return result, err
		}
	})
}

// destroy is the update.
func (d *destroy) destroy(ctx workflow.Context) (wire.DestroyAnswer, error) {
	return d.ask(ctx, func() (wire.DestroyAnswer, error) { return d.record(ctx) })
}

func (d *destroy) record(ctx workflow.Context) (wire.DestroyAnswer, error) {
	var a *store.Activities
	var recorded store.RecordedDestroy
	in := store.Destroy{
		Deployment: d.in.Deployment,
		Request:    d.in.Request,
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID,

		Callback: d.in.Callback, CallbackRefused: d.in.CallbackRefused,
	}
	// As with a submit: once a record may have happened, its result is wanted.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	err := workflow.ExecuteLocalActivity(onRequest(disconnected, "record the destroy"), a.RecordDestroy, in).Get(disconnected, &recorded)
	if err != nil {
		return wire.DestroyAnswer{}, forCaller(err)
	}
	d.newest = recorded.Newest
	if recorded.Build != 0 {
		d.ours = recorded.Ours
		if err := d.build.recorded(ctx, deployment.Ref{Deployment: d.in.Deployment, Build: recorded.Build}); err != nil {
			return wire.DestroyAnswer{}, forCaller(err)
		}
	}
	return wire.DestroyAnswer{Build: recorded.Build, Idle: recorded.Idle, Callback: recorded.Callback}, nil
}
