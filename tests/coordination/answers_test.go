package coordination

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"slipway.dev/slipway/schema/lease"
)

const (
	migration = "migration"
	hold      = "failover-hold"
	operation = "11111111-1111-4111-8111-111111111111"
	another   = "22222222-2222-4222-8222-222222222222"
)

// quiet is the end of a GET of a group that nothing happens to.
const quiet = `"health":{"ready":true,"degradedReason":"","replicationRunning":true,"replicationLagSeconds":0,"recoveryPending":false},` +
	`"operations":{"plannedFailover":{"phase":"","reason":""},"updatePhase":"","restoreInPlace":"","dragonflyUpgrade":""},` +
	`"stable":true,"unstableReason":"","leases":[%s]}`

func (r *room) isQuiet(leases string) {
	r.t.Helper()
	r.get().is(r.t, http.StatusOK, `{"group":"%s","namespace":"%s","activeSite":"iad","topologyGeneration":17,`+quiet, r.group, r.namespace, leases)
}

// A client of the existing operator, as seed A has it.
func TestADeployOfAClientOfTheExistingOperator(t *testing.T) {
	t.Parallel()
	r := enter(t)
	r.isQuiet("")

	const granted = `{"kind":"%s","operationId":"` + operation + `","token":"<token>","expiresAt":"<time>","topologyGeneration":17}`
	a := r.grant(migration, operation, 30)
	a.is(t, http.StatusCreated, granted, migration)
	mutex := a.text(t, "token")
	a = r.grant(hold, operation, 60)
	a.is(t, http.StatusCreated, granted, hold)
	held := a.text(t, "token")
	require.NotEqual(t, mutex, held)

	const shown = `{"kind":"%s","operationId":"` + operation + `","instance":"orders-app","expiresAt":"<time>","topologyGeneration":17}`
	both := fmt.Sprintf(shown, migration) + "," + fmt.Sprintf(shown, hold)
	r.isQuiet(both)

	for kind, token := range map[string]string{migration: mutex, hold: held} {
		a = r.renew(kind, operation, token, 90)
		a.is(t, http.StatusOK, `{"expiresAt":"<time>","topologyGeneration":17}`)
		require.Contains(t, r.get().body, `"expiresAt":"`+a.text(t, "expiresAt")+`"`)
	}
	r.isQuiet(both)
	for kind, token := range map[string]string{hold: held, migration: mutex} {
		r.release(kind, operation, token).is(t, http.StatusNoContent, "")
	}
	r.isQuiet("")
}

func TestAGrantOfTheSameOperationRotatesTheToken(t *testing.T) {
	t.Parallel()
	r := enter(t)
	first := r.granted(migration, operation, 30)
	a := r.grant(migration, operation, 60)
	a.is(t, http.StatusOK, `{"kind":"migration","operationId":"%s","token":"<token>","expiresAt":"<time>","topologyGeneration":17}`, operation)
	second := a.text(t, "token")
	require.NotEqual(t, first, second)
	r.renew(migration, operation, first, 30).refused(t, http.StatusForbidden, "token_mismatch")
	r.release(migration, operation, first).refused(t, http.StatusForbidden, "token_mismatch")
	r.renew(migration, operation, second, 30).is(t, http.StatusOK, `{"expiresAt":"<time>","topologyGeneration":17}`)
}

func TestOneMigrationAtATime(t *testing.T) {
	t.Parallel()
	r := enter(t)
	a := r.grant(migration, operation, 60)
	until := a.text(t, "expiresAt")
	r.grant(migration, another, 60).is(t, http.StatusConflict,
		`{"error":"held","holder":{"operationId":"%s","instance":"orders-app","expiresAt":"%s"}}`, operation, until)
	// Another instance, even of the same caller, is another holder.
	all.kube.Database(t, r.namespace, "orders-jobs", r.group, r.account)
	r.grantFor("orders-jobs", migration, operation, 60).is(t, http.StatusConflict,
		`{"error":"held","holder":{"operationId":"%s","instance":"orders-app","expiresAt":"%s"}}`, operation, until)
	r.grant(hold, another, 60).refused(t, http.StatusForbidden, "forbidden")
	r.grantFor("orders-jobs", hold, operation, 60).refused(t, http.StatusForbidden, "forbidden")
	// A hold survives a handoff of the mutex, and needs it no more.
	held := r.granted(hold, operation, 60)
	r.release(migration, operation, a.text(t, "token")).is(t, http.StatusNoContent, "")
	r.granted(migration, another, 60)
	r.renew(hold, operation, held, 60).is(t, http.StatusOK, `{"expiresAt":"<time>","topologyGeneration":17}`)
	r.grant(hold, operation, 60).refused(t, http.StatusForbidden, "forbidden")
	r.release(hold, operation, held).is(t, http.StatusNoContent, "")
}

