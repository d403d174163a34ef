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
)

// handed is a store in which secrets are in hand, and nothing else is.
type handed struct {
	Builds
	preparations []store.Preparation
	letGo        []string
}

func (h *handed) Pending(context.Context, time.Duration) ([]store.Pending, error) { return nil, nil }

func (h *handed) TrimEvaluations(context.Context) error { return nil }

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
}
