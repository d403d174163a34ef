package coordination

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/api/internal/updates"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// Temporal is Workflows on a Temporal cluster, and how operators reach the
// workflow of a lease.
type Temporal struct{ client client.Client }

// NewTemporal takes a client of the namespace that the workers poll.
func NewTemporal(c client.Client) Temporal { return Temporal{c} }

// Grant starts the workflow of the lease, or finds it running, and waits for the
// answer of its update.
func (t Temporal) Grant(ctx context.Context, ref wire.LeaseRef, request wire.GrantRequest) (wire.LeaseAnswer, error) {
	return t.update(ctx, ref, wire.UpdateGrant, request)
}

// Release does the same for a release.
func (t Temporal) Release(ctx context.Context, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	return t.update(ctx, ref, wire.UpdateRelease, request)
}

// update is tried once more where it met a run that was just about to end; the
// second time there is none to meet.
func (t Temporal) update(ctx context.Context, ref wire.LeaseRef, name string, request any) (answer wire.LeaseAnswer, err error) {
	for range 2 {
		answer = wire.LeaseAnswer{}
		err = updates.WithStart(ctx, t.client, updates.Start{
			Options: options(ref), Workflow: wire.WorkflowLease, Input: wire.LeaseInput{LeaseRef: ref},
		}, name, &answer, request)
		if !updates.Ended(err) {
			break
		}
	}
	return answer, err
}

// Adopt makes sure that a lease that was granted has a workflow.
func (t Temporal) Adopt(ctx context.Context, ref wire.LeaseRef) error {
	if _, err := t.client.ExecuteWorkflow(ctx, options(ref), wire.WorkflowLease, wire.LeaseInput{LeaseRef: ref, Adopt: true}); err != nil {
		return fmt.Errorf("adopt the lease: %w", err)
	}
	return nil
}

// Revoke has the workflow of the lease revoke it, and starts one where there is
// none.
func (t Temporal) Revoke(ctx context.Context, ref wire.LeaseRef, reason lease.Reason) error {
	options := options(ref)
	_, err := t.client.SignalWithStartWorkflow(ctx, options.ID, wire.SignalRevoke, wire.Revocation{Reason: reason},
		options, wire.WorkflowLease, wire.LeaseInput{LeaseRef: ref, Adopt: true})
	if err != nil {
		return fmt.Errorf("revoke the lease: %w", err)
	}
	return nil
}

// Revoked tells the workflow of the lease, if it has one, that it was revoked.
func (t Temporal) Revoked(ctx context.Context, ref wire.LeaseRef, reason lease.Reason) error {
	err := t.client.SignalWorkflow(ctx, wire.LeaseID(ref), "", wire.SignalRevoke, wire.Revocation{Reason: reason})
	if err != nil && !updates.Ended(err) {
		return fmt.Errorf("tell of the revocation: %w", err)
	}
	return nil
}

func options(ref wire.LeaseRef) client.StartWorkflowOptions {
	group := ref.Namespace + "/" + ref.Group
	return updates.Options(wire.LeaseID(ref), wire.QueueLease, string(ref.Kind)+" lease of "+group,
		temporal.NewSearchAttributeKeyKeyword(wire.AttributeGroup).ValueSet(group),
		temporal.NewSearchAttributeKeyKeyword(wire.AttributeLeaseKind).ValueSet(string(ref.Kind)))
}
