package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// The object that the operator reads, to the letter.
func TestObject(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	object := s.object(t, "bloodraven-deploy-orders-migration")
	g := s.group(t)
	require.Equal(t, []metav1.OwnerReference{{
		APIVersion: "shipstream.io/v1alpha1", Kind: "MysqlFailoverGroup", Name: groupName, UID: types.UID(g.UID),
	}}, object.OwnerReferences)
	require.Equal(t, map[string]string{
		"bloodraven.shipstream.io/deployment-kind": "migration", "bloodraven.shipstream.io/deployment-state": "active",
	}, object.Labels)
	var annotation map[string]any
	require.NoError(t, json.Unmarshal([]byte(object.Annotations["bloodraven.shipstream.io/deployment-lease"]), &annotation))
	require.Equal(t, map[string]any{
		"kind": "migration", "operationId": "op-1", "instance": "orders-app", "expiresAt": "2026-11-30T12:00:30Z",
		"topologyGeneration": float64(17), "namespace": "application", "serviceAccount": "deploy",
		"tokenHash": token(t, "op-1"), "createdAt": "2026-11-30T12:00:00Z", "state": "active",
	}, annotation)
	require.Equal(t, "op-1", *object.Spec.HolderIdentity)
	require.EqualValues(t, 30, *object.Spec.LeaseDurationSeconds)
	require.True(t, object.Spec.RenewTime.Equal(&metav1.MicroTime{Time: s.clock.now()}))

	require.Equal(t, lease.VerdictRelease, s.release(t, lease.KindMigration, "op-1", token(t, "op-1")))
	object = s.object(t, "bloodraven-deploy-orders-migration")
	require.Equal(t, "released", object.Labels["bloodraven.shipstream.io/deployment-state"])
	require.EqualValues(t, 1, *object.Spec.LeaseDurationSeconds)
}

func TestGrant(t *testing.T) {
	s := newScene(t)
	require.Equal(t, lease.VerdictForbidden, s.grant(t, lease.KindHold, "op-1", token(t, "h")).Kind)
	s.granted(t, lease.KindMigration, "op-1")
	s.granted(t, lease.KindHold, "op-1")
	other := s.grant(t, lease.KindMigration, "op-2", token(t, "2"))
	require.Equal(t, lease.VerdictHeld, other.Kind)
	require.Equal(t, "op-1", other.Holder.OperationID)
	require.Equal(t, lease.VerdictForbidden, s.grant(t, lease.KindHold, "op-2", token(t, "2")).Kind)

	// The same call, whose answer was lost, and then another one of the holder.
	s.clock.jump(time.Second)
	require.Equal(t, lease.VerdictGrant, s.grant(t, lease.KindMigration, "op-1", token(t, "op-1")).Kind)
	require.Equal(t, lease.VerdictRenew, s.grant(t, lease.KindMigration, "op-1", token(t, "rotated")).Kind)
	require.Equal(t, s.clock.now().Add(-time.Second), s.record(t, mutex).CreatedAt)
	require.Equal(t, lease.VerdictTokenMismatch, s.renew(t, lease.KindMigration, "op-1", token(t, "op-1")).Kind)
	renewed := s.renew(t, lease.KindMigration, "op-1", token(t, "rotated"))
	require.Equal(t, lease.VerdictRenew, renewed.Kind)
	require.Equal(t, s.clock.now().Add(ttl), renewed.ExpiresAt)

	// At its expiry it holds, and not after it.
	s.clock.jump(ttl)
	require.Equal(t, lease.VerdictHeld, s.grant(t, lease.KindMigration, "op-2", token(t, "2")).Kind)
	s.clock.jump(time.Microsecond)
	require.Equal(t, lease.VerdictNotFound, s.renew(t, lease.KindMigration, "op-1", token(t, "rotated")).Kind)
	s.granted(t, lease.KindMigration, "op-2")
	require.Equal(t, lease.VerdictNotFound, s.renew(t, lease.KindMigration, "op-1", token(t, "rotated")).Kind)
	require.Empty(t, s.revoked)
}

// The hold outlives a handoff of the mutex.
func TestHoldSurvivesTheMutex(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	s.granted(t, lease.KindHold, "op-1")
	require.Equal(t, lease.VerdictRelease, s.release(t, lease.KindMigration, "op-1", token(t, "op-1")))
	s.granted(t, lease.KindMigration, "op-2")
	require.Equal(t, lease.VerdictRenew, s.renew(t, lease.KindHold, "op-1", token(t, "op-1")).Kind)
	require.Equal(t, lease.VerdictRelease, s.release(t, lease.KindHold, "op-1", token(t, "op-1")))
}

