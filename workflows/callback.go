package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/activities/callback"
	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
)

// callBack tells the front-end that its deployment is idle, once. The destroy
// has succeeded, so a cancel by an operator changes nothing about it any more.
//
// Runs from before there were callbacks never come here, since the result of
// their Finish tells of none.
func (b *build) callBack(ctx workflow.Context) {
	var front *callback.Activities
	var database *store.Activities
	ctx, release := workflow.NewDisconnectedContext(ctx)
	defer release()
	b.details(ctx, "succeeded; calls the front-end back")
	in := store.SettleInput{Ref: b.ref}
	if err := workflow.ExecuteActivity(calling(ctx, "call the front-end back"), front.CallBack, b.ref).Get(ctx, &in.Callback); err != nil {
		workflow.GetLogger(ctx).Warn("the front-end was not called back, or nobody knows", "Error", err)
		in.Callback = deployment.Callback{State: deployment.CallbackFailed,
			Reason: "slipway was interrupted while it called; the call may have been made"}
	}
	became := "callback " + string(in.Callback.State)
	if in.Callback.Status != 0 {
		became += fmt.Sprintf(" (%d)", in.Callback.Status)
	}
	if in.Callback.Reason != "" {
		became += ": " + in.Callback.Reason
	}
	if workflow.ExecuteLocalActivity(atOnce(ctx, "note the callback"), database.SettleCallback, in).Get(ctx, nil) != nil {
		b.details(ctx, "succeeded; "+became+"; waits to be noted")
		if err := workflow.ExecuteActivity(lasting(ctx, "note the callback of build "+b.number()), database.SettleCallback, in).Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Error("the callback was not noted", "Error", err)
		}
	}
	b.details(ctx, "succeeded; "+became)
}
