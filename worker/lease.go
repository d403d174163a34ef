package worker

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/kube"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/workflows"
)

// LeaseConfig is what a worker of leases runs with.
type LeaseConfig struct {
	Client     client.Client
	Activities *kube.Activities
	// StopTimeout is how long a worker that stops waits for its activities.
	StopTimeout time.Duration
	Log         *zap.Logger
}

// RunLeases polls the queue of leases until ctx ends. Only the process that
// holds leader election does so.
func RunLeases(ctx context.Context, c LeaseConfig) error {
	failed := make(chan error, 1)
	w, err := start(ctx, func() worker.Worker {
		w := worker.New(c.Client, wire.QueueLease, worker.Options{
			MaxConcurrentActivityExecutionSize:      200,
			MaxConcurrentLocalActivityExecutionSize: 200,
			WorkerStopTimeout:                       c.StopTimeout,
			OnFatalError:                            func(err error) { failed <- err },
		})
		w.RegisterWorkflowWithOptions(workflows.Lease, workflow.RegisterOptions{Name: wire.WorkflowLease})
		w.RegisterWorkflowWithOptions(workflows.PlannedOperation, workflow.RegisterOptions{Name: wire.WorkflowPlanned})
		w.RegisterActivity(c.Activities)
		return w
	}, c.Log)
	if err != nil {
		return err
	}
	defer w.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("worker of leases: %w", err)
	}
}