func TestTimeToLiveIsClamped(t *testing.T) {
	t.Parallel()
	r := enter(t)
	token := r.granted(migration, operation, 30)
	for ttl, want := range map[string]time.Duration{
		"-1": 5, "0": 5, "5": 5, "6": 6, "119": 119, "121": 120, "100000000000000000000": 120,
	} {
		for _, method := range []string{http.MethodPut, http.MethodPost} {
			if method == http.MethodPost && want > 5 && want < 120 {
				continue // a grant costs more
			}
			path, body := r.path(migration, operation), fmt.Sprintf(`{"token":%q,"ttlSeconds":%s}`, token, ttl)
			if method == http.MethodPost {
				path = "/groups/" + r.group + "/leases"
				body = fmt.Sprintf(`{"kind":"migration","operationId":%q,"instance":"orders-app","ttlSeconds":%s}`, operation, ttl)
			}
			before := time.Now().Truncate(time.Microsecond)
			a := r.call(method, path, body, nil)
			after := time.Now()
			require.Equal(t, http.StatusOK, a.status, a.body)
			if method == http.MethodPost {
				token = a.text(t, "token")
			}
			until, err := time.Parse(time.RFC3339Nano, a.text(t, "expiresAt"))
			require.NoError(t, err)
			granted := until.Add(-want * time.Second)
			require.False(t, granted.Before(before) || granted.After(after), "%s of %s: %s is not within %s and %s", method, ttl, granted, before, after)
		}
	}
}

func TestALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	r := enter(t)
	wrong := strings.Repeat("0", 64)
	r.renew(migration, operation, wrong, 30).refused(t, http.StatusNotFound, "not_found")
	r.release(migration, operation, wrong).is(t, http.StatusNoContent, "")
	r.release(migration, operation, "").is(t, http.StatusNoContent, "")

	over := map[string]func(token string){
		"released": func(token string) { r.release(migration, operation, token).is(t, http.StatusNoContent, "") },
		"expired":  func(string) { r.becomes(10*time.Second, migration, operation, lease.StateExpired) },
	}
	for _, how := range []string{"released", "expired"} {
		token := r.granted(migration, operation, 5) // both may come again, with 201
		r.renew(migration, operation, wrong, 5).refused(t, http.StatusForbidden, "token_mismatch")
		r.release(migration, operation, wrong).refused(t, http.StatusForbidden, "token_mismatch")
		r.release(migration, operation, "").refused(t, http.StatusForbidden, "token_mismatch")
		over[how](token)
		r.renew(migration, operation, token, 30).refused(t, http.StatusNotFound, "not_found")
		r.renew(migration, operation, wrong, 30).refused(t, http.StatusForbidden, "token_mismatch")
		r.release(migration, operation, token).is(t, http.StatusNoContent, "")
		r.release(migration, operation, wrong).refused(t, http.StatusForbidden, "token_mismatch")
		r.isQuiet("")
	}
}

func TestWhatWasRevokedStaysRevoked(t *testing.T) {
	t.Parallel()
	r := enter(t)
	tokens := map[string]string{migration: r.granted(migration, operation, 60), hold: r.granted(hold, operation, 60)}
	r.annotate(lease.AnnotationRevoke, "")
	const revoked = `{"error":"revoked","reason":"operator_revoked","topologyGeneration":17}`
	still := func() {
		for kind, token := range tokens {
			r.renew(kind, operation, token, 60).is(t, http.StatusConflict, revoked)
			r.grant(kind, operation, 60).is(t, http.StatusConflict, revoked)
			r.renew(kind, operation, "wrong", 60).refused(t, http.StatusForbidden, "token_mismatch")
			r.release(kind, operation, "wrong").refused(t, http.StatusForbidden, "token_mismatch")
			r.release(kind, operation, token).is(t, http.StatusNoContent, "")
		}
	}
	still()
	token := r.granted(migration, another, 60)
	still()
	r.renew(migration, another, token, 60).is(t, http.StatusOK, `{"expiresAt":"<time>","topologyGeneration":17}`)
}

