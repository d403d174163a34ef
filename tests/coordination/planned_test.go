package coordination

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/alerts"
)

// plannedSoon is how long a look at a hold may be away.
const plannedSoon = 8 * time.Second

// reports waits until status.plannedFailover has these members; nil is none.
func (r *room) reports(want map[string]any) {
	r.t.Helper()
	await(r.t, plannedSoon, func() error {
		got := r.failover()
		for member, value := range want {
			if got[member] != value {
				return fmt.Errorf("%s is %v, not %v (%v)", member, got[member], value, got)
			}
		}
		return nil
	})
}

// plans waits for the result of the group's planned operation.
func (r *room) plans(want wire.PlannedResult) {
	r.t.Helper()
	var result wire.PlannedResult
	require.NoError(r.t, all.temporal.GetWorkflow(r.t.Context(), wire.PlannedID(r.namespace, r.group), "").Get(r.t.Context(), &result))
	require.Equal(r.t, want, result)
}

func TestAPlannedFailoverWaitsForTheHold(t *testing.T) {
	t.Parallel()
	r := enter(t)
	mutex := r.granted(migration, operation, 90)
	a := r.grant(hold, operation, 60)
	held := a.text(t, "token")
	deferred := map[string]any{
		"phase": "Deferred", "reason": "DeploymentHold", "target": "pdx", "sourcePrimary": "iad", "retryAfter": a.text(t, "expiresAt"),
		"message": "failover hold of operation " + operation + " (instance orders-app)",
	}
	r.annotate(lease.AnnotationPlannedFailover, "pdx:maxLag=5s")
	r.reports(deferred)
	r.grant(migration, operation, 60).is(t, http.StatusLocked, `{"error":"unstable","reason":"PlannedFailover","retryAfterSeconds":1}`)
	r.grant(hold, operation, 60).is(t, http.StatusLocked, `{"error":"unstable","reason":"PlannedFailover","retryAfterSeconds":1}`)
	require.Contains(t, r.get().body, `"operations":{"plannedFailover":{"phase":"Deferred","reason":"DeploymentHold"}`)

	deferred["retryAfter"] = r.renew(hold, operation, held, 120).text(t, "expiresAt")
	r.reports(deferred)
	require.Equal(t, http.StatusNoContent, r.release(hold, operation, held).status)
	r.reports(map[string]any{"phase": "Pending", "reason": nil, "retryAfter": nil, "target": "pdx"})
	require.NotContains(t, r.look().GetAnnotations(), lease.AnnotationPlannedFailover)
	r.plans(wire.PlannedResult{
		Outcome: "admitted", PlannedRequest: wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "pdx"}, Message: "handed over to the operator",
	})
	require.Len(t, r.events("PlannedFailoverDeferred"), 1)
	require.Contains(t, r.series(), fmt.Sprintf(`bloodraven_planned_failovers_deferred_total{group="%s",reason="DeploymentHold"} 1`, r.group))
	missing, err := alerts.Missing(strings.Join(r.series(), "\n"), "bloodraven_planned_")
	require.NoError(t, err)
	require.Empty(t, missing, "what alerts and dashboard ask for")
	// The migration goes on until the site changes.
	require.Equal(t, http.StatusOK, r.renew(migration, operation, mutex, 60).status)
}

func TestAPlannedFailoverGoesOnWhenTheHoldExpires(t *testing.T) {
	t.Parallel()
	r := enter(t)
	r.granted(migration, operation, 90)
	r.granted(hold, operation, 5)
	r.annotate(lease.AnnotationPlannedFailover, "pdx")
	r.reports(map[string]any{"phase": "Pending", "reason": nil})
	require.Equal(t, lease.StateExpired, r.record(hold, operation).State, "written before Pending")
}

func TestAMigrationAloneDefersNothing(t *testing.T) {
	t.Parallel()
	r := enter(t)
	r.granted(migration, operation, 90)
	r.annotate(lease.AnnotationPlannedFailover, "pdx")
	r.reports(map[string]any{"phase": "Pending", "reason": nil})
	require.Empty(t, r.events("PlannedFailoverDeferred"))
}