// Of many that ask at once, one holds the mutex.
func TestOneHolder(t *testing.T) {
	s := newScene(t)
	var granted, heldOrBusy atomic.Int32
	require.NoError(t, together(20, func(i int) error {
		operation := fmt.Sprintf("op-%d", i)
		answer, err := s.Grant(t.Context(), s.ref(lease.KindMigration, operation),
			wire.GrantRequest{Holder: holder(operation), TokenHash: token(t, operation), TTL: ttl})
		switch {
		case errors.Is(err, ErrBusy), err == nil && answer.Kind == lease.VerdictHeld:
			heldOrBusy.Add(1)
		case err == nil && answer.Kind == lease.VerdictGrant:
			granted.Add(1)
		default:
			return fmt.Errorf("%+v: %w", answer, err)
		}
		return nil
	}))
	require.EqualValues(t, 1, granted.Load())
	require.EqualValues(t, 19, heldOrBusy.Load())
}

func TestTopologyIsRaisedAndRevokes(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	s.granted(t, lease.KindHold, "op-1")
	require.Equal(t, "iad@17", s.group(t).ObservedTopology.Value)
	s.change(t, moveTo("pdx", 0))

	renewed := s.renew(t, lease.KindMigration, "op-1", token(t, "op-1"))
	require.Equal(t, lease.VerdictRevoked, renewed.Kind)
	require.Equal(t, "topology_changed", renewed.Reason)
	require.EqualValues(t, 18, renewed.Generation)
	g := s.group(t)
	require.EqualValues(t, 18, g.Generation)
	require.Equal(t, "pdx@18", g.ObservedTopology.Value)
	for _, name := range []string{mutex, tombstone("op-1"), hold("op-1")} {
		require.Equal(t, lease.StateRevoked, s.record(t, name).State, name)
	}
	require.Len(t, s.revoked, 2)
	require.Len(t, s.events(t, "DeploymentLeaseRevoked"), 2)
	require.InDelta(t, 1, testutil.ToFloat64(s.Metrics.revocations.WithLabelValues(groupName, "migration", "topology_changed")), 0)

	// For ever, also when another operation has the mutex.
	for range 2 {
		require.Equal(t, lease.VerdictRevoked, s.renew(t, lease.KindMigration, "op-1", token(t, "op-1")).Kind)
		require.Equal(t, lease.VerdictRevoked, s.grant(t, lease.KindMigration, "op-1", token(t, "new")).Kind)
		require.Equal(t, lease.VerdictRevoked, s.grant(t, lease.KindHold, "op-1", token(t, "new")).Kind)
		require.Equal(t, lease.VerdictTokenMismatch, s.release(t, lease.KindMigration, "op-1", token(t, "new")))
		require.Equal(t, lease.VerdictRevoked, s.release(t, lease.KindMigration, "op-1", token(t, "op-1")))
		if s.record(t, mutex).OperationID == "op-1" {
			s.granted(t, lease.KindMigration, "op-2")
		}
	}
	require.Len(t, s.revoked, 2)
}

// The operator raises the generation itself, or is waited for.
func TestTopologyIsFollowed(t *testing.T) {
	s := newScene(t)
	s.Follow = true
	s.granted(t, lease.KindMigration, "op-1")
	s.change(t, moveTo("pdx", 0))
	waits := s.renew(t, lease.KindMigration, "op-1", token(t, "op-1"))
	require.Equal(t, lease.VerdictUnstable, waits.Kind)
	require.Equal(t, "TopologyPersistencePending", waits.Reason)
	_, unstable, err := s.Observe(t.Context(), s.group(t))
	require.NoError(t, err)
	require.Equal(t, "TopologyPersistencePending", unstable.Reason)
	require.EqualValues(t, 17, s.group(t).Generation)
	s.change(t, moveTo("pdx", 23))
	require.Equal(t, lease.VerdictRevoked, s.renew(t, lease.KindMigration, "op-1", token(t, "op-1")).Kind)
	require.Equal(t, "pdx@23", s.group(t).ObservedTopology.Value)
}

