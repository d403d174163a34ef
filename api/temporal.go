package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/wire"
)

// errWorkflowGone: the workflow that was asked has ended.
var errWorkflowGone = errors.New("the workflow has ended")

// acceptedUpdateCompletedWorkflow is the type of the application error that the
// server makes for an update whose workflow ended before it.
const acceptedUpdateCompletedWorkflow = "AcceptedUpdateCompletedWorkflow"

// Temporal is Workflows on a Temporal cluster.
type Temporal struct{ client client.Client }

// NewTemporal takes a client of the namespace that the workers poll.
func NewTemporal(c client.Client) Temporal { return Temporal{c} }

// Submit starts the Submit workflow of the request, or finds it running, and
// waits for the answer of its update.
func (t Temporal) Submit(ctx context.Context, id, request string, submit wire.SubmitRequest) (wire.SubmitAnswer, error) {
	options := options(wire.SubmitID(id, request), id, "submit of "+id)
	start := t.client.NewWithStartWorkflowOperation(options, wire.WorkflowSubmit, wire.SubmitInput{Deployment: id, Request: request})
	var answer wire.SubmitAnswer
	err := t.updateWithStart(ctx, start, options.ID, wire.UpdateSubmit, &answer, submit)
	return answer, err
}

// Destroy starts the Destroy workflow of the request, or finds it running, and
// waits for the answer of its update.
func (t Temporal) Destroy(ctx context.Context, id, request string) (wire.DestroyAnswer, error) {
	options := options(wire.DestroyID(id, request), id, "destroy of "+id)
	start := t.client.NewWithStartWorkflowOperation(options, wire.WorkflowDestroy, wire.DestroyInput{Deployment: id, Request: request})
	var answer wire.DestroyAnswer
	err := t.updateWithStart(ctx, start, options.ID, wire.UpdateDestroy, &answer)
	return answer, err
}

// Preview runs a Preview workflow and waits for its result.
func (t Temporal) Preview(ctx context.Context, preview wire.PreviewInput) (wire.Evaluated, error) {
	options := options(wire.PreviewID(uuid.NewString()), preview.Deployment, "preview of "+preview.Deployment)
	var evaluated wire.Evaluated
	run, err := t.client.ExecuteWorkflow(ctx, options, wire.WorkflowPreview, preview)
	if err != nil {
		return evaluated, fmt.Errorf("start a preview: %w", err)
	}
	if err := run.Get(ctx, &evaluated); err != nil {
		return evaluated, fmt.Errorf("preview: %w", err)
	}
	return evaluated, nil
}

// Cancel asks the workflow of a build to end it.
func (t Temporal) Cancel(ctx context.Context, workflowID string) (wire.CancelAnswer, error) {
	var answer wire.CancelAnswer
	handle, err := t.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		UpdateID:     uuid.NewString(),
		WorkflowID:   workflowID,
		UpdateName:   wire.UpdateCancel,
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	var notFound *serviceerror.NotFound
	var application *temporal.ApplicationError
	switch {
	case errors.As(err, &notFound),
		errors.As(err, &application) && application.Type() == acceptedUpdateCompletedWorkflow:
		return answer, fmt.Errorf("cancel: %w: %w", errWorkflowGone, err)
	case err != nil:
		return answer, fmt.Errorf("cancel: %w", err)
	}
	return answer, nil
}

// options are those of every workflow that a request starts. It has no timeout
// of its own: its steps have.
func options(workflowID, deployment, summary string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       workflowID,
		TaskQueue:                wire.QueueMain,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            summary,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(wire.AttributeDeployment).ValueSet(deployment)),
	}
}

// updateWithStart waits for the answer of an update. Its ID is new for each
// request: the server would replay the outcome of a known one, refusals too.
func (t Temporal) updateWithStart(ctx context.Context, start client.WithStartWorkflowOperation, workflowID, name string, answer any, args ...any) error {
	handle, err := t.client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID:     uuid.NewString(),
			WorkflowID:   workflowID,
			UpdateName:   name,
			Args:         args,
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err == nil {
		err = handle.Get(ctx, answer)
	}
	if err != nil {
		return fmt.Errorf("update %s: %w", name, err)
	}
	return nil
}