func TestAGroupThatIsNotStable(t *testing.T) {
	t.Parallel()
	condition := func(kind, status, reason string) func(*unstructured.Unstructured) {
		return func(group *unstructured.Unstructured) {
			conditions, _, _ := unstructured.NestedSlice(group.Object, "status", "conditions")
			var kept []any
			for _, one := range conditions {
				if one.(map[string]any)["type"] != kind {
					kept = append(kept, one)
				}
			}
			put(t, group, append(kept, map[string]any{
				"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
			}), "conditions")
		}
	}
	status := func(value any, fields ...string) func(*unstructured.Unstructured) {
		return func(group *unstructured.Unstructured) { put(t, group, value, fields...) }
	}
	for reason, change := range map[string]func(*unstructured.Unstructured){
		"PlannedFailover":       status("Draining", "plannedFailover", "phase"),
		"OrderedUpdate":         status("Updating", "updatePhase"),
		"Restore":               status("Running", "restore", "phase"),
		"RestoreInPlace":        status("Running", "restoreInPlace", "phase"),
		"DragonflyUpgrade":      status("Running", "dragonfly", "upgrade", "phase"),
		"DragonflyStarting":     status("Starting", "dragonfly", "phase"),
		"SplitBrain":            condition("Degraded", "True", "SplitBrain"),
		"RecoveryPending":       condition("RecoveryPending", "True", "RecoveryPending"),
		"NotReady":              condition("Ready", "False", "Whatever"),
		"NoPrimary":             status("", "activeSite"),
		"SiteNotObserved":       status([]any{map[string]any{"name": "iad", "state": "writable", "replicating": false}}, "sites"),
		"ReplicationNotRunning": func(group *unstructured.Unstructured) { setSite(t, group, "replicating", false) },
		"SiteNotReady":          func(group *unstructured.Unstructured) { setSite(t, group, "state", "unreachable") },
		"RecoveryBlocked":       func(group *unstructured.Unstructured) { setSite(t, group, "recoveryState", "RecoveryBlocked") },
		"SourceConvergencePending": func(group *unstructured.Unstructured) {
			setSite(t, group, "sourceConvergenceState", "Pending")
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			r := enter(t)
			token := r.granted(migration, operation, 60)
			r.change(change)
			unstable := fmt.Sprintf(`{"error":"unstable","reason":"%s","retryAfterSeconds":1}`, reason)
			r.grant(hold, operation, 60).is(t, http.StatusLocked, "%s", unstable)
			r.grant(migration, operation, 60).is(t, http.StatusLocked, "%s", unstable)
			a := r.get()
			require.Equal(t, http.StatusOK, a.status)
			require.Contains(t, a.body, fmt.Sprintf(`"stable":false,"unstableReason":"%s","leases":[{"kind":"migration"`, reason))
			// It keeps nobody from going on, or from ending.
			r.renew(migration, operation, token, 60).is(t, http.StatusOK, `{"expiresAt":"<time>","topologyGeneration":17}`)
			r.release(migration, operation, token).is(t, http.StatusNoContent, "")
		})
	}
	t.Run("lag alone is the caller's policy", func(t *testing.T) {
		t.Parallel()
		r := enter(t)
		r.change(func(group *unstructured.Unstructured) {
			setSite(t, group, "secondsBehindSource", int64(400))
			condition("Degraded", "True", "ReplicationLagging")(group)
		})
		r.granted(migration, operation, 60)
		a := r.get()
		require.Contains(t, a.body, `"health":{"ready":true,"degradedReason":"ReplicationLagging","replicationRunning":true,"replicationLagSeconds":400,`)
		require.Contains(t, a.body, `"stable":true,"unstableReason":""`)
	})
	t.Run("a reservation that is not in status", func(t *testing.T) {
		t.Parallel()
		r := enter(t)
		r.annotate(lease.AnnotationPlannedOperation, "RestoreInPlace/Pending")
		r.get().is(t, http.StatusLocked, `{"error":"unstable","reason":"RestoreInPlace","retryAfterSeconds":1}`)
		r.grant(migration, operation, 60).is(t, http.StatusLocked, `{"error":"unstable","reason":"RestoreInPlace","retryAfterSeconds":1}`)
	})
}

