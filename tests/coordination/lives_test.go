package coordination

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// listed waits until a query finds as many runs.
func listed(t testing.TB, query string, n int) []*workflow.WorkflowExecutionInfo {
	t.Helper()
	var found []*workflow.WorkflowExecutionInfo
	await(t, 20*time.Second, func() error {
		page, err := all.temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query})
		if found = page.GetExecutions(); err == nil && len(found) != n {
			err = fmt.Errorf("%s: %d runs, not %d", query, len(found), n)
		}
		return err
	})
	return found
}

// running is a query for the leases of the room that are held.
func (r *room) running() string {
	return fmt.Sprintf("SlipwayGroup = '%s/%s' AND WorkflowType = 'Lease' AND ExecutionStatus = 'Running'", r.namespace, r.group)
}

// ends waits for the result of a lease's workflow.
func (r *room) ends(kind, operation, outcome string, reason lease.Reason) {
	r.t.Helper()
	var result wire.LeaseResult
	require.NoError(r.t, all.temporal.GetWorkflow(r.t.Context(), r.workflow(kind, operation), "").Get(r.t.Context(), &result))
	require.Equal(r.t, wire.LeaseResult{Outcome: outcome, Reason: reason}, result)
}

func TestALeaseIsFoundInTemporalAndSaysHowItEnded(t *testing.T) {
	t.Parallel()
	r := enter(t)
	token := r.granted(migration, operation, 60)
	r.granted(hold, operation, 5)
	listed(t, r.running(), 2)
	found := listed(t, r.running()+" AND SlipwayLeaseKind = 'failover-hold'", 1)
	require.Equal(t, r.workflow(hold, operation), found[0].GetExecution().GetWorkflowId())
	described, err := all.temporal.DescribeWorkflowExecution(t.Context(), r.workflow(migration, operation), "")
	require.NoError(t, err)
	var summary string
	require.NoError(t, converter.GetDefaultDataConverter().FromPayload(described.GetExecutionConfig().GetUserMetadata().GetSummary(), &summary))
	require.Equal(t, "migration lease of "+r.namespace+"/"+r.group, summary)

	require.Equal(t, http.StatusNoContent, r.release(migration, operation, token).status)
	r.ends(migration, operation, "released", "")
	r.ends(hold, operation, "expired", "")
	require.Equal(t, lease.StateExpired, r.record(hold, operation).State)
	listed(t, r.running(), 0)
	// The same operation again is another run.
	r.granted(migration, operation, 60)
	listed(t, r.running(), 1)
}

// A renewal costs Temporal nothing, and moves the end of the lease.
func TestARenewalIsNotInTheHistory(t *testing.T) {
	t.Parallel()
	r := enter(t)
	token := r.granted(migration, operation, 60)
	short := r.granted(hold, operation, 5)
	end := time.Now().Add(5 * time.Second)
	require.Equal(t, http.StatusOK, r.renew(hold, operation, short, 60).status)
	// Until it sleeps: its timer is its last event.
	last := func() (event *history.HistoryEvent) {
		events := all.temporal.GetWorkflowHistory(t.Context(), r.workflow(migration, operation), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			var err error
			event, err = events.Next()
			require.NoError(t, err)
		}
		return event
	}
	await(t, 10*time.Second, func() error {
		if event := last(); event.GetTimerStartedEventAttributes() == nil || event.GetEventId() < 12 {
			return errors.New(event.String())
		}
		return nil
	})
	before := last().GetEventId()
	for range 10 {
		require.Equal(t, http.StatusOK, r.renew(migration, operation, token, 60).status)
	}
	require.Equal(t, before, last().GetEventId())
	time.Sleep(time.Until(end.Add(time.Second)))
	require.Equal(t, http.StatusOK, r.renew(hold, operation, short, 60).status)
	listed(t, r.running(), 2)
}

