package coordination

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

var ref = wire.LeaseRef{Namespace: "bloodraven", Group: "orders", Kind: lease.KindMigration, OperationID: "op/1"}

const leaseID = "lease/bloodraven/orders/migration/op%2F1"

// theseOptions are those of a start of the workflow of ref.
func theseOptions(t *testing.T) any {
	return mock.MatchedBy(func(o client.StartWorkflowOptions) bool {
		group, _ := o.TypedSearchAttributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword(wire.AttributeGroup))
		kind, _ := o.TypedSearchAttributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword(wire.AttributeLeaseKind))
		require.Equal(t, []string{"bloodraven/orders", "migration"}, []string{group, kind})
		require.Equal(t, leaseID, o.ID)
		require.Equal(t, wire.QueueLease, o.TaskQueue)
		require.Equal(t, "migration lease of bloodraven/orders", o.StaticSummary)
		require.Equal(t, enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, o.WorkflowIDConflictPolicy)
		require.Equal(t, enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, o.WorkflowIDReusePolicy)
		require.Zero(t, o.WorkflowExecutionTimeout)
		return true
	})
}

// started is a start that nobody asks about.
type started struct{}

func (started) Get(context.Context) (client.WorkflowRun, error) {
	return nil, errors.New("not asked for")
}

func TestTemporalUpdates(t *testing.T) {
	granted := wire.LeaseAnswer{Verdict: lease.Verdict{Kind: lease.VerdictGrant, Generation: 17}, ExpiresAt: start}
	ended := temporal.NewApplicationError("ended", "AcceptedUpdateCompletedWorkflow")
	refused := temporal.NewApplicationError("no", wire.ErrorUnavailable)
	away := serviceerror.NewUnavailable("away")
	type try struct{ asked, answered error }
	for name, test := range map[string]struct {
		tries []try
		err   error
	}{
		"answered":                      {[]try{{nil, nil}}, nil},
		"ended, then answered":          {[]try{{nil, ended}, {nil, nil}}, nil},
		"gone, then answered":           {[]try{{serviceerror.NewNotFound("gone"), nil}, {nil, nil}}, nil},
		"gone meanwhile, then answered": {[]try{{nil, serviceerror.NewNotFound("gone")}, {nil, nil}}, nil},
		"ended twice":                   {[]try{{nil, ended}, {nil, ended}}, ended},
		"refused":                       {[]try{{nil, refused}}, refused},
		"away":                          {[]try{{away, nil}}, away},
	} {
		t.Run(name, func(t *testing.T) {
			grant := wire.GrantRequest{TokenHash: lease.HashToken("x"), TTL: 30 * time.Second}
			release := wire.ReleaseRequest{TokenHash: lease.HashToken("x")}
			for update, argument := range map[string]any{wire.UpdateGrant: grant, wire.UpdateRelease: release} {
				c := &mocks.Client{}
				c.On("NewWithStartWorkflowOperation", theseOptions(t), wire.WorkflowLease, wire.LeaseInput{LeaseRef: ref}).Return(started{})
				ids := map[string]bool{}
				for _, try := range test.tries {
					handle := &mocks.WorkflowUpdateHandle{}
					handle.On("Get", mock.Anything, mock.Anything).Run(func(args mock.Arguments) {
						if try.answered == nil {
							*args.Get(1).(*wire.LeaseAnswer) = granted
						}
					}).Return(try.answered)
					c.On("UpdateWithStartWorkflow", mock.Anything, mock.MatchedBy(func(o client.UpdateWithStartWorkflowOptions) bool {
						require.Equal(t, leaseID, o.UpdateOptions.WorkflowID)
						require.Equal(t, update, o.UpdateOptions.UpdateName)
						require.Equal(t, []any{argument}, o.UpdateOptions.Args)
						require.Equal(t, client.WorkflowUpdateStageCompleted, o.UpdateOptions.WaitForStage)
						require.NoError(t, uuid.Validate(o.UpdateOptions.UpdateID))
						ids[o.UpdateOptions.UpdateID] = true
						return true
					})).Return(handle, try.asked).Once()
				}
				var answer wire.LeaseAnswer
				var err error
				if update == wire.UpdateGrant {
					answer, err = NewTemporal(c).Grant(t.Context(), ref, grant)
				} else {
					answer, err = NewTemporal(c).Release(t.Context(), ref, release)
				}
				require.ErrorIs(t, err, test.err)
				if test.err == nil {
					require.Equal(t, granted, answer)
				}
				// A start is for one update alone.
				c.AssertNumberOfCalls(t, "NewWithStartWorkflowOperation", len(test.tries))
				c.AssertNumberOfCalls(t, "UpdateWithStartWorkflow", len(test.tries))
				require.Len(t, ids, len(test.tries), "each try is an update of its own")
			}
		})
	}
}

func TestTemporalOperators(t *testing.T) {
	away := serviceerror.NewUnavailable("away")
	for _, err := range []error{nil, away} {
		c := &mocks.Client{}
		adopted := wire.LeaseInput{LeaseRef: ref, Adopt: true}
		c.On("ExecuteWorkflow", mock.Anything, theseOptions(t), wire.WorkflowLease, adopted).Return(&mocks.WorkflowRun{}, err)
		c.On("SignalWithStartWorkflow", mock.Anything, leaseID, wire.SignalRevoke, wire.Revocation{Reason: lease.ReasonOperatorRevoked},
			theseOptions(t), wire.WorkflowLease, adopted).Return(&mocks.WorkflowRun{}, err)
		c.On("SignalWorkflow", mock.Anything, leaseID, "", wire.SignalRevoke, wire.Revocation{Reason: lease.ReasonTopologyChanged}).Return(err)
		require.ErrorIs(t, NewTemporal(c).Adopt(t.Context(), ref), err)
		require.ErrorIs(t, NewTemporal(c).Revoke(t.Context(), ref, lease.ReasonOperatorRevoked), err)
		require.ErrorIs(t, NewTemporal(c).Revoked(t.Context(), ref, lease.ReasonTopologyChanged), err)
		c.AssertExpectations(t)
	}
	c := &mocks.Client{}
	c.On("SignalWorkflow", mock.Anything, leaseID, "", wire.SignalRevoke, mock.Anything).Return(serviceerror.NewNotFound("gone"))
	require.NoError(t, NewTemporal(c).Revoked(t.Context(), ref, lease.ReasonTopologyChanged), "it may have no workflow")
}
