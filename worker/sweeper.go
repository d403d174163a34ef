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
// sweepAge spares builds whose workflow may just be starting. letGoAfter is how
// long a run must have ended before others get the secrets that it had in hand:
// a step of it may still be writing, for the 30 s that the longest has.
const (
	sweepEvery = 20 * time.Second
	sweepAge   = 10 * time.Second
	letGoAfter = 35 * time.Second
	// offerAge is how long the callback of a request waits for its record, which
	// comes within a minute or never.
	offerAge = 5 * time.Minute
)

// Builds is what the sweeper needs of the store.
type Builds interface {
	Pending(ctx context.Context, age time.Duration) ([]store.Pending, error)
	Finish(ctx context.Context, ref deployment.Ref, otherwise store.End) (store.Ended, error)
	TrimEvaluations(ctx context.Context) error
	Preparations(ctx context.Context, age time.Duration) ([]store.Preparation, error)
	Unprepare(ctx context.Context, p store.Preparation) error
	Calling(ctx context.Context, age time.Duration) ([]store.Pending, error)
	SettleCallback(ctx context.Context, ref deployment.Ref, callback deployment.Callback) error
	DropOffers(ctx context.Context, age time.Duration) error
	CollectSBOMs(ctx context.Context) error
}

// Sweeper fails builds whose workflow has ended without them, lets go of the
// secrets of deployments that such a workflow had in hand, gives up the callbacks
// that it had to make, and removes what no SBOM uses any more.
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
		gone, err := s.gone(ctx, build.WorkflowID, "", 0)
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
	return errors.Join(append(errs, s.letGo(ctx), s.giveUpCallbacks(ctx), s.Builds.DropOffers(ctx, offerAge),
		s.Builds.TrimEvaluations(ctx), s.Builds.CollectSBOMs(ctx))...)
}

func (s *Sweeper) letGo(ctx context.Context) error {
	preparations, err := s.Builds.Preparations(ctx, sweepAge)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range preparations {
		gone, err := s.gone(ctx, p.WorkflowID, p.RunID, letGoAfter)
		if err == nil && gone {
			err = s.Builds.Unprepare(ctx, p)
		}
		if err == nil && gone {
			s.Log.Info("let go of the secrets of a deployment whose workflow is gone",
				zap.String("deploymentId", p.Deployment), zap.String("workflowId", p.WorkflowID))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *Sweeper) giveUpCallbacks(ctx context.Context) error {
	calling, err := s.Builds.Calling(ctx, sweepAge)
	if err != nil {
		return err
	}
	var errs []error
	for _, build := range calling {
		gone, err := s.gone(ctx, build.WorkflowID, "", letGoAfter)
		if err == nil && gone {
			err = s.Builds.SettleCallback(ctx, build.Ref, deployment.Callback{State: deployment.CallbackFailed,
				Reason: "its workflow ended before the call did; the call may have been made"})
		}
		if err == nil && gone {
			s.Log.Info("gave up the callback of a build whose workflow is gone",
				zap.Stringer("build", build.Ref), zap.String("workflowId", build.WorkflowID))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// gone reports whether a run ended at least so long ago; with no run, whether a
// workflow has no open one. A workflow that was reset has one.
func (s *Sweeper) gone(ctx context.Context, workflowID, runID string, ago time.Duration) (bool, error) {
	description, err := s.Client.DescribeWorkflowExecution(ctx, workflowID, runID)
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	info := description.GetWorkflowExecutionInfo()
	return info.GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING && time.Since(info.GetCloseTime().AsTime()) >= ago, nil
}
