package deployer

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/deployment"
)

const (
	// heartbeat is the time between two heartbeats, and so about the time that
	// a cancel takes to arrive.
	heartbeat = time.Second
	// heartbeatLimit is how long one may take.
	heartbeatLimit = 4 * time.Second
)

// Server is what is asked of Temporal directly.
type Server interface {
	RecordActivityHeartbeat(ctx context.Context, taskToken []byte, details ...any) error
	DescribeWorkflowExecution(ctx context.Context, workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error)
}

// beat heartbeats until ctx ends. It does so past the SDK, which cancels an
// activity as soon as one heartbeat does not get through: a Temporal that is
// restarted, or slow, must not stop deployers. Only when the deployer is to
// stop, the SDK heartbeats too, hears the same, and cancels the activity.
func (a *Activities) beat(ctx context.Context, ref deployment.Ref) {
	for pause(ctx, heartbeat) == nil {
		if a.unwanted(ctx, ref) {
			activity.RecordHeartbeat(ctx)
		}
	}
}

// unwanted heartbeats and reports whether the deployer is to stop.
func (a *Activities) unwanted(ctx context.Context, ref deployment.Ref) bool {
	ctx, cancel := context.WithTimeout(ctx, heartbeatLimit)
	defer cancel()
	info := activity.GetInfo(ctx)
	err := a.Server.RecordActivityHeartbeat(ctx, info.TaskToken)
	var gone *serviceerror.NotFound
	if !errors.As(err, &gone) {
		return temporal.IsCanceledError(err) // any other is for the next to mend
	}
	// Temporal has given the activity up. Where it was silent for too long,
	// its workflow waits for the fence of the build, and for what is staged;
	// a cancel comes by way of the database then.
	workflow := info.WorkflowExecution
	description, err := a.Server.DescribeWorkflowExecution(ctx, workflow.ID, workflow.RunID)
	if errors.As(err, &gone) {
		return true
	}
	if err != nil {
		return false
	}
	if description.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return true
	}
	cancelled, err := a.Jobs.CancelRequested(ctx, ref)
	return err == nil && cancelled
}
