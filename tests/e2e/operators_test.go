package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/reflect/protoreflect"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// list finds workflows as the Web UI and the CLI do. What is new is listed a
// moment later.
func list(t *testing.T, query string) []*workflow.WorkflowExecutionInfo {
	t.Helper()
	found, err := slipway.temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query})
	require.NoError(t, err)
	return found.GetExecutions()
}

// details are the current details of a workflow.
func details(t *testing.T, workflowID string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := slipway.temporal.QueryWorkflow(ctx, workflowID, "", "__temporal_workflow_metadata")
	require.NoError(t, err)
	var metadata sdk.WorkflowMetadata
	require.NoError(t, answer.Get(&metadata))
	return metadata.GetCurrentDetails()
}

// workflowOf is the ID of the workflow of a build.
func (s *site) workflowOf(t *testing.T, id string, build int64) string {
	t.Helper()
	b, err := s.api(t).Build(t.Context(), deployment.Ref{Deployment: id, Build: build})
	require.NoError(t, err)
	return b.WorkflowID
}

func TestOperatorFindsWorkflows(t *testing.T) {
	t.Parallel()
	const id = "operated"
	slipway.submit(t, id, `"deploy":"gate"`)
	slipway.started(t, id, "deploy", 1)
	slipway.submit(t, id, "")
	slipway.build(t, id, 2, deployment.StatusQueued)

	running, queued := slipway.workflowOf(t, id, 1), slipway.workflowOf(t, id, 2)
	for _, workflowID := range []string{running, queued} {
		require.True(t, strings.HasPrefix(workflowID, "submit/"+id+"/"), workflowID)
		found, err := slipway.temporal.DescribeWorkflow(t.Context(), workflowID, "")
		require.NoError(t, err)
		summary, err := found.GetStaticSummary()
		require.NoError(t, err)
		require.Equal(t, "submit of "+id, summary)
	}
	for workflowID, waits := range map[string]string{running: "Build 1 of `operated`: the deployer runs", queued: "Build 2 of `operated`: waits until the older builds"} {
		await(t, patience, func() error {
			if got := details(t, workflowID); !strings.HasPrefix(got, waits) {
				return fmt.Errorf("details of %s: %s", workflowID, got)
			}
			return nil
		})
	}
	for query, want := range map[string][]string{
		"SlipwayDeployment = 'operated'":                                                     {running, queued},
		"SlipwayDeployment = 'operated' AND SlipwayBuild = 1":                                {running},
		"SlipwayDeployment = 'operated' AND SlipwayBuild = 2":                                {queued},
		"SlipwayDeployment = 'operated' AND SlipwayBuild > 2":                                nil,
		"SlipwayDeployment = 'operated' AND WorkflowType = 'Submit'":                         {running, queued},
		"SlipwayDeployment IN ('operated', 'x') AND ExecutionStatus = 'Running'":             {running, queued},
		"SlipwayDeployment = 'operate'":                                                      nil,
		"SlipwayDeployment STARTS_WITH 'operate' AND SlipwayBuild = 1 AND CloseTime IS NULL": {running},
	} {
		await(t, patience, func() error {
			var got []string
			for _, w := range list(t, query) {
				got = append(got, w.GetExecution().GetWorkflowId())
			}
			if len(got) != len(want) || len(got) > 0 && !same(got, want) {
				return fmt.Errorf("%s: found %v", query, got)
			}
			return nil
		})
	}

	slipway.open(t, id)
	slipway.build(t, id, 2, deployment.StatusSucceeded)
	for workflowID, said := range map[string]string{running: "Build 1 of `operated`: succeeded.", queued: "Build 2 of `operated`: succeeded."} {
		var result wire.BuildResult
		require.NoError(t, slipway.temporal.GetWorkflow(t.Context(), workflowID, "").Get(t.Context(), &result))
		require.Equal(t, "succeeded", result.Outcome)
		require.Equal(t, said, details(t, workflowID))
	}
	destroyed, err := slipway.api(t).Destroy(t.Context(), id)
	require.NoError(t, err)
	slipway.settled(t, id)
	await(t, patience, func() error {
		found := list(t, "SlipwayDeployment = 'operated' AND WorkflowType = 'Destroy' AND SlipwayBuild = 3")
		if len(found) != 1 || found[0].GetExecution().GetWorkflowId() != slipway.workflowOf(t, id, destroyed.Build) {
			return fmt.Errorf("found %v", found)
		}
		return nil
	})
}