// The group moves while a grant or a renewal is written.
func TestTheGroupMovesMeanwhile(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	meanwhile := func(do func()) *Leases {
		other := *s.Leases
		cluster := *s.Cluster
		cluster.leases = &interrupted{LeasesGetter: s.Cluster.leases, do: do}
		other.Cluster = &cluster
		return &other
	}
	l := meanwhile(func() { s.change(t, moveTo("pdx", 0)) })
	answer, err := l.Renew(t.Context(), s.group(t), s.ref(lease.KindMigration, "op-1"), caller, token(t, "op-1"), ttl)
	require.NoError(t, err)
	require.Equal(t, lease.VerdictRevoked, answer.Kind)

	l = meanwhile(func() { s.change(t, moveTo("iad", 0)) })
	answer, err = l.Grant(t.Context(), s.ref(lease.KindMigration, "op-2"), wire.GrantRequest{Holder: holder("op-2"), TokenHash: token(t, "2"), TTL: ttl})
	require.NoError(t, err)
	require.Equal(t, lease.VerdictGrant, answer.Kind, "the first was withdrawn, the second one holds")
	require.EqualValues(t, 19, answer.Generation)
	require.EqualValues(t, 19, s.record(t, mutex).TopologyGeneration)

	// It becomes unstable: the grant is withdrawn, and the old token counts.
	l = meanwhile(func() {
		s.change(t, func(g *unstructured.Unstructured) { g.Object["status"].(map[string]any)["updatePhase"] = "Rolling" })
	})
	answer, err = l.Grant(t.Context(), s.ref(lease.KindMigration, "op-2"), wire.GrantRequest{Holder: holder("op-2"), TokenHash: token(t, "3"), TTL: ttl})
	require.NoError(t, err)
	require.Equal(t, lease.VerdictUnstable, answer.Kind)
	require.Equal(t, "OrderedUpdate", answer.Reason)
	require.Equal(t, lease.VerdictRenew, s.renew(t, lease.KindMigration, "op-2", token(t, "2")).Kind)
}

func TestRevocationByAnnotation(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	s.granted(t, lease.KindHold, "op-1")
	s.change(t, marked(lease.AnnotationRevoke, "ticket 12"))
	g, pending, err := s.Settle(t.Context(), s.group(t))
	require.NoError(t, err)
	require.Empty(t, pending)
	require.False(t, g.RevokeRequested())
	answer := s.renew(t, lease.KindHold, "op-1", token(t, "op-1"))
	require.Equal(t, lease.VerdictRevoked, answer.Kind)
	require.Equal(t, "operator_revoked", answer.Reason)
	require.Len(t, s.revoked, 2)
	require.Len(t, s.events(t, "DeploymentLeaseRevoked"), 2)
}

func TestRevokeOne(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	s.granted(t, lease.KindHold, "op-1")
	for range 2 {
		state, err := s.Revoke(t.Context(), s.ref(lease.KindMigration, "op-1"), lease.ReasonOperatorRevoked)
		require.NoError(t, err)
		require.Equal(t, lease.StateRevoked, state.State)
	}
	require.Empty(t, s.revoked, "the workflow that asked for it knows")
	require.InDelta(t, 1, testutil.ToFloat64(s.Metrics.revocations.WithLabelValues(groupName, "migration", "operator_revoked")), 0)
	require.Len(t, s.events(t, "DeploymentLeaseRevoked"), 1)
	require.Equal(t, lease.VerdictRenew, s.renew(t, lease.KindHold, "op-1", token(t, "op-1")).Kind)
	s.granted(t, lease.KindMigration, "op-2")
	state, err := s.Revoke(t.Context(), s.ref(lease.KindMigration, "op-1"), lease.ReasonOperatorRevoked)
	require.NoError(t, err)
	require.Equal(t, lease.StateRevoked, state.State, "its tombstone")
	require.Equal(t, lease.StateActive, s.record(t, mutex).State, "the lease of another is not touched")
}

func TestExpiry(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	require.Equal(t, 1, testutil.CollectAndCount(s.Metrics.expirations), "counted from 0")
	s.Metrics.Forget(groupName) // as a leader that comes later
	look := func() wire.LeaseState {
		state, err := s.Look(t.Context(), s.ref(lease.KindMigration, "op-1"))
		require.NoError(t, err)
		return state
	}
	s.clock.jump(ttl)
	require.Equal(t, lease.StateActive, look().State)
	require.Zero(t, look().Lapses)
	require.Equal(t, 1, testutil.CollectAndCount(s.Metrics.expirations))
	s.clock.jump(time.Millisecond)
	require.Equal(t, lease.StateExpired, look().State)
	require.Equal(t, lease.StateExpired, look().State)
	require.Equal(t, lease.StateExpired, s.record(t, mutex).State)
	require.InDelta(t, 1, testutil.ToFloat64(s.Metrics.expirations.WithLabelValues(groupName, "migration")), 0)
	s.granted(t, lease.KindMigration, "op-1") // its operation may come again
}

// A clock that jumps back grants nobody anything that another has.
func TestClockJumps(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	s.clock.jump(-time.Hour)
	require.Equal(t, lease.VerdictHeld, s.grant(t, lease.KindMigration, "op-2", token(t, "2")).Kind)
	require.Equal(t, lease.VerdictRenew, s.renew(t, lease.KindMigration, "op-1", token(t, "op-1")).Kind)
	s.clock.jump(time.Hour)
	require.Equal(t, lease.VerdictNotFound, s.renew(t, lease.KindMigration, "op-1", token(t, "op-1")).Kind)
	s.granted(t, lease.KindMigration, "op-2")
	s.clock.jump(time.Hour)
	s.granted(t, lease.KindMigration, "op-1")
}

