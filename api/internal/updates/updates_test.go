package updates

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/temporal"
)

func TestEnded(t *testing.T) {
	for _, test := range []struct {
		err   error
		ended bool
	}{
		{nil, false},
		{errors.New("not found"), false},
		{context.DeadlineExceeded, false},
		{serviceerror.NewUnavailable("away"), false},
		{serviceerror.NewNotFound("gone"), true},
		{temporal.NewApplicationError("no", "Other"), false},
		{temporal.NewApplicationError("ended", ErrorWorkflowEnded), true},
	} {
		require.Equal(t, test.ended, Ended(test.err), "%v", test.err)
		require.Equal(t, test.ended, Ended(fmt.Errorf("update: %w", errors.Join(test.err, errors.New("and more")))), "%v", test.err)
	}
}

func TestExisting(t *testing.T) {
	away := serviceerror.NewUnavailable("away")
	for _, test := range []struct{ asked, answered, want error }{{nil, nil, nil}, {away, nil, away}, {nil, away, away}} {
		c, handle, ids := &mocks.Client{}, &mocks.WorkflowUpdateHandle{}, map[string]bool{}
		handle.On("Get", mock.Anything, mock.Anything).Run(func(args mock.Arguments) { *args.Get(1).(*int) = 7 }).Return(test.answered)
		c.On("UpdateWorkflow", mock.Anything, mock.MatchedBy(func(o client.UpdateWorkflowOptions) bool {
			ids[o.UpdateID] = uuid.Validate(o.UpdateID) == nil
			return o.WorkflowID == "id" && o.UpdateName == "name" && o.WaitForStage == client.WorkflowUpdateStageCompleted && len(o.Args) == 1 && o.Args[0] == "argument"
		})).Return(handle, test.asked)
		var answer int
		err := Existing(t.Context(), c, "id", "name", &answer, "argument")
		require.ErrorIs(t, err, test.want)
		if test.want == nil {
			require.Equal(t, 7, answer)
		}
		require.Len(t, ids, 1)
		require.NotContains(t, ids, "")
	}
}

func TestOptions(t *testing.T) {
	group := temporal.NewSearchAttributeKeyKeyword("Group")
	o := Options("id", "queue", "summary", group.ValueSet("orders"))
	require.Equal(t, []any{"id", "queue", "summary"}, []any{o.ID, o.TaskQueue, o.StaticSummary})
	require.Equal(t, enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, o.WorkflowIDConflictPolicy)
	require.Equal(t, enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, o.WorkflowIDReusePolicy)
	value, ok := o.TypedSearchAttributes.GetKeyword(group)
	require.True(t, ok)
	require.Equal(t, "orders", value)
}