func same(a, b []string) bool {
	have := map[string]bool{}
	for _, s := range a {
		have[s] = true
	}
	for _, s := range b {
		if !have[s] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestFailedDeployIsAFailedWorkflow(t *testing.T) {
	t.Parallel()
	const id = "failed-workflow"
	slipway.submit(t, id, `"deploy":"fail"`)
	require.Equal(t, deployment.StateFailed, slipway.settled(t, id).State)
	workflowID := slipway.workflowOf(t, id, 1)
	err := slipway.temporal.GetWorkflow(t.Context(), workflowID, "").Get(t.Context(), nil)
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, wire.ErrorBuildFailed, failed.Type())
	require.Contains(t, failed.Message(), "build 1 failed: the deployer exited with 3")
	require.True(t, strings.HasPrefix(details(t, workflowID), "Build 1 of `failed-workflow`: failed the deployer exited with 3"), details(t, workflowID))
	await(t, patience, func() error {
		if found := list(t, "SlipwayDeployment = 'failed-workflow' AND ExecutionStatus = 'Failed'"); len(found) != 1 {
			return fmt.Errorf("found %v", found)
		}
		return nil
	})
}

// TestHistoryIsShort: the log of a build is not in it, and what is large in it
// is the configuration.
func TestHistoryIsShort(t *testing.T) {
	t.Parallel()
	const id, limit = "history", 64 << 10
	note := strings.Repeat("n", 100<<10)
	slipway.submit(t, id, `"deploy":"gate","note":"short"`)
	slipway.started(t, id, "deploy", 1)
	slipway.submit(t, id, `"deploy":"lines-5000","note":"`+note+`"`) // which waits for its turn too
	slipway.open(t, id)
	slipway.build(t, id, 2, deployment.StatusSucceeded)
	require.Equal(t, lines("lines-5000", 2, "%d", 5000), slipway.logOf(t, id, 2))
	require.Equal(t, deployment.StateIdle, slipway.destroy(t, id).State)
	for build := range int64(3) {
		workflowID := slipway.workflowOf(t, id, build+1)
		require.NoError(t, slipway.temporal.GetWorkflow(t.Context(), workflowID, "").Get(t.Context(), nil))
		found := events(t, workflowID, "")
		require.Less(t, len(found), 60)
		large := 0
		for _, event := range found {
			for _, p := range payloads(event.ProtoReflect()) {
				require.NotContains(t, string(p.GetData()), "4321\n", "a line of the log")
				if len(p.GetData()) > limit {
					require.True(t, bytes.Contains(p.GetData(), []byte(note)), event.GetEventType())
					require.Less(t, len(p.GetData()), len(note)+1<<10, event.GetEventType())
					large++
				}
			}
		}
		require.Equal(t, build == 1, large > 0, "the configuration is there")
	}
}

// interventions are what an operator can do to a workflow in the Web UI or by
// the CLI.
var interventions = map[string]func(t *testing.T, workflowID string) error{
	"terminate": func(t *testing.T, workflowID string) error {
		return slipway.temporal.TerminateWorkflow(t.Context(), workflowID, "", "a test")
	},
	"cancel": func(t *testing.T, workflowID string) error {
		return slipway.temporal.CancelWorkflow(t.Context(), workflowID, "")
	},
	"reset-first": func(t *testing.T, workflowID string) error { return reset(t, workflowID, true) },
	"reset-last":  func(t *testing.T, workflowID string) error { return reset(t, workflowID, false) },
}

// reset begins a run of a workflow anew at its first or its last workflow
// task.
func reset(t *testing.T, workflowID string, first bool) error {
	t.Helper()
	var at int64
	for _, event := range events(t, workflowID, "") {
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED && (at == 0 || !first) {
			at = event.GetEventId()
		}
	}
	_, err := slipway.temporal.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &common.WorkflowExecution{WorkflowId: workflowID},
		Reason: "a test", RequestId: workflowID, WorkflowTaskFinishEventId: at,
	})
	return err
}

