package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"

	"slipway.dev/slipway/schema/wire"
)

// looked is how many runs of a type are looked at for one with an outcome.
const looked = 1000

// kind is an end that a workflow can come to.
type kind struct {
	name     string // of the file, without .json
	workflow string
	status   string // in the language of visibility queries
	outcome  string // of the result; empty: any result
	step     string // an activity that it had on the way; empty: any way
	adopted  bool   // the run carries on what another one began
}

func kinds() []kind {
	return []kind{
		{"submit-succeeded", wire.WorkflowSubmit, "Completed", "succeeded", "Deploy", false},
		{"submit-failed", wire.WorkflowSubmit, "Failed", "", "Deploy", false},
		{"submit-cancelled", wire.WorkflowSubmit, "Completed", "cancelled", "Deploy", false},
		{"submit-cancelled-by-operator", wire.WorkflowSubmit, "Canceled", "", "Deploy", false},
		{"submit-superseded", wire.WorkflowSubmit, "Completed", "superseded", "", false},
		{"submit-refused", wire.WorkflowSubmit, "Completed", "refused", "", false},
		{"import-succeeded", wire.WorkflowImport, "Completed", "succeeded", "Deploy", false},
		{"import-stored", wire.WorkflowImport, "Completed", "stored", "Systems", false},
		{"import-refused", wire.WorkflowImport, "Completed", "refused", "Systems", false},
		{"destroy-succeeded", wire.WorkflowDestroy, "Completed", "succeeded", "Destroy", false},
		{"destroy-called-back", wire.WorkflowDestroy, "Completed", "succeeded", "CallBack", false},
		{"destroy-idle", wire.WorkflowDestroy, "Completed", "idle", "", false},
		{"destroy-joined", wire.WorkflowDestroy, "Completed", "joined", "", false},
		{"preview", wire.WorkflowPreview, "Completed", "", "", false},
		{"schemabuild", wire.WorkflowSchemaBuild, "Completed", "", "", false},
		{"lease-released", wire.WorkflowLease, "Completed", "released", "LookAtLease", false},
		{"lease-expired", wire.WorkflowLease, "Completed", "expired", "LookAtLease", false},
		{"lease-revoked", wire.WorkflowLease, "Completed", "revoked", "RevokeLease", false},
		{"lease-adopted", wire.WorkflowLease, "Completed", "revoked", "RevokeLease", true},
		{"planned-admitted", wire.WorkflowPlanned, "Completed", "admitted", "LookAtPlanned", false},
		{"planned-reported", wire.WorkflowPlanned, "Completed", "admitted", "ClearPlanned", false},
	}
}

// save writes the history of the newest run of a kind and says what it did.
func (k kind) save(ctx context.Context, temporal client.Client, folder string, replace bool) (did string, err error) {
	file := filepath.Join(folder, k.name+".json")
	if _, err := os.Stat(file); err == nil && !replace {
		return "kept " + file, nil
	}
	h, err := k.find(ctx, temporal)
	if err != nil {
		return "", err
	}
	text, err := encode(h)
	if err != nil {
		return "", fmt.Errorf("encode a history: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("wrote %s, %d events of %s", file, len(h.GetEvents()),
		h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowId()), nil
}

// find looks for the newest run of a kind.
func (k kind) find(ctx context.Context, temporal client.Client) (*history.History, error) {
	in := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = '%s'", k.workflow, k.status),
	}
	for seen := 0; seen < looked; {
		page, err := temporal.ListWorkflow(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", in.Query, err)
		}
		for _, info := range page.GetExecutions() {
			h, err := read(ctx, temporal, info.GetExecution())
			if err != nil || k.is(h) {
				return h, err
			}
			seen++
		}
		in.NextPageToken = page.GetNextPageToken()
		if len(in.NextPageToken) == 0 {
			break
		}
	}
	return nil, errors.New("the server has no such run")
}

// read gets a whole history, which has at least one event.
func read(ctx context.Context, temporal client.Client, run *common.WorkflowExecution) (*history.History, error) {
	events := temporal.GetWorkflowHistory(ctx, run.GetWorkflowId(), run.GetRunId(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	var h history.History
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("read the history of %s: %w", run.GetWorkflowId(), err)
		}
		h.Events = append(h.Events, event)
	}
	return &h, nil
}

// is reports whether a history of the type and status of a kind is one of it.
func (k kind) is(h *history.History) bool {
	started := h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	var input struct {
		Adopt bool `json:"adopt"`
	}
	// Inputs of another shape adopt nothing.
	_ = converter.GetDefaultDataConverter().FromPayloads(started.GetInput(), &input)
	if input.Adopt != k.adopted {
		return false
	}
	step := k.step == ""
	for _, event := range h.GetEvents() {
		step = step || event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == k.step
	}
	if k.outcome == "" {
		return step
	}
	var result struct { // of any workflow
		Outcome string `json:"outcome"`
	}
	end := h.GetEvents()[len(h.GetEvents())-1].GetWorkflowExecutionCompletedEventAttributes()
	err := converter.GetDefaultDataConverter().FromPayloads(end.GetResult(), &result)
	return step && err == nil && result.Outcome == k.outcome
}

// encode writes a history so that the same one is always the same text. It
// leaves out which processes on which machines took part: a replay asks for
// nothing of that, and it would be noise in a repository.
func encode(h *history.History) ([]byte, error) {
	text, err := protojson.Marshal(h)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	forget(tree)
	text, err = json.MarshalIndent(tree, "", " ")
	return append(text, '\n'), err
}

// forget removes the identities of workers and clients, and the names of the
// queues that a worker has for itself. Payloads are base64 and stay.
func forget(tree any) {
	switch tree := tree.(type) {
	case map[string]any:
		delete(tree, "identity")
		if tree["kind"] == "TASK_QUEUE_KIND_STICKY" {
			delete(tree, "name")
		}
		for _, branch := range tree {
			forget(branch)
		}
	case []any:
		for _, branch := range tree {
			forget(branch)
		}
	}
}
