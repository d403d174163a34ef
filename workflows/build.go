package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/deployer"
	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// build is a recorded build on its way to its end: its turn, its deployer, its
// finish. It is the second half of Submit and of Destroy.
type build struct {
	ref    deployment.Ref
	action deployment.Action
	// callback: a front-end waits to hear that the build has ended.
	callback bool
	// stop asks the deployer to end; nil before the build is recorded.
	stop workflow.CancelFunc
}

// recorded makes the build known to operators and to cancel.
func (b *build) recorded(ctx workflow.Context, ref deployment.Ref) error {
	b.ref = ref
	return workflow.UpsertTypedSearchAttributes(ctx,
		temporal.NewSearchAttributeKeyInt64(wire.AttributeBuild).ValueSet(ref.Build))
}

// run takes the build to its end. It returns an error where the build failed,
// so that an operator finds it among the failed workflows.
func (b *build) run(ctx workflow.Context) (wire.BuildResult, error) {
	deployCtx, stop := workflow.WithCancel(ctx)
	b.stop = stop
	turn, err := b.awaitTurn(ctx)
	switch {
	case temporal.IsCanceledError(err):
		return b.cancelled(ctx)
	case err != nil:
		return wire.BuildResult{}, err
	case turn == store.TurnEnded:
		return b.finish(ctx, store.End{})
	}
	return b.finish(ctx, b.runDeployer(deployCtx))
}

func (b *build) awaitTurn(ctx workflow.Context) (store.Turn, error) {
	var a *store.Activities
	var turn store.Turn
	if err := ctx.Err(); err != nil {
		return turn, err // cancelled while it was recorded
	}
	b.details(ctx, "takes its turn")
	err := workflow.ExecuteLocalActivity(atOnce(ctx, "take the turn"), a.TakeTurn, b.ref).Get(ctx, &turn)
	if temporal.IsCanceledError(err) || err == nil && turn != store.TurnWait {
		return turn, err
	}
	b.details(ctx, "waits until the older builds of the deployment have ended")
	err = workflow.ExecuteActivity(waiting(ctx, "wait for the turn of build "+b.number()), a.AwaitTurn, b.ref).Get(ctx, &turn)
	return turn, err
}

// runDeployer runs the deployer and says how the build ends if that leaves no
// exit behind.
func (b *build) runDeployer(ctx workflow.Context) store.End {
	var a *deployer.Activities
	var err error
	if b.action == deployment.ActionDeploy {
		b.details(ctx, "the deployer runs (or waits for a slot); its output is the log of the build")
		err = workflow.ExecuteActivity(deploying(ctx, deployTries, deployAgain, "deploy build "+b.number()), a.Deploy, b.ref).Get(ctx, nil)
	} else {
		b.details(ctx, "the deployer hauls out (or waits for a slot); its output is the log of the build")
		err = workflow.ExecuteActivity(deploying(ctx, destroyTries, destroyAgain, "destroy by build "+b.number()), a.Destroy, b.ref).Get(ctx, nil)
	}
	switch {
	case temporal.IsCanceledError(err), err != nil && ctx.Err() != nil:
		return store.End{Cancelled: true, Reason: "cancelled before the deployer ran"}
	case temporal.IsTimeoutError(err), isOfType(err, wire.ErrorAlreadyRan):
		return store.End{Reason: "the worker that ran the deployer was lost"}
	case err != nil:
		workflow.GetLogger(ctx).Error("the deployer could not be run", "Error", err)
		return store.End{Reason: "the deployer could not be run; the workflow has the reason"}
	default:
		return store.End{Reason: "the deployer ended without leaving an exit"}
	}
}

// finish ends the build, also when the workflow was cancelled meanwhile.
func (b *build) finish(ctx workflow.Context, otherwise store.End) (wire.BuildResult, error) {
	var a *store.Activities
	var ended store.Ended
	asked := ctx
	ctx, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	in := store.FinishInput{Ref: b.ref, Otherwise: otherwise}
	if err := workflow.ExecuteLocalActivity(atOnce(ctx, "finish the build"), a.Finish, in).Get(ctx, &ended); err != nil {
		b.details(ctx, "waits to be finished: "+reason(err))
		if err := workflow.ExecuteActivity(lasting(ctx, "finish build "+b.number()), a.Finish, in).Get(ctx, &ended); err != nil {
			return wire.BuildResult{}, err
		}
	}
	b.callback = ended.Callback
	b.details(ctx, strings.TrimSpace(string(ended.Status)+" "+ended.Reason))
	result := wire.BuildResult{Outcome: string(ended.Status), Build: b.ref.Build, Reason: ended.Reason}
	switch {
	case ended.Status == deployment.StatusFailed:
		return result, temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("build %d failed: %s", b.ref.Build, ended.Reason), wire.ErrorBuildFailed, nil)
	case ended.Status == deployment.StatusCancelled && asked.Err() != nil:
		return result, asked.Err() // an operator cancelled the workflow
	default:
		return result, nil
	}
}

// cancelled ends a build that waits for its turn when an operator cancels the
// workflow.
func (b *build) cancelled(ctx workflow.Context) (wire.BuildResult, error) {
	var a *store.Activities
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	err := workflow.ExecuteActivity(lasting(disconnected, "cancel build "+b.number()), a.Cancel, b.ref).Get(disconnected, nil)
	if err != nil {
		return wire.BuildResult{}, err
	}
	return b.finish(ctx, store.End{Cancelled: true, Reason: "cancelled before the deployer ran"})
}

// cancel is the update cancel: a queued build ends, the deployer of a running
// one is asked to stop.
func (b *build) cancel(ctx workflow.Context) (wire.CancelAnswer, error) {
	var a *store.Activities
	var status deployment.Status
	if b.ref.Build == 0 {
		return wire.CancelAnswer{}, temporal.NewNonRetryableApplicationError("there is no build to cancel yet", wire.ErrorUnavailable, nil)
	}
	// An operator may have cancelled the workflow too; the caller is answered.
	disconnected, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	err := workflow.ExecuteLocalActivity(onRequest(disconnected, "cancel the build"), a.Cancel, b.ref).Get(disconnected, &status)
	if err != nil {
		return wire.CancelAnswer{}, forCaller(err)
	}
	if status == deployment.StatusRunning && b.stop != nil {
		b.details(ctx, "asks the deployer to stop")
		b.stop()
	}
	return wire.CancelAnswer{Status: status}, nil
}

func (b *build) number() string { return fmt.Sprint(b.ref.Build) }

func (b *build) details(ctx workflow.Context, what string) {
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("Build %d of `%s`: %s.", b.ref.Build, b.ref.Deployment, what))
}
