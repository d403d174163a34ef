package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// firstUpdate is how long a run waits for the update that it was started for.
// They come together, so it waits only for a client that broke the contract.
const firstUpdate = time.Minute

// onRequest is for steps that a caller of the API waits for. Tries end within
// the 10 s of a workflow task, so that a database that is away becomes a 503
// instead of a request that hangs.
func onRequest(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout:    3 * time.Second,
		ScheduleToCloseTimeout: 7 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    100 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    time.Second,
			MaximumAttempts:    5,
		},
		Summary: summary,
	})
}

// atOnce is for the first try of a step that lasting repeats: one try without
// a round trip, since it nearly always succeeds.
func atOnce(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: 3 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:             summary,
	})
}

// lasting is for steps that nobody waits for and that must happen. They are
// tried for as long as an operator may need to bring a database back, over a
// weekend included.
func lasting(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueMain,
		StartToCloseTimeout:    10 * time.Second,
		ScheduleToCloseTimeout: 7 * 24 * time.Hour,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    10 * time.Second,
		},
		Summary: summary,
	})
}

// calling is for the call to a front-end, which has 10 s itself and is made once
// (seed B, "Durability of the intent record"). After a day without a worker the
// front-end has long noticed.
func calling(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueMain,
		ScheduleToCloseTimeout: 24 * time.Hour,
		StartToCloseTimeout:    20 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                summary,
	})
}

// waiting is for the wait for a turn: the older builds, a deploy and a destroy
// at most, may each wait for a slot for a week and run for a day. A worker that
// dies meanwhile is noticed by its heartbeats (one every 5 s at least).
func waiting(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueMain,
		ScheduleToCloseTimeout: 30 * 24 * time.Hour,
		StartToCloseTimeout:    7 * 24 * time.Hour,
		HeartbeatTimeout:       15 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    10 * time.Second,
		},
		Summary: summary,
	})
}

// evaluating is for an evaluation that a caller waits for. The evaluator has
// the real limits, of time and of memory; these only notice a worker that died
// (heartbeats come every second) or that is not there. A second try may be the
// one that the next worker needs after a restart, a third would only delay the
// answer.
func evaluating(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueNix,
		ScheduleToStartTimeout: 20 * time.Second,
		StartToCloseTimeout:    15 * time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond,
			MaximumAttempts: 2,
		},
		Summary: summary,
	})
}

// evaluatingSystems is for the evaluation of the systems of an import, which
// takes up to the hour that SLIPWAY_NIX_SYSTEMS_TIMEOUT may be set to. The rest
// is as with evaluating; a second try finds in the cache what the first one
// evaluated.
func evaluatingSystems(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueNix,
		ScheduleToStartTimeout: 20 * time.Second,
		StartToCloseTimeout:    75 * time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond,
			MaximumAttempts: 2,
		},
		Summary: summary,
	})
}

// buildingSchema is for the evaluation of a new snapshot, which waits for a
// slot, and for building its deployer. The other tries are for workers that are
// lost and a database that is away for a moment; then the keeper of the source,
// which waits for it, says what is wrong and starts it again later.
func buildingSchema(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueNix,
		ScheduleToCloseTimeout: time.Hour,
		StartToCloseTimeout:    time.Hour,
		HeartbeatTimeout:       10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    time.Second,
			BackoffCoefficient: 2,
			MaximumAttempts:    5,
		},
		Summary: summary,
	})
}

// deployTries: a deployer runs once for a deploy, an operator or a front-end
// submits again. The other tries are for workers that died before it ran: one
// that comes after is told so by the fence, and ends at once. destroyTries: a
// destroy is safe to repeat, so it outlives two lost workers.
const (
	deployTries  = 3
	destroyTries = 3
)

// A try of a destroy that meets the fence of a dead deployer is the last one, so
// it comes when that has lapsed, with 3 s for heartbeats that were on their way.
const (
	deployAgain  = time.Second
	destroyAgain = deployment.FenceLife - silence + 3*time.Second
	silence      = 10 * time.Second
)

// deploying is for the deployer. It may wait for a slot for a week and run for
// a day. Heartbeats come every second. A worker that is silent for 10 s is
// taken for dead, and the fence of the build makes sure of it: where the worker
// lives (Temporal was away), its deployer goes on, and the build ends as that
// does. A cancelled deployer is waited for.
func deploying(ctx workflow.Context, tries int32, again time.Duration, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueDeploy,
		ScheduleToCloseTimeout: 8 * 24 * time.Hour,
		StartToCloseTimeout:    24 * time.Hour,
		HeartbeatTimeout:       silence,
		WaitForCancellation:    true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    again,
			BackoffCoefficient: 1,
			MaximumAttempts:    tries,
		},
		Summary: summary,
	})
}

// tending is for the looks of a lease at its record, and for revoking it. It is
// tried for as long as the API server may be away, since the lease itself ends
// in time without it; fast at first, since an operator may wait for a
// revocation.
func tending(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueLease,
		StartToCloseTimeout:    10 * time.Second,
		ScheduleToCloseTimeout: 7 * 24 * time.Hour,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    200 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    5 * time.Second,
		},
		Summary: summary,
	})
}

// takingSecrets is for taking the secrets of a deployment in hand. The activity
// waits up to 10 s for another submit; a second try is for a worker that died.
func takingSecrets(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueMain,
		StartToCloseTimeout:    15 * time.Second,
		ScheduleToCloseTimeout: 20 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond,
			MaximumAttempts: 2,
		},
		Summary: summary,
	})
}

// readingSecrets is for a look at OpenBao that a caller waits for.
func readingSecrets(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueMain,
		StartToCloseTimeout:    15 * time.Second,
		ScheduleToCloseTimeout: 20 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond,
			MaximumAttempts: 3,
		},
		Summary: summary,
	})
}

// writingSecrets is for writing secrets. The values can be unwrapped once, so
// there is one try, which repeats its writes itself.
func writingSecrets(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              wire.QueueMain,
		StartToCloseTimeout:    15 * time.Second,
		ScheduleToCloseTimeout: 20 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                summary,
	})
}

// deletingSecrets is for one try of deleting secrets, with the secrets in hand.
// Whoever calls it lets go of them before the next.
func deletingSecrets(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           wire.QueueMain,
		StartToCloseTimeout: 30 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:             summary,
	})
}
