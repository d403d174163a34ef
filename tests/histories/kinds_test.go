package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"slipway.dev/slipway/schema/wire"
)

// The replayer reads what encode writes: everything but the identities.
func TestEncode(t *testing.T) {
	started := &history.WorkflowExecutionStartedEventAttributes{
		WorkflowType: &common.WorkflowType{Name: "Submit"},
		Identity:     "1234@somewhere",
		TaskQueue:    &taskqueue.TaskQueue{Name: "somewhere:5678", Kind: enums.TASK_QUEUE_KIND_STICKY, NormalName: "slipway"},
		Input: &common.Payloads{Payloads: []*common.Payload{{
			Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`{"identity":"of a deployment"}`),
		}}},
	}
	h := &history.History{Events: []*history.HistoryEvent{{
		EventId: 1 << 60, EventType: enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &history.HistoryEvent_WorkflowExecutionStartedEventAttributes{WorkflowExecutionStartedEventAttributes: started},
	}}}
	text, err := encode(h)
	require.NoError(t, err)
	require.NotContains(t, string(text), "somewhere")
	read, err := client.HistoryFromJSON(bytes.NewReader(text), client.HistoryJSONOptions{})
	require.NoError(t, err)
	started.Identity, started.TaskQueue.Name = "", ""
	require.True(t, proto.Equal(h, read), "%v", read)
}

func TestKinds(t *testing.T) {
	scheduled := &history.HistoryEvent{Attributes: &history.HistoryEvent_ActivityTaskScheduledEventAttributes{
		ActivityTaskScheduledEventAttributes: &history.ActivityTaskScheduledEventAttributes{
			ActivityType: &common.ActivityType{Name: "Deploy"},
		},
	}}
	completed := func(outcome string) *history.HistoryEvent {
		result, err := converter.GetDefaultDataConverter().ToPayloads(wire.BuildResult{Outcome: outcome})
		require.NoError(t, err)
		return &history.HistoryEvent{Attributes: &history.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
			WorkflowExecutionCompletedEventAttributes: &history.WorkflowExecutionCompletedEventAttributes{Result: result},
		}}
	}
	started := func(adopt bool) *history.HistoryEvent {
		input, err := converter.GetDefaultDataConverter().ToPayloads(wire.LeaseInput{Adopt: adopt})
		require.NoError(t, err)
		return &history.HistoryEvent{Attributes: &history.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &history.WorkflowExecutionStartedEventAttributes{Input: input},
		}}
	}
	failed := &history.HistoryEvent{EventType: enums.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED}
	for _, test := range []struct {
		kind   kind
		events []*history.HistoryEvent
		want   bool
	}{
		{kind{outcome: "succeeded", step: "Deploy"}, []*history.HistoryEvent{scheduled, completed("succeeded")}, true},
		{kind{outcome: "succeeded", step: "Deploy"}, []*history.HistoryEvent{completed("succeeded")}, false},
		{kind{outcome: "cancelled"}, []*history.HistoryEvent{scheduled, completed("succeeded")}, false},
		{kind{outcome: "refused"}, []*history.HistoryEvent{completed("refused")}, true},
		{kind{outcome: "refused"}, []*history.HistoryEvent{failed}, false},
		{kind{step: "Deploy"}, []*history.HistoryEvent{scheduled, failed}, true},
		{kind{}, []*history.HistoryEvent{completed("")}, true},
		{kind{outcome: "revoked"}, []*history.HistoryEvent{started(false), completed("revoked")}, true},
		{kind{outcome: "revoked"}, []*history.HistoryEvent{started(true), completed("revoked")}, false},
		{kind{outcome: "revoked", adopted: true}, []*history.HistoryEvent{started(true), completed("revoked")}, true},
		{kind{outcome: "revoked", adopted: true}, []*history.HistoryEvent{started(false), completed("revoked")}, false},
	} {
		require.Equal(t, test.want, test.kind.is(&history.History{Events: test.events}), "%+v", test)
	}
}