func TestOperatorIntervenes(t *testing.T) {
	t.Parallel()
	for name, intervene := range interventions {
		t.Run(name+" a submit that evaluates", func(t *testing.T) {
			t.Parallel()
			id, reset := name+"-evaluating", strings.HasPrefix(name, "reset")
			given := body(configuration(`"evaluate":"slow","work":600`))
			if reset { // it has to come to an end
				given = body(configuration(`"evaluate":"slow","work":1,"note":"` + name + `"`))
			}
			workflowID := wire.SubmitID(id, wire.HashRequest(id))
			submitted := meanwhile(t, func() answer { return slipway.put(t, id, given) })
			awaitActivity(t, workflowID, "Names")
			require.NoError(t, intervene(t, workflowID))
			a := submitted()
			if !reset || a.Status != http.StatusAccepted {
				require.Equal(t, http.StatusServiceUnavailable, a.Status, a.Body)
				require.NotEmpty(t, a.Header.Get("Retry-After"))
				// A workflow that was cancelled has the time to say what it knows.
				require.Regexp(t, "send it again with the same Idempotency-Key|nothing was recorded; send it again later", a.Message)
			}
			if !reset {
				slipway.nothingStored(t, id)
				given = body(configuration(""))
			}
			a = slipway.put(t, id, given)
			require.Equal(t, http.StatusAccepted, a.Status, a.Body)
			require.Contains(t, a.Body, `"build":1,`)
			require.Equal(t, deployment.StateActive, slipway.settled(t, id).State)
			require.Equal(t, []string{"start deploy 1", "end deploy 1"}, slipway.runs(t, id))
			usable(t, id)
		})
		t.Run(name+" a queued submit", func(t *testing.T) {
			t.Parallel()
			id := name + "-queued"
			slipway.submit(t, id, `"deploy":"gate"`)
			slipway.started(t, id, "deploy", 1)
			slipway.submit(t, id, `"note":"queued"`)
			awaitActivity(t, slipway.workflowOf(t, id, 2), "AwaitTurn")
			require.NoError(t, intervene(t, slipway.workflowOf(t, id, 2)))
			want := deployment.StatusFailed
			switch name {
			case "cancel":
				want = deployment.StatusCancelled
			case "reset-first", "reset-last": // it goes on
				want = deployment.StatusSucceeded
				slipway.open(t, id)
			}
			b := slipway.build(t, id, 2, want)
			if want == deployment.StatusFailed {
				require.Contains(t, b.Reason, "its workflow "+b.WorkflowID+" ended")
			}
			slipway.open(t, id)
			require.Equal(t, deployment.StatusSucceeded, slipway.build(t, id, 1, deployment.StatusSucceeded).Status)
			d := slipway.settled(t, id)
			require.Equal(t, deployment.StateActive, d.State, d.Reason)
			usable(t, id)
		})
		t.Run(name+" a submit that deploys", func(t *testing.T) {
			t.Parallel()
			id := name + "-deploying"
			slipway.submit(t, id, `"deploy":"gate"`)
			pid := slipway.started(t, id, "deploy", 1)
			require.NoError(t, intervene(t, slipway.workflowOf(t, id, 1)))
			d := slipway.settled(t, id)
			gone(t, pid)
			require.Equal(t, deployment.StateFailed, d.State, "it ended half-way")
			require.Nil(t, d.Live)
			require.Equal(t, []string{"start deploy 1"}, slipway.runs(t, id), "a deploy runs once")
			slipway.open(t, id)
			usable(t, id)
		})
		t.Run(name+" a destroy that hauls out", func(t *testing.T) {
			t.Parallel()
			id := name + "-destroying"
			slipway.deploy(t, id, `"destroy":"gate"`)
			destroyed, err := slipway.api(t).Destroy(t.Context(), id)
			require.NoError(t, err)
			pid := slipway.started(t, id, "destroy", destroyed.Build)
			require.NoError(t, intervene(t, slipway.workflowOf(t, id, destroyed.Build)))
			gone(t, pid)
			slipway.open(t, id) // for another try, where there is one
			switch d := slipway.settled(t, id); d.State {
			case deployment.StateIdle:
				require.Contains(t, slipway.runs(t, id), fmt.Sprintf("end destroy %d", destroyed.Build))
			case deployment.StateFailed:
				require.EqualValues(t, 1, *d.Live)
				require.NotContains(t, slipway.runs(t, id), fmt.Sprintf("end destroy %d", destroyed.Build))
			default:
				t.Fatalf("%s: %s", d.State, d.Reason)
			}
			usable(t, id)
		})
	}
	for _, name := range []string{"reset-first", "reset-last"} {
		t.Run(name+" what has ended", func(t *testing.T) {
			t.Parallel()
			id := name + "-ended"
			slipway.deploy(t, id, `"note":"first"`)
			slipway.submit(t, id, `"deploy":"fail"`)
			require.Equal(t, deployment.StateFailed, slipway.settled(t, id).State)
			require.Equal(t, deployment.StateIdle, slipway.destroy(t, id).State)
			slipway.deploy(t, id, `"note":"last"`)
			before, runs := slipway.settled(t, id), slipway.runs(t, id)
			for build, failed := range []bool{false, true, false, false} {
				workflowID := slipway.workflowOf(t, id, int64(build+1))
				require.NoError(t, interventions[name](t, workflowID))
				err := slipway.temporal.GetWorkflow(t.Context(), workflowID, "").Get(t.Context(), nil)
				require.Equal(t, failed, err != nil, "the same end as before: %v", err)
			}
			require.Equal(t, before, slipway.settled(t, id))
			require.Equal(t, runs, slipway.runs(t, id), "nothing ran again")
			usable(t, id)
		})
	}
}

