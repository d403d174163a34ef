package callback

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/origin"
)

// Claims gives the right to make a callback, once ever.
type Claims interface {
	ClaimCallback(ctx context.Context, ref deployment.Ref) (deployment.Claim, error)
}

// Activities are the step of a workflow that calls a front-end.
type Activities struct {
	Claims Claims
	// Origins are the front-ends that may be called.
	Origins origin.List
	// Caller makes the call.
	Caller *Caller
	// Metrics count the outcomes; nil: nobody does.
	Metrics *Metrics
}

// CallBack calls the front-end of a destroy that has succeeded and returns what
// became of it. An error means that the call could not be claimed, or may have
// been made; it is not tried again.
func (a *Activities) CallBack(ctx context.Context, ref deployment.Ref) (became deployment.Callback, err error) {
	defer func() {
		if err == nil {
			a.Metrics.became(became.State)
		}
	}()
	claim, err := a.Claims.ClaimCallback(ctx, ref)
	if err != nil {
		return deployment.Callback{}, fmt.Errorf("claim the callback: %w", err)
	}
	if claim.Instead != nil {
		return *claim.Instead, nil
	}
	target, err := a.Origins.Target(claim.URL)
	if err != nil {
		return deployment.Callback{State: deployment.CallbackRefused, Reason: err.Error()}, nil
	}
	became, cause := a.Caller.Call(ctx, target, claim.Token, ref)
	if cause != nil {
		activity.GetLogger(ctx).Warn("a callback was not delivered", "build", ref.String(), "origin", target.Origin.String(), "error", cause)
	}
	return became, nil
}
