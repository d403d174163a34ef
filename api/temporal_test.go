package api

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/api/internal/updates"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// theseOptions are those of a start of a workflow for the deployment one.
func theseOptions(t *testing.T, id, summary string) any {
	return mock.MatchedBy(func(o client.StartWorkflowOptions) bool {
		attribute, ok := o.TypedSearchAttributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword(wire.AttributeDeployment))
		require.True(t, ok)
		require.Equal(t, "one", attribute)
		require.Equal(t, wire.QueueMain, o.TaskQueue)
		require.Equal(t, summary, o.StaticSummary)
		require.Equal(t, enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, o.WorkflowIDConflictPolicy)
		require.Equal(t, enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, o.WorkflowIDReusePolicy)
		require.Zero(t, o.WorkflowExecutionTimeout)
		return id == "" || o.ID == id
	})
}

// started is a start that nobody asks about.
type started struct{}

func (started) Get(context.Context) (client.WorkflowRun, error) {
	return nil, errors.New("not asked for")
}

// answers is the handle of an update that gives a value.
func answers[T any](value T, err error) *mocks.WorkflowUpdateHandle {
	handle := &mocks.WorkflowUpdateHandle{}
	handle.On("Get", mock.Anything, mock.Anything).Run(func(args mock.Arguments) { *args.Get(1).(*T) = value }).Return(err)
	return handle
}

func TestTemporalSubmit(t *testing.T) {
	c := &mocks.Client{}
	ids := map[string]bool{}
	updates := func(workflowID, name string, args ...any) any {
		return mock.MatchedBy(func(o client.UpdateWithStartWorkflowOptions) bool {
			if o.UpdateOptions.UpdateName != name {
				return false
			}
			require.NoError(t, uuid.Validate(o.UpdateOptions.UpdateID))
			ids[o.UpdateOptions.UpdateID] = true
			require.Equal(t, client.WorkflowUpdateStageCompleted, o.UpdateOptions.WaitForStage)
			require.Equal(t, args, o.UpdateOptions.Args)
			return o.UpdateOptions.WorkflowID == workflowID
		})
	}
	submit := wire.SubmitRequest{Snapshot: "/nix/store/source", Configuration: []byte(`{}`)}
	c.On("NewWithStartWorkflowOperation", theseOptions(t, "submit/one/request", "submit of one"), wire.WorkflowSubmit,
		wire.SubmitInput{Deployment: "one", Request: "request"}).Return(started{})
	c.On("UpdateWithStartWorkflow", mock.Anything, updates("submit/one/request", wire.UpdateSubmit, submit)).
		Return(answers(wire.SubmitAnswer{Build: 7, Evaluation: deployment.EvaluationSkipped}, nil), nil)
	for range 2 {
		answer, err := NewTemporal(c).Submit(context.Background(), "one", "request", submit)
		require.NoError(t, err)
		require.Equal(t, wire.SubmitAnswer{Build: 7, Evaluation: deployment.EvaluationSkipped}, answer)
	}
	require.Len(t, ids, 2, "each request has an update of its own")
}

func TestTemporalImport(t *testing.T) {
	c := &mocks.Client{}
	in := wire.ImportRequest{Deploy: true, SubmitRequest: wire.SubmitRequest{Snapshot: "/nix/store/source", Configuration: []byte(`{}`)}}
	c.On("NewWithStartWorkflowOperation", theseOptions(t, "import/one/request", "import of one"), wire.WorkflowImport,
		wire.SubmitInput{Deployment: "one", Request: "request"}).Return(started{})
	c.On("UpdateWithStartWorkflow", mock.Anything, mock.MatchedBy(func(o client.UpdateWithStartWorkflowOptions) bool {
		require.Equal(t, []any{in}, o.UpdateOptions.Args)
		return o.UpdateOptions.UpdateName == wire.UpdateImport && o.UpdateOptions.WorkflowID == "import/one/request"
	})).Return(answers(wire.SubmitAnswer{Build: 1}, nil), nil)
	answer, err := NewTemporal(c).Import(context.Background(), "one", "request", in)
	require.NoError(t, err)
	require.Equal(t, wire.SubmitAnswer{Build: 1}, answer)
}