// awaitActivity waits until a workflow waits for an activity.
func awaitActivity(t *testing.T, workflowID, name string) {
	t.Helper()
	await(t, patience, func() error {
		description, err := slipway.temporal.DescribeWorkflowExecution(t.Context(), workflowID, "")
		if err != nil { // it may not have started
			return err
		}
		for _, a := range description.GetPendingActivities() {
			if a.GetActivityType().GetName() == name && a.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED {
				return nil
			}
		}
		return fmt.Errorf("%s does not wait for %s", workflowID, name)
	})
}

// usable says that the next submit and destroy of a deployment work, and that
// two deployers never ran at once.
func usable(t *testing.T, id string) {
	t.Helper()
	build := slipway.deploy(t, id, `"note":"usable"`)
	require.Equal(t, build, *slipway.settled(t, id).Live)
	d := slipway.destroy(t, id)
	require.Equal(t, deployment.StateIdle, d.State, d.Reason)
	require.NotContains(t, slipway.record(t, id), "OVERLAP")
	require.Equal(t, []string{
		fmt.Sprintf("start deploy %d", build), fmt.Sprintf("end deploy %d", build),
		fmt.Sprintf("start destroy %d", build+1), fmt.Sprintf("end destroy %d", build+1),
	}, slipway.runs(t, id)[len(slipway.runs(t, id))-4:])
	for _, status := range slipway.statuses(t, id) {
		require.True(t, status.Ended())
	}
	// Nothing goes on unseen.
	builds, err := slipway.api(t).Builds(t.Context(), id, 0, 0)
	require.NoError(t, err)
	for _, b := range builds {
		await(t, patience, func() error {
			w, err := slipway.temporal.DescribeWorkflow(t.Context(), b.WorkflowID, "")
			var notFound *serviceerror.NotFound
			if err != nil && !errors.As(err, &notFound) {
				return err
			}
			if err == nil && w.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
				return fmt.Errorf("the workflow of build %d runs", b.Number)
			}
			return nil
		})
	}
}

// payloads collects the payloads of a message.
func payloads(m protoreflect.Message) (found []*common.Payload) {
	if p, ok := m.Interface().(*common.Payload); ok {
		return []*common.Payload{p}
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
					found = append(found, payloads(value.Message())...)
					return true
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				found = append(found, payloads(value.List().Get(i).Message())...)
			}
		default:
			found = append(found, payloads(value.Message())...)
		}
		return true
	})
	return found
}