func TestRevokedByHand(t *testing.T) {
	t.Parallel()
	signal := func(r *room, kind, reason string) {
		require.NoError(r.t, all.temporal.SignalWorkflow(r.t.Context(), r.workflow(kind, operation), "", "revoke", map[string]string{"reason": reason}))
	}
	for name, c := range map[string]struct {
		revoke func(r *room)
		reason lease.Reason
		hold   bool // is revoked too
	}{
		"signal":                     {func(r *room) { signal(r, migration, "operator_revoked") }, lease.ReasonOperatorRevoked, false},
		"signal of another topology": {func(r *room) { signal(r, migration, "topology_changed") }, lease.ReasonTopologyChanged, false},
		"signal of any reason":       {func(r *room) { signal(r, migration, "it is <b>late</b>") }, lease.ReasonOperatorRevoked, false},
		"command": {func(r *room) {
			output, code := command(r.t, "lease", "revoke", "--namespace", r.namespace, "--group", r.group, "--operation-id", operation)
			require.Zero(r.t, code, output)
			require.Contains(r.t, output, r.workflow(migration, operation))
		}, lease.ReasonOperatorRevoked, false},
		"query of a group": {func(r *room) {
			for _, run := range listed(r.t, r.running(), 2) {
				require.NoError(r.t, all.temporal.SignalWorkflow(r.t.Context(), run.GetExecution().GetWorkflowId(), "", "revoke",
					wire.Revocation{Reason: lease.ReasonOperatorRevoked}))
			}
		}, lease.ReasonOperatorRevoked, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := enter(t)
			tokens := map[string]string{migration: r.granted(migration, operation, 60), hold: r.granted(hold, operation, 60)}
			c.revoke(r)
			for _, kind := range []string{migration, hold} {
				if kind == hold && !c.hold {
					require.Equal(t, http.StatusOK, r.renew(kind, operation, tokens[kind], 60).status)
					continue
				}
				r.ends(kind, operation, "revoked", c.reason)
				r.renew(kind, operation, tokens[kind], 60).is(t, http.StatusConflict, `{"error":"revoked","reason":"%s","topologyGeneration":17}`, c.reason)
				require.Contains(t, r.events("DeploymentLeaseRevoked"),
					fmt.Sprintf("Warning: the %s lease of operation %s (instance orders-app) was revoked: %s", kind, operation, c.reason))
			}
			n := 1
			if c.hold {
				n = 2
			}
			require.Len(t, r.events("DeploymentLeaseRevoked"), n, "each once")
		})
	}
}

func TestALeaseWhoseWorkflowWasTerminated(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(r *room, token string){
		"renews and is released": func(r *room, token string) {
			r.renew(migration, operation, token, 60).is(r.t, http.StatusOK, `{"expiresAt":"<time>","topologyGeneration":17}`)
			r.release(migration, operation, token).is(r.t, http.StatusNoContent, "")
			r.ends(migration, operation, "released", "")
			require.Equal(r.t, lease.StateReleased, r.record(migration, operation).State)
		},
		"is granted again": func(r *room, token string) {
			require.Equal(r.t, http.StatusOK, r.grant(migration, operation, 5).status)
			r.ends(migration, operation, "expired", "")
		},
		"expires": func(r *room, token string) {
			require.Equal(r.t, http.StatusOK, r.renew(migration, operation, token, 5).status)
			r.becomes(25*time.Second, migration, operation, lease.StateExpired)
			r.renew(migration, operation, token, 60).refused(r.t, http.StatusNotFound, "not_found")
			r.ends(migration, operation, "expired", "")
		},
		"is revoked": func(r *room, token string) {
			output, code := command(r.t, "lease", "revoke", "-n", r.namespace, "-g", r.group, "--operation-id", operation)
			require.Zero(r.t, code, output)
			r.ends(migration, operation, "revoked", lease.ReasonOperatorRevoked)
			r.renew(migration, operation, token, 60).is(r.t, http.StatusConflict, `{"error":"revoked","reason":"operator_revoked","topologyGeneration":17}`)
		},
		"is revoked with its group": func(r *room, token string) {
			r.annotate(lease.AnnotationRevoke, "1")
			r.becomes(3*time.Second, migration, operation, lease.StateRevoked)
			r.renew(migration, operation, token, 60).is(r.t, http.StatusConflict, `{"error":"revoked","reason":"operator_revoked","topologyGeneration":17}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := enter(t)
			token := r.granted(migration, operation, 60)
			require.NoError(t, all.temporal.TerminateWorkflow(t.Context(), r.workflow(migration, operation), "", "by a test"))
			then(r, token)
		})
	}
}
