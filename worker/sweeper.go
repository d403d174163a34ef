package worker

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
)

// sweepEvery is how often a worker looks for builds without a workflow.
// sweepAge spares builds whose workflow may just be starting.
const (
	sweepEvery = 20 * time.Second
	sweepAge   = 10 * time.Second
)

// Builds is what the sweeper needs of the store.
type Builds interface {
	Pending(ctx context.Context, age time.Duration) ([]store.Pending, error)
	Finish(ctx context.Context, ref deployment.Ref, otherwise store.End) (store.Ended, error)
	TrimEvaluations(ctx context.Context) error
}

// Sweeper fails builds whose workflow has ended without them.
type Sweeper struct {
	Builds Builds
	Client client.Client
	Log    *zap.Logger
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("sweep of builds without a workflow", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Sweeper) sweep(ctx context.Context) error {
	pending, err := s.Builds.Pending(ctx, sweepAge)
	if err != nil {
		return err
	}
	var errs []error
	for _, build := range pending {
		gone, err := s.gone(ctx, build.WorkflowID)
		if err != nil || !gone {
			errs = append(errs, err)
			continue
		}
		ended, err := s.Builds.Finish(ctx, build.Ref, store.End{
			Cancelled: build.CancelRequested,
			Reason:    "its workflow " + build.WorkflowID + " ended before the build did",
		})
		var held *store.FenceHeldError
		switch {
		case errors.As(err, &held): // its deployer may still run: next time
		case err != nil:
			errs = append(errs, err)
		default:
			s.Log.Info("ended a build whose workflow is gone", zap.Stringer("build", build.Ref),
				zap.String("workflowId", build.WorkflowID), zap.String("status", string(ended.Status)))
		}
	}
	return errors.Join(append(errs, s.Builds.TrimEvaluations(ctx))...)
}

// gone reports whether a workflow has no open run. A workflow that was reset
// has one.
func (s *Sweeper) gone(ctx context.Context, workflowID string) (bool, error) {
	description, err := s.Client.DescribeWorkflowExecution(ctx, workflowID, "")
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return description.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}
