package coordination

import (
	"context"
	"errors"
	"testing"

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

// noRun is a start that nobody asks about.
type noRun struct{}

func (noRun) Get(context.Context) (client.WorkflowRun, error) {
	return nil, errors.New("not asked for")
}

func TestPlannerRequest(t *testing.T) {
	request := wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "pdx"}
	deferred := wire.PlannedAnswer{Status: wire.PlannedDeferred, Reason: lease.ReasonDeploymentHold}
	ended := serviceerror.NewNotFound("the workflow has ended")
	away := serviceerror.NewUnavailable("away")
	for name, test := range map[string]struct {
		errs  []error // of each call
		want  error
		calls int
	}{
		"answered":                 {[]error{nil}, nil, 1},
		"a run that just ends":     {[]error{ended, nil}, nil, 2},
		"runs that end every time": {[]error{ended, ended, ended, nil}, ended, plannedTries},
		"Temporal is away":         {[]error{away, nil}, away, 1},
	} {
		t.Run(name, func(t *testing.T) {
			handle := &mocks.WorkflowUpdateHandle{}
			handle.On("Get", mock.Anything, mock.Anything).Run(func(args mock.Arguments) { *args.Get(1).(*wire.PlannedAnswer) = deferred }).Return(nil)
			c := &mocks.Client{}
			options := mock.MatchedBy(func(o client.StartWorkflowOptions) bool {
				attribute, ok := o.TypedSearchAttributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword(wire.AttributeGroup))
				return ok && attribute == "shop/orders" && o.ID == "planned/shop/orders" && o.TaskQueue == wire.QueueLease &&
					o.StaticSummary == "planned operation on shop/orders" &&
					o.WorkflowIDConflictPolicy == enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING &&
					o.WorkflowIDReusePolicy == enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
			})
			c.On("NewWithStartWorkflowOperation", options, wire.WorkflowPlanned,
				wire.PlannedInput{Namespace: "shop", Group: "orders"}).Return(noRun{})
			updates := mock.MatchedBy(func(o client.UpdateWithStartWorkflowOptions) bool {
				u := o.UpdateOptions
				return u.WorkflowID == "planned/shop/orders" && u.UpdateName == wire.UpdateRequest && u.Args[0] == request
			})
			for _, err := range test.errs {
				call := c.On("UpdateWithStartWorkflow", mock.Anything, updates).Once()
				if err == nil {
					call.Return(handle, nil)
				} else {
					call.Return(nil, err)
				}
			}
			answer, err := NewPlanner(c).Request(t.Context(), "shop", "orders", request)
			require.ErrorIs(t, err, test.want)
			if test.want == nil {
				require.Equal(t, deferred, answer)
			}
			c.AssertNumberOfCalls(t, "UpdateWithStartWorkflow", test.calls)
		})
	}
}

// What means nothing starts nothing: the mock has no calls.
func TestPlannerRequestThatMeansNothing(t *testing.T) {
	_, err := NewPlanner(&mocks.Client{}).Request(t.Context(), "shop", "orders", wire.PlannedRequest{Kind: lease.PlannedFailover})
	require.EqualError(t, err, "target is no name of a site")
}
