package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/api/internal/updates"
	"slipway.dev/slipway/schema/wire"
)

// errWorkflowGone: the workflow that was asked has ended.
var errWorkflowGone = errors.New("the workflow has ended")

// Temporal is Workflows on a Temporal cluster.
type Temporal struct{ client client.Client }

// NewTemporal takes a client of the namespace that the workers poll.
func NewTemporal(c client.Client) Temporal { return Temporal{c} }

// Submit starts the Submit workflow of the request, or finds it running, and
// waits for the answer of its update.
func (t Temporal) Submit(ctx context.Context, id, request string, submit wire.SubmitRequest) (wire.SubmitAnswer, error) {
	var answer wire.SubmitAnswer
	err := updates.WithStart(ctx, t.client, updates.Start{
		Options:  options(wire.SubmitID(id, request), id, "submit of "+id),
		Workflow: wire.WorkflowSubmit,
		Input:    wire.SubmitInput{Deployment: id, Request: request},
	}, wire.UpdateSubmit, &answer, submit)
	return answer, err
}

// Import starts the Import workflow of the request, or finds it running, and
// waits for the answer of its update.
func (t Temporal) Import(ctx context.Context, id, request string, imported wire.ImportRequest) (wire.SubmitAnswer, error) {
	var answer wire.SubmitAnswer
	err := updates.WithStart(ctx, t.client, updates.Start{
		Options:  options(wire.ImportID(id, request), id, "import of "+id),
		Workflow: wire.WorkflowImport,
		Input:    wire.SubmitInput{Deployment: id, Request: request},
	}, wire.UpdateImport, &answer, imported)
	return answer, err
}

// Commit brings the secrets of a submit or import to its workflow, which waits
// for them.
func (t Temporal) Commit(ctx context.Context, workflowID string, commit wire.CommitRequest) (wire.SubmitAnswer, error) {
	var answer wire.SubmitAnswer
	err := updates.Existing(ctx, t.client, workflowID, wire.UpdateCommit, &answer, commit)
	return answer, err
}

// Destroy starts the Destroy workflow of the request, or finds it running, and
// waits for the answer of its update.
func (t Temporal) Destroy(ctx context.Context, destroy wire.DestroyInput) (wire.DestroyAnswer, error) {
	var answer wire.DestroyAnswer
	err := updates.WithStart(ctx, t.client, updates.Start{
		Options:  options(wire.DestroyID(destroy.Deployment, destroy.Request), destroy.Deployment, "destroy of "+destroy.Deployment),
		Workflow: wire.WorkflowDestroy,
		Input:    destroy,
	}, wire.UpdateDestroy, &answer)
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
	err := updates.Existing(ctx, t.client, workflowID, wire.UpdateCancel, &answer)
	if updates.Ended(err) {
		return answer, fmt.Errorf("%w: %w", errWorkflowGone, err)
	}
	return answer, err
}

func options(workflowID, deployment, summary string) client.StartWorkflowOptions {
	return updates.Options(workflowID, wire.QueueMain, summary,
		temporal.NewSearchAttributeKeyKeyword(wire.AttributeDeployment).ValueSet(deployment))
}