func TestAPlannedFailoverToAnUnknownSite(t *testing.T) {
	t.Parallel()
	r := enter(t)
	r.granted(migration, operation, 90)
	r.annotate(lease.AnnotationPlannedFailover, "lhr")
	r.reports(map[string]any{"phase": "Failed", "reason": "TargetUnknown"})
	require.NotContains(t, r.look().GetAnnotations(), lease.AnnotationPlannedFailover)
	require.Equal(t, http.StatusOK, r.grant(migration, operation, 60).status)
}

// request runs `slipway planned request`.
func (r *room) request(code int, args ...string) wire.PlannedAnswer {
	r.t.Helper()
	output, got := command(r.t, append([]string{"planned", "request", "-n", r.namespace, "-g", r.group, "-o", "json"}, args...)...)
	require.Equal(r.t, code, got, output)
	var answer wire.PlannedAnswer
	if code != 2 {
		require.NoError(r.t, json.Unmarshal([]byte(output), &answer), output)
	}
	return answer
}

func TestAPlannedFailoverOfTheCommandLine(t *testing.T) {
	t.Parallel()
	r := enter(t)
	r.granted(migration, operation, 90)
	a := r.grant(hold, operation, 60)
	r.request(2, "--kind", "Failover")
	r.request(2, "--kind", "PlannedFailover")
	require.Equal(t, "TargetUnknown", r.request(4, "--kind", "PlannedFailover", "--target", "lhr").Reason)
	answer := r.request(75, "--kind", "PlannedFailover", "--target", "pdx")
	require.Equal(t, wire.PlannedDeferred, answer.Status)
	require.Equal(t, "DeploymentHold", answer.Reason)
	require.Equal(t, a.text(t, "expiresAt"), answer.RetryAfter.Format(time.RFC3339Nano))
	require.Equal(t, "ConcurrentOperation", r.request(4, "--kind", "OrderedUpdate").Reason)
	require.Equal(t, "ConcurrentOperation", r.request(4, "--kind", "PlannedFailover", "--target", "iad").Reason)
	require.Equal(t, http.StatusNoContent, r.release(hold, operation, a.text(t, "token")).status)
	r.reports(map[string]any{"phase": "Pending", "reason": nil})
	require.Equal(t, wire.PlannedAdmitted, r.request(0, "--kind", "PlannedFailover", "--target", "pdx").Status)
}

func TestAnOrderedUpdate(t *testing.T) {
	t.Parallel()
	r := enter(t)
	r.granted(migration, operation, 90)
	held := r.granted(hold, operation, 60)
	require.Equal(t, "DeploymentHold", r.request(75, "--kind", "OrderedUpdate", "--target", "8.4.9").Reason)
	reserved := func(want string) {
		t.Helper()
		await(t, plannedSoon, func() error {
			if got := r.look().GetAnnotations()[lease.AnnotationPlannedOperation]; got != want {
				return fmt.Errorf("the annotation is %q, not %q", got, want)
			}
			return nil
		})
	}
	reserved("OrderedUpdate/Deferred")
	const locked = `{"error":"unstable","reason":"OrderedUpdate","retryAfterSeconds":1}`
	r.grant(migration, operation, 60).is(t, http.StatusLocked, locked)
	r.grant(migration, another, 60).is(t, http.StatusConflict, `{"error":"held","holder":{"operationId":"%s","instance":"orders-app","expiresAt":"<time>"}}`, operation)
	require.Equal(t, http.StatusOK, r.renew(hold, operation, held, 60).status)
	require.Empty(t, r.failover(), "is not touched")
	require.Equal(t, http.StatusNoContent, r.release(hold, operation, held).status)
	reserved("OrderedUpdate/Pending")
	r.get().is(t, http.StatusLocked, locked)
	r.grant(migration, operation, 60).is(t, http.StatusLocked, locked)
	r.set("Updating", "updatePhase") // the operator takes it
	reserved("")
	r.grant(migration, operation, 60).is(t, http.StatusLocked, locked)
	r.plans(wire.PlannedResult{Outcome: "admitted", PlannedRequest: wire.PlannedRequest{Kind: lease.OrderedUpdate, Target: "8.4.9"}, Message: "handed over to the operator"})
}