func TestTemporalDestroy(t *testing.T) {
	c := &mocks.Client{}
	c.On("NewWithStartWorkflowOperation", theseOptions(t, "destroy/one/request", "destroy of one"), wire.WorkflowDestroy,
		wire.DestroyInput{Deployment: "one", Request: "request"}).Return(started{})
	c.On("UpdateWithStartWorkflow", mock.Anything, mock.MatchedBy(func(o client.UpdateWithStartWorkflowOptions) bool {
		return o.UpdateOptions.UpdateName == wire.UpdateDestroy && o.UpdateOptions.WorkflowID == "destroy/one/request" && len(o.UpdateOptions.Args) == 0
	})).Return(answers(wire.DestroyAnswer{Idle: true}, nil), nil)
	answer, err := NewTemporal(c).Destroy(context.Background(), wire.DestroyInput{Deployment: "one", Request: "request"})
	require.NoError(t, err)
	require.Equal(t, wire.DestroyAnswer{Idle: true}, answer)
}

func TestTemporalKeepsTheTypeOfAnError(t *testing.T) {
	refusal := applicationError("no", wire.ErrorInvalidConfiguration)
	away := serviceerror.NewUnavailable("away")
	for _, c := range []struct{ start, update error }{{nil, refusal}, {away, nil}} {
		m := &mocks.Client{}
		m.On("NewWithStartWorkflowOperation", mock.Anything, mock.Anything, mock.Anything).Return(started{})
		m.On("UpdateWithStartWorkflow", mock.Anything, mock.Anything).Return(answers(wire.SubmitAnswer{}, c.update), c.start)
		_, err := NewTemporal(m).Submit(context.Background(), "one", "request", wire.SubmitRequest{})
		var application *temporal.ApplicationError
		var unavailable *serviceerror.Unavailable
		require.Equal(t, c.update != nil, errors.As(err, &application))
		require.Equal(t, c.start != nil, errors.As(err, &unavailable))
	}
}

func TestTemporalPreview(t *testing.T) {
	in := wire.PreviewInput{Deployment: "one", Snapshot: "/nix/store/source"}
	run := &mocks.WorkflowRun{}
	run.On("Get", mock.Anything, mock.Anything).Run(func(args mock.Arguments) {
		*args.Get(1).(*wire.Evaluated) = wire.Evaluated{Key: "key"}
	}).Return(nil)
	c := &mocks.Client{}
	c.On("ExecuteWorkflow", mock.Anything, theseOptions(t, "", "preview of one"), wire.WorkflowPreview, in).Return(run, nil)
	evaluated, err := NewTemporal(c).Preview(context.Background(), in)
	require.NoError(t, err)
	require.Equal(t, "key", evaluated.Key)
}

func TestTemporalCancel(t *testing.T) {
	away := serviceerror.NewUnavailable("away")
	for _, c := range []struct {
		asked, answered error
		gone            bool
	}{
		{nil, nil, false},
		{serviceerror.NewNotFound("no such workflow"), nil, true},
		{nil, serviceerror.NewNotFound("no such workflow"), true},
		{nil, applicationError("ended", updates.ErrorWorkflowEnded), true},
		{away, nil, false},
	} {
		m := &mocks.Client{}
		m.On("UpdateWorkflow", mock.Anything, mock.MatchedBy(func(o client.UpdateWorkflowOptions) bool {
			return o.WorkflowID == "submit/one/request" && o.UpdateName == wire.UpdateCancel &&
				o.WaitForStage == client.WorkflowUpdateStageCompleted && uuid.Validate(o.UpdateID) == nil
		})).Return(answers(wire.CancelAnswer{Status: deployment.StatusCancelled}, c.answered), c.asked)
		answer, err := NewTemporal(m).Cancel(context.Background(), "submit/one/request")
		require.Equal(t, c.gone, errors.Is(err, errWorkflowGone), "%v", err)
		require.Equal(t, c.asked == nil && c.answered == nil, err == nil)
		if err == nil {
			require.Equal(t, deployment.StatusCancelled, answer.Status)
		}
	}
}
