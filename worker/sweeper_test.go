package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
)

// handed is a store in which secrets are in hand, and nothing else is.
type handed struct {
	Builds
	preparations []store.Preparation
	letGo        []string
	calling      []store.Pending
	gaveUp       []string
	offers       bool
	collected    int
}

func (h *handed) Calling(context.Context, time.Duration) ([]store.Pending, error) {
	return h.calling, nil
}

func (h *handed) SettleCallback(_ context.Context, ref deployment.Ref, callback deployment.Callback) error {
	h.gaveUp = append(h.gaveUp, ref.String()+" "+string(callback.State))
	return nil
}

func (h *handed) DropOffers(context.Context, time.Duration) error {
	h.offers = true
	return nil
}

func (h *handed) Pending(context.Context, time.Duration) ([]store.Pending, error) { return nil, nil }

func (h *handed) TrimEvaluations(context.Context) error { return nil }

func (h *handed) CollectSBOMs(context.Context) error { h.collected++; return nil }

func (h *handed) Preparations(context.Context, time.Duration) ([]store.Preparation, error) {
	return h.preparations, nil
}

func (h *handed) Unprepare(_ context.Context, p store.Preparation) error {
	h.letGo = append(h.letGo, p.RunID)
	return nil
}

// runs is a Temporal that knows runs.
type runs struct {
	client.Client
	known map[string]*workflow.WorkflowExecutionInfo
}

func (r runs) DescribeWorkflowExecution(_ context.Context, _, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	info, ok := r.known[runID]
	switch {
	case !ok:
		return nil, serviceerror.NewNotFound("no such run")
	case info == nil:
		return nil, errors.New("temporal is away")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info}, nil
}

func TestSweeperLetsGoOfSecrets(t *testing.T) {
	ended := func(ago time.Duration) *workflow.WorkflowExecutionInfo {
		return &workflow.WorkflowExecutionInfo{
			Status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, CloseTime: timestamppb.New(time.Now().Add(-ago)),
		}
	}
	temporal := runs{known: map[string]*workflow.WorkflowExecutionInfo{
		"running":        {Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING},
		"ended now":      ended(0), // a step of it may still write
		"ended":          ended(time.Minute),
		"nobody can say": nil,
	}}
	h := &handed{}
	for _, run := range []string{"running", "ended now", "nobody can say", "ended", "unknown"} {
		h.preparations = append(h.preparations, store.Preparation{Deployment: "one", WorkflowID: "w", RunID: run})
	}
	s := Sweeper{Builds: h, Client: temporal, Log: zap.NewNop()}
	require.ErrorContains(t, s.sweep(t.Context()), "temporal is away")
	require.Equal(t, []string{"ended", "unknown"}, h.letGo, "one that cannot be told is no reason to stop")
	require.Equal(t, 1, h.collected)
}

func TestSweeperGivesUpCallbacks(t *testing.T) {
	closed := func(status enums.WorkflowExecutionStatus, ago time.Duration) *workflow.WorkflowExecutionInfo {
		return &workflow.WorkflowExecutionInfo{Status: status, CloseTime: timestamppb.New(time.Now().Add(-ago))}
	}
	h := &handed{}
	for id, info := range map[string]*workflow.WorkflowExecutionInfo{
		"running": closed(enums.WORKFLOW_EXECUTION_STATUS_RUNNING, 0),
		"now":     closed(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, 0), // its call may be under way
		"ended":   closed(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, time.Minute),
	} {
		temporal := runs{known: map[string]*workflow.WorkflowExecutionInfo{"": info}}
		h.calling = []store.Pending{{Ref: deployment.Ref{Deployment: id, Build: 2}, WorkflowID: id}}
		s := Sweeper{Builds: h, Client: temporal, Log: zap.NewNop()}
		require.NoError(t, s.sweep(t.Context()))
	}
	require.Equal(t, []string{"ended#2 failed"}, h.gaveUp)
	require.True(t, h.offers)
}