// Objects that are no records of the group give nobody anything.
func TestForeignObjects(t *testing.T) {
	for name, edit := range map[string]func(*coordinationv1.Lease){
		"another owner": func(l *coordinationv1.Lease) { l.OwnerReferences[0].UID = "11111111-1111-4111-8111-111111111111" },
		"no owner":      func(l *coordinationv1.Lease) { l.OwnerReferences = nil },
		"no annotation": func(l *coordinationv1.Lease) { delete(l.Annotations, lease.AnnotationRecord) },
		"broken":        func(l *coordinationv1.Lease) { l.Annotations[lease.AnnotationRecord] = `{"kind":"migration"` },
		"another's place": func(l *coordinationv1.Lease) {
			l.Annotations[lease.AnnotationRecord] = strings.Replace(l.Annotations[lease.AnnotationRecord], `"state":"active"`, `"state":"alive"`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.granted(t, lease.KindMigration, "op-1")
			s.edit(t, mutex, edit)
			before := s.object(t, mutex).ResourceVersion
			var broken *BrokenError
			_, err := s.Grant(t.Context(), s.ref(lease.KindMigration, "op-2"), wire.GrantRequest{Holder: holder("op-2"), TokenHash: token(t, "2"), TTL: ttl})
			require.ErrorAs(t, err, &broken)
			_, err = s.Renew(t.Context(), s.group(t), s.ref(lease.KindMigration, "op-1"), caller, token(t, "op-1"), ttl)
			require.ErrorAs(t, err, &broken)
			require.NotContains(t, err.Error(), token(t, "op-1"))
			require.Equal(t, before, s.object(t, mutex).ResourceVersion, "it was written")
			observation, _, err := s.Observe(t.Context(), s.group(t))
			require.NoError(t, err)
			require.Empty(t, observation.Leases)
			s.change(t, marked(lease.AnnotationRevoke, ""))
			_, pending, err := s.Settle(t.Context(), s.group(t))
			require.NoError(t, err)
			require.Empty(t, pending, "a group with a broken object can be used otherwise")
		})
	}
}

// Someone gave a lease a future of hours. Whoever has the token can end that.
func TestEditedExpiry(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	s.edit(t, mutex, func(l *coordinationv1.Lease) {
		l.Annotations[lease.AnnotationRecord] = strings.Replace(l.Annotations[lease.AnnotationRecord], "2026-11-30T12:00:30Z", "2026-12-30T12:00:30Z", 1)
	})
	require.Equal(t, lease.VerdictHeld, s.grant(t, lease.KindMigration, "op-2", token(t, "2")).Kind)
	state, err := s.Look(t.Context(), s.ref(lease.KindMigration, "op-1"))
	require.NoError(t, err)
	require.LessOrEqual(t, state.Lapses, lease.MaxTTL)
	require.Equal(t, s.clock.now().Add(ttl), s.renew(t, lease.KindMigration, "op-1", token(t, "op-1")).ExpiresAt)
}

func TestObserve(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	s.granted(t, lease.KindHold, "op-1")
	observation, unstable, err := s.Observe(t.Context(), s.group(t))
	require.NoError(t, err)
	require.Nil(t, unstable)
	require.True(t, observation.Stable)
	require.True(t, slices.ContainsFunc(observation.Leases, func(v lease.View) bool { return v.Kind == lease.KindHold }))
	require.Len(t, observation.Leases, 2)
	require.Equal(t, lease.KindMigration, observation.Leases[0].Kind)
}

// A group that went and came back has none of its old leases.
func TestGroupIsMadeAnew(t *testing.T) {
	s := newScene(t)
	s.granted(t, lease.KindMigration, "op-1")
	require.NoError(t, s.admin.custom.Delete().Namespace(s.namespace).Resource(groups.Resource).Name(groupName).Do(t.Context()).Error())
	_, err := s.Grant(t.Context(), s.ref(lease.KindMigration, "op-2"), wire.GrantRequest{Holder: holder("op-2"), TokenHash: token(t, "2"), TTL: ttl})
	require.ErrorIs(t, err, ErrNoGroup)
	state, err := s.Look(t.Context(), s.ref(lease.KindMigration, "op-1"))
	require.NoError(t, err)
	require.Empty(t, state.State)
	kubernetes.Group(t, s.namespace, groupName)
	state, err = s.Look(t.Context(), s.ref(lease.KindMigration, "op-1"))
	var broken *BrokenError
	require.ErrorAs(t, err, &broken, "until the garbage collector has been there: %+v", state)
}
