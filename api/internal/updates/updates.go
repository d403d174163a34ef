// Package updates asks workflows for answers: an update with start, by the rules
// that all calls of slipway share. A workflow that runs already is asked, one
// that has ended is started anew, and each call is an update of its own.
package updates

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

// ErrorWorkflowEnded is the type of the application error that the server makes
// for an update whose workflow ended before it.
const ErrorWorkflowEnded = "AcceptedUpdateCompletedWorkflow"

// Options are those of every workflow that a request starts. It has no timeout
// of its own: its steps have. The summary is what lists of workflows show.
func Options(workflowID, queue, summary string, attributes ...temporal.SearchAttributeUpdate) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       workflowID,
		TaskQueue:                queue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            summary,
		TypedSearchAttributes:    temporal.NewSearchAttributes(attributes...),
	}
}

// Start is a workflow that an update may have to start first.
type Start struct {
	Options  client.StartWorkflowOptions
	Workflow string
	Input    any
}

// WithStart waits for the answer of an update of the workflow. The error keeps
// the types of Temporal.
func WithStart(ctx context.Context, c client.Client, start Start, update string, answer any, args ...any) error {
	handle, err := c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: c.NewWithStartWorkflowOperation(start.Options, start.Workflow, start.Input),
		UpdateOptions:          options(start.Options.ID, update, args),
	})
	return wait(ctx, handle, err, update, answer)
}

// Existing waits for the answer of an update of a workflow that was started
// before; see Ended for one that is not there any more.
func Existing(ctx context.Context, c client.Client, workflowID, update string, answer any, args ...any) error {
	handle, err := c.UpdateWorkflow(ctx, options(workflowID, update, args))
	return wait(ctx, handle, err, update, answer)
}

// options of an update. Its ID is new for each request: the server would replay
// the outcome of a known one, refusals too.
func options(workflowID, update string, args []any) client.UpdateWorkflowOptions {
	return client.UpdateWorkflowOptions{
		UpdateID:     uuid.NewString(),
		WorkflowID:   workflowID,
		UpdateName:   update,
		Args:         args,
		WaitForStage: client.WorkflowUpdateStageCompleted,
	}
}

func wait(ctx context.Context, handle client.WorkflowUpdateHandle, err error, update string, answer any) error {
	if err == nil {
		err = handle.Get(ctx, answer)
	}
	if err != nil {
		return fmt.Errorf("update %s: %w", update, err)
	}
	return nil
}

// Ended says whether the error of an update, or of a signal, means that its
// workflow had ended or ended meanwhile, without an answer.
func Ended(err error) bool {
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return true
	}
	application, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && application.Type() == ErrorWorkflowEnded
}
