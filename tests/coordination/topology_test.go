package coordination

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/tests/stand"
)

// prompt is how long a revocation may take that nobody asks for by a request.
const prompt = 3 * time.Second

// failOver makes pdx the active site, as the operator reports it.
func failOver(t testing.TB, group *unstructured.Unstructured) {
	put(t, group, "pdx", "activeSite")
	put(t, group, []any{
		map[string]any{"name": "pdx", "state": "writable", "replicating": false},
		map[string]any{"name": "iad", "state": "read-only", "replicating": true, "secondsBehindSource": int64(0)},
	}, "sites")
}

func (r *room) generation() int64 {
	r.t.Helper()
	generation, _, err := unstructured.NestedInt64(r.look().Object, "status", "topologyGeneration")
	require.NoError(r.t, err)
	return generation
}

// series are the lines of the metrics of a group.
func (r *room) series() []string {
	r.t.Helper()
	text, err := all.metrics(r.t.Context(), stand.API)
	require.NoError(r.t, err)
	var found []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `group="`+r.group+`"`) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestAnotherTopologyRevokesEveryLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change     func(t testing.TB, group *unstructured.Unstructured)
		generation int64
		observed   string
		reason     lease.Reason
	}{
		"slipway raises": {failOver, 18, "pdx@18", lease.ReasonTopologyChanged},
		"the operator raises": {func(t testing.TB, group *unstructured.Unstructured) {
			failOver(t, group)
			put(t, group, int64(30), "topologyGeneration")
		}, 30, "pdx@30", lease.ReasonTopologyChanged},
		"the same site again": {func(t testing.TB, group *unstructured.Unstructured) {
			put(t, group, int64(19), "topologyGeneration")
		}, 19, "iad@19", lease.ReasonTopologyChanged},
		"annotation": {func(_ testing.TB, group *unstructured.Unstructured) {
			annotations := group.GetAnnotations()
			annotations[lease.AnnotationRevoke] = "incident 7"
			group.SetAnnotations(annotations)
		}, 17, "iad@17", lease.ReasonOperatorRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := enter(t)
			tokens := map[string]string{migration: r.granted(migration, operation, 60), hold: r.granted(hold, operation, 60)}
			r.change(func(group *unstructured.Unstructured) { c.change(t, group) })
			// Nobody sends a request now.
			r.becomes(prompt, migration, operation, lease.StateRevoked)
			r.becomes(prompt, hold, operation, lease.StateRevoked)
			await(t, prompt, func() error {
				annotations := r.look().GetAnnotations()
				if _, asked := annotations[lease.AnnotationRevoke]; asked || annotations[lease.AnnotationTopology] != c.observed {
					return fmt.Errorf("annotations %v", annotations)
				}
				return nil
			})
			require.Equal(t, c.generation, r.generation())
			for kind := range tokens {
				require.Equal(t, c.reason, r.record(kind, operation).Reason)
				r.ends(kind, operation, "revoked", c.reason)
			}
			events := r.events("DeploymentLeaseRevoked")
			slices.Sort(events)
			require.Equal(t, []string{
				fmt.Sprintf("Warning: the failover-hold lease of operation %s (instance orders-app) was revoked: %s", operation, c.reason),
				fmt.Sprintf("Warning: the migration lease of operation %s (instance orders-app) was revoked: %s", operation, c.reason),
			}, events)
			for kind, token := range tokens {
				require.Contains(t, r.series(),
					fmt.Sprintf(`bloodraven_deploy_lease_revocations_total{group="%s",kind="%s",reason="%s"} 1`, r.group, kind, c.reason))
				for range 2 { // however often it is looked at
					r.renew(kind, operation, token, 60).is(t, http.StatusConflict,
						`{"error":"revoked","reason":"%s","topologyGeneration":%d}`, c.reason, c.generation)
				}
				r.grant(kind, operation, 60).is(t, http.StatusConflict, `{"error":"revoked","reason":"%s","topologyGeneration":%d}`, c.reason, c.generation)
			}
			require.Len(t, r.events("DeploymentLeaseRevoked"), 2)
			r.grant(migration, another, 60).is(t, http.StatusCreated,
				`{"kind":"migration","operationId":"%s","token":"<token>","expiresAt":"<time>","topologyGeneration":%d}`, another, c.generation)
		})
	}
}

// A group without an active site keeps its leases until it has another one.
func TestAGroupWithoutAnActiveSite(t *testing.T) {
	t.Parallel()
	r := enter(t)
	token := r.granted(migration, operation, 60)
	r.set("", "activeSite")
	r.grant(hold, operation, 60).is(t, http.StatusLocked, `{"error":"unstable","reason":"NoPrimary","retryAfterSeconds":1}`)
	require.Equal(t, http.StatusOK, r.renew(migration, operation, token, 60).status)
	r.set("iad", "activeSite")
	require.Equal(t, http.StatusOK, r.renew(migration, operation, token, 60).status)
	r.set("", "activeSite")
	r.change(func(group *unstructured.Unstructured) { failOver(t, group) })
	// At the next request in any case: the watch may not have been there yet.
	await(t, prompt, func() error {
		a := r.renew(migration, operation, token, 60)
		if a.status == http.StatusLocked {
			a.is(t, http.StatusLocked, `{"error":"unstable","reason":"TopologyPersistencePending","retryAfterSeconds":1}`)
			return errors.New("is not written yet")
		}
		a.is(t, http.StatusConflict, `{"error":"revoked","reason":"topology_changed","topologyGeneration":18}`)
		return nil
	})
	require.Equal(t, int64(18), r.generation())
}
