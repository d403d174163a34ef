package coordination

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/api/internal/updates"
	"slipway.dev/slipway/schema/wire"
)

// Planner asks for planned operations: it starts the PlannedOperation workflow
// of a group, or finds it running.
type Planner struct{ client client.Client }

// NewPlanner takes a client of the namespace that the workers poll.
func NewPlanner(c client.Client) Planner { return Planner{c} }

// plannedTries: a run that just ends does not answer, and the next one does.
const plannedTries = 3

// Request asks for a planned operation of a group and waits for the answer. The
// same request again is answered with how it is then. An error of
// PlannedRequest.Check reaches nobody; after any other one, or when ctx ends
// first, the request may have been taken.
func (p Planner) Request(ctx context.Context, namespace, group string, request wire.PlannedRequest) (wire.PlannedAnswer, error) {
	if err := request.Check(); err != nil {
		return wire.PlannedAnswer{}, err
	}
	start := plannedStart(wire.PlannedInput{Namespace: namespace, Group: group})
	var answer wire.PlannedAnswer
	var err error
	for range plannedTries {
		err = updates.WithStart(ctx, p.client, start, wire.UpdateRequest, &answer, request)
		if err == nil || !updates.Ended(err) {
			break
		}
	}
	return answer, err
}

// Adopt makes sure that an operation that a group is reserved for has a
// workflow.
func (p Planner) Adopt(ctx context.Context, namespace, group string, request wire.PlannedRequest) error {
	start := plannedStart(wire.PlannedInput{Namespace: namespace, Group: group, Adopt: &request})
	if _, err := p.client.ExecuteWorkflow(ctx, start.Options, start.Workflow, start.Input); err != nil {
		return fmt.Errorf("adopt the planned operation: %w", err)
	}
	return nil
}

func plannedStart(in wire.PlannedInput) updates.Start {
	name := in.Namespace + "/" + in.Group
	return updates.Start{
		Options: updates.Options(wire.PlannedID(in.Namespace, in.Group), wire.QueueLease, "planned operation on "+name,
			temporal.NewSearchAttributeKeyKeyword(wire.AttributeGroup).ValueSet(name)),
		Workflow: wire.WorkflowPlanned,
		Input:    in,
	}
}