// setSite sets a member of the follower.
func setSite(t testing.TB, group *unstructured.Unstructured, member string, value any) {
	sites, _, err := unstructured.NestedSlice(group.Object, "status", "sites")
	require.NoError(t, err)
	sites[1].(map[string]any)[member] = value
	put(t, group, sites, "sites")
}

// edit changes the mutex of the group as a person might.
func (r *room) edit(change func(mutex *coordinationv1.Lease)) {
	r.t.Helper()
	leases := all.admin.CoordinationV1().Leases(r.namespace)
	require.NoError(r.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		mutex, err := leases.Get(r.t.Context(), lease.MutexName(r.group), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(mutex)
		_, err = leases.Update(r.t.Context(), mutex, metav1.UpdateOptions{})
		return err
	}))
}

// A mutex that nobody understands is nobody's: nobody gets it, and nobody is
// told that it is free.
func TestAMutexThatIsBroken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*coordinationv1.Lease){
		"of another group": func(l *coordinationv1.Lease) { l.OwnerReferences[0].UID = "another" },
		"without an owner": func(l *coordinationv1.Lease) { l.OwnerReferences = nil },
		"not JSON":         func(l *coordinationv1.Lease) { l.Annotations[lease.AnnotationRecord] = "{" },
		"without a record": func(l *coordinationv1.Lease) { delete(l.Annotations, lease.AnnotationRecord) },
		"without its hash": func(l *coordinationv1.Lease) {
			l.Annotations[lease.AnnotationRecord] = strings.Replace(l.Annotations[lease.AnnotationRecord], "tokenHash", "hash", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := enter(t)
			token := r.granted(migration, operation, 60)
			r.edit(change)
			for _, a := range []answer{
				r.grant(migration, operation, 60), r.grant(migration, another, 60), r.grant(hold, operation, 60),
				r.renew(migration, operation, token, 60), r.release(migration, operation, token),
			} {
				a.refused(t, http.StatusServiceUnavailable, "unavailable")
			}
			r.isQuiet("")
		})
	}
}

// The annotation decides, and a renewal makes all as it should be.
func TestAMutexThatWasEdited(t *testing.T) {
	t.Parallel()
	r := enter(t)
	token := r.granted(migration, operation, 60)
	for name, change := range map[string]func(*coordinationv1.Lease){
		"held for ever": func(l *coordinationv1.Lease) {
			record, err := lease.ParseRecord(l.Annotations[lease.AnnotationRecord])
			require.NoError(t, err)
			record.ExpiresAt = record.ExpiresAt.AddDate(100, 0, 0)
			l.Annotations[lease.AnnotationRecord] = record.Encode()
		},
		"another spec": func(l *coordinationv1.Lease) {
			long, holder := int32(1<<30), "somebody"
			l.Spec = coordinationv1.LeaseSpec{LeaseDurationSeconds: &long, HolderIdentity: &holder}
		},
		"other labels": func(l *coordinationv1.Lease) { l.Labels[lease.LabelState] = "released" },
	} {
		r.edit(change)
		r.grant(migration, another, 60).is(t, http.StatusConflict,
			`{"error":"held","holder":{"operationId":"%s","instance":"orders-app","expiresAt":"<time>"}}`, operation)
		require.Equal(t, http.StatusOK, r.renew(migration, operation, token, 60).status, name)
		mutex, err := all.admin.CoordinationV1().Leases(r.namespace).Get(t.Context(), lease.MutexName(r.group), metav1.GetOptions{})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Minute), r.record(migration, operation).ExpiresAt, 10*time.Second, name)
		require.Equal(t, operation, *mutex.Spec.HolderIdentity)
		require.Equal(t, int32(60), *mutex.Spec.LeaseDurationSeconds)
		require.WithinDuration(t, time.Now(), mutex.Spec.RenewTime.Time, 10*time.Second)
		require.Equal(t, map[string]string{lease.LabelKind: "migration", lease.LabelState: "active"}, mutex.Labels)
	}
}
