package kube

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

var (
	failover = wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "pdx"}
	update   = wire.PlannedRequest{Kind: lease.OrderedUpdate}
	restore  = wire.PlannedRequest{Kind: lease.RestoreInPlace, Target: "backup-7"}
)

func (s *scene) operation(r wire.PlannedRequest) OperationInput {
	return OperationInput{Namespace: s.namespace, Group: groupName, PlannedRequest: r}
}

func (s *scene) reserves(t *testing.T, r wire.PlannedRequest) wire.PlannedState {
	t.Helper()
	state, err := s.ReservePlanned(t.Context(), s.operation(r))
	require.NoError(t, err)
	return state
}

func (s *scene) looks(t *testing.T, r wire.PlannedRequest) wire.PlannedState {
	t.Helper()
	state, err := s.LookAtPlanned(t.Context(), s.operation(r))
	require.NoError(t, err)
	return state
}

func (s *scene) withdraws(t *testing.T, r wire.PlannedRequest, keep bool) wire.PlannedState {
	t.Helper()
	state, err := s.WithdrawPlanned(t.Context(), WithdrawInput{OperationInput: s.operation(r), Reason: "Cancelled", KeepRequest: keep})
	require.NoError(t, err)
	return state
}

func (s *scene) clears(t *testing.T, r wire.PlannedRequest, overdue bool) wire.PlannedState {
	t.Helper()
	state, err := s.ClearPlanned(t.Context(), ClearInput{OperationInput: s.operation(r), Overdue: overdue})
	require.NoError(t, err)
	return state
}

// holding gives op-1 the mutex and a hold.
func (s *scene) holding(t *testing.T) {
	t.Helper()
	s.granted(t, lease.KindMigration, "op-1")
	answer := s.grant(t, lease.KindHold, "op-1", token(t, "hold"))
	require.Equal(t, lease.VerdictGrant, answer.Kind)
}

func (s *scene) letsGo(t *testing.T) {
	t.Helper()
	require.Equal(t, lease.VerdictRelease, s.release(t, lease.KindHold, "op-1", token(t, "hold")))
}

func status(path string, value any) func(*unstructured.Unstructured) {
	return func(g *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(g.Object, value, "status", path); err != nil {
			panic(err)
		}
	}
}

func failoverIn(phase, target string) func(*unstructured.Unstructured) {
	return status("plannedFailover", map[string]any{"phase": phase, "target": target, "completionTime": "kept"})
}

// unready stops the replication of a follower.
func unready(g *unstructured.Unstructured) {
	g.Object["status"].(map[string]any)["sites"].([]any)[1].(map[string]any)["replicating"] = false
}

func TestAHoldDefersAPlannedFailover(t *testing.T) {
	s := newScene(t, marked(lease.AnnotationPlannedFailover, "pdx:maxLag=5"))
	s.holding(t)
	deferred := s.reserves(t, failover)
	message := "failover hold of operation op-1 (instance orders-app)"
	require.Equal(t, wire.PlannedState{
		Phase: "Deferred", Reason: "DeploymentHold", Message: message, RetryAfter: s.clock.now().Add(ttl), Again: lookEvery,
	}, deferred)
	require.Equal(t, lease.PlannedFailoverStatus{
		Phase: "Deferred", Reason: "DeploymentHold", Message: message, Target: "pdx", SourcePrimary: "iad",
		StartTime: "2026-11-30T12:00:00Z", RetryAfter: "2026-11-30T12:00:30Z",
	}, s.group(t).PlannedFailover)
	refused := s.grant(t, lease.KindHold, "op-1", token(t, "another"))
	require.Equal(t, []any{lease.VerdictUnstable, "PlannedFailover"}, []any{refused.Kind, refused.Reason})

	// Nothing is written while nothing changes.
	version := s.group(t).ResourceVersion
	require.Equal(t, deferred, s.looks(t, failover))
	require.Equal(t, deferred, s.reserves(t, failover), "the same request again")
	require.Equal(t, version, s.group(t).ResourceVersion)

	// It follows a renewal.
	s.clock.jump(28500 * time.Millisecond)
	require.Equal(t, 1500*time.Millisecond+time.Millisecond, s.looks(t, failover).Again)
	require.Equal(t, lease.VerdictRenew, s.renew(t, lease.KindHold, "op-1", token(t, "hold")).Kind)
	require.Equal(t, s.clock.now().Add(ttl), s.looks(t, failover).RetryAfter)
	require.Equal(t, "2026-11-30T12:00:58.5Z", s.group(t).PlannedFailover.RetryAfter)

	// The migration lease that remains defers nothing.
	s.letsGo(t)
	require.Equal(t, "Pending", s.looks(t, failover).Phase)
	g := s.group(t)
	require.False(t, g.FailoverRequest.Present)
	require.Equal(t, lease.PlannedFailoverStatus{
		Phase: "Pending", Message: "handed over to the operator", Target: "pdx", SourcePrimary: "iad", StartTime: "2026-11-30T12:00:00Z",
	}, g.PlannedFailover)
	require.Equal(t, "Pending", s.looks(t, failover).Phase, "a try whose answer was lost")
	s.change(t, failoverIn("Draining", "pdx"))
	require.Equal(t, "Pending", s.looks(t, failover).Phase)
	require.Equal(t, "Pending", s.withdraws(t, failover, false).Phase, "too late")

	events := s.events(t, "PlannedFailoverDeferred")
	require.Len(t, events, 1)
	require.Equal(t, "planned failover to pdx is deferred: "+message, events[0].Message)
	require.InDelta(t, 1, testutil.ToFloat64(s.Metrics.deferred.WithLabelValues(groupName, "DeploymentHold")), 0)
}

func TestTheFirstHoldToLapseIsNamed(t *testing.T) {
	s := newScene(t)
	s.holding(t)
	require.Equal(t, lease.VerdictRelease, s.release(t, lease.KindMigration, "op-1", token(t, "op-1")))
	s.clock.jump(time.Second)
	s.granted(t, lease.KindMigration, "op-2")
	s.granted(t, lease.KindHold, "op-2")
	state := s.reserves(t, failover)
	require.Equal(t, "failover hold of operation op-1 (instance orders-app) and 1 more", state.Message)
	require.Equal(t, s.clock.now().Add(ttl-time.Second), state.RetryAfter)
}

func TestALapsedHoldIsWrittenDown(t *testing.T) {
	s := newScene(t)
	s.holding(t)
	s.clock.jump(ttl)
	require.Equal(t, "Deferred", s.reserves(t, failover).Phase, "at its expiry it still holds")
	s.clock.jump(time.Microsecond)
	require.Equal(t, "Pending", s.looks(t, failover).Phase)
	require.Equal(t, lease.StateExpired, s.record(t, hold("op-1")).State)
	require.InDelta(t, 1, testutil.ToFloat64(s.Metrics.expirations.WithLabelValues(groupName, "failover-hold")), 0)
}

// A hold that lapses by the clock of the leader, and is renewed before that is
// written, goes on.
func TestAHoldThatIsRenewedMeanwhileGoesOn(t *testing.T) {
	s := newScene(t)
	s.holding(t)
	require.Equal(t, "Deferred", s.reserves(t, failover).Phase)
	s.clock.jump(ttl + time.Second)
	s.Cluster.leases = &interrupted{LeasesGetter: s.Cluster.leases, do: func() {
		s.edit(t, hold("op-1"), func(l *coordinationv1.Lease) {
			r, err := lease.ParseRecord(l.Annotations[lease.AnnotationRecord])
			require.NoError(t, err)
			r.ExpiresAt = s.clock.now().Add(ttl)
			l.Annotations[lease.AnnotationRecord] = r.Encode()
		})
	}}
	state := s.looks(t, failover)
	require.Equal(t, "DeploymentHold", state.Reason)
	require.Equal(t, s.clock.now().Add(ttl), state.RetryAfter)
	require.Equal(t, lease.StateActive, s.record(t, hold("op-1")).State)
}

func TestAFailoverThatIsNotPossibleAnyMoreFails(t *testing.T) {
	s := newScene(t, marked(lease.AnnotationPlannedFailover, "pdx"), failoverIn("Succeeded", "iad"))
	s.holding(t)
	require.Equal(t, "Deferred", s.reserves(t, failover).Phase)
	s.change(t, unready)
	s.letsGo(t)
	want := wire.PlannedState{Phase: "Failed", Reason: "ReplicationNotRunning", Message: "the group is not stable: ReplicationNotRunning"}
	require.Equal(t, want, s.looks(t, failover))
	g := s.group(t)
	require.False(t, g.FailoverRequest.Present)
	require.Equal(t, "Failed", g.PlannedFailover.Phase)
	require.Equal(t, want.Reason, g.PlannedFailover.Reason)
	require.Empty(t, g.PlannedFailover.RetryAfter)
	require.Equal(t, want, s.looks(t, failover), "a try whose answer was lost")
	s.change(t, func(group *unstructured.Unstructured) {
		kept, _, err := unstructured.NestedString(group.Object, "status", "plannedFailover", "completionTime")
		require.NoError(t, err)
		require.Equal(t, "kept", kept, "what is not slipway's stays")
	})
}

// Who dies between the two writes of a handover leaves a Deferred without its
// annotation, which the next look takes up.
func TestAHandoverThatWasInterrupted(t *testing.T) {
	s := newScene(t, marked(lease.AnnotationPlannedFailover, "pdx"))
	s.holding(t)
	require.Equal(t, "Deferred", s.reserves(t, failover).Phase)
	s.letsGo(t)
	s.change(t, func(g *unstructured.Unstructured) { g.SetAnnotations(map[string]string{}) })
	require.Equal(t, "Pending", s.looks(t, failover).Phase)
}

func TestRefusedReservations(t *testing.T) {
	for name, test := range map[string]struct {
		request wire.PlannedRequest
		change  func(*unstructured.Unstructured)
		reason  string
		failed  bool // is told in status, and the annotation goes
	}{
		"unknown target":       {wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "fra"}, marked(lease.AnnotationPlannedFailover, "fra:a=b"), "TargetUnknown", true},
		"the active site":      {wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "iad"}, marked(lease.AnnotationPlannedFailover, "pdx"), "TargetNotReadOnly", false},
		"an unstable group":    {failover, unready, "ReplicationNotRunning", false},
		"another failover":     {failover, failoverIn("Deferred", "iad"), "ConcurrentOperation", false},
		"another, promoting":   {failover, failoverIn("Promoting", "iad"), "ConcurrentOperation", false},
		"an update":            {failover, status("updatePhase", "Rolling"), "ConcurrentOperation", false},
		"a reserved update":    {restore, marked(lease.AnnotationPlannedOperation, "OrderedUpdate/Deferred"), "ConcurrentOperation", false},
		"an update under way":  {update, status("updatePhase", "Rolling"), "ConcurrentOperation", false},
		"a failover, deferred": {update, failoverIn("Deferred", "pdx"), "ConcurrentOperation", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, test.change)
			before := s.group(t)
			state := s.reserves(t, test.request)
			require.Equal(t, "Failed", state.Phase)
			require.Equal(t, test.reason, state.Reason)
			require.NotEmpty(t, state.Message)
			g := s.group(t)
			require.Equal(t, before.PlannedOperation, g.PlannedOperation)
			if !test.failed {
				require.Equal(t, before.FailoverRequest, g.FailoverRequest)
				require.Equal(t, before.PlannedFailover, g.PlannedFailover)
				return
			}
			require.False(t, g.FailoverRequest.Present)
			require.Equal(t, []string{"Failed", test.reason, test.request.Target},
				[]string{g.PlannedFailover.Phase, g.PlannedFailover.Reason, g.PlannedFailover.Target})
		})
	}
	t.Run("the same, promoting", func(t *testing.T) {
		s := newScene(t, failoverIn("Promoting", "pdx"))
		require.Equal(t, "Pending", s.reserves(t, failover).Phase, "who asks again is told that it was handed over")
		require.Equal(t, "Promoting", s.group(t).PlannedFailover.Phase)
	})
	t.Run("no group", func(t *testing.T) {
		s := newScene(t)
		in := s.operation(failover)
		in.Group = "other"
		state, err := s.ReservePlanned(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, ReasonGroupNotFound, state.Reason)
	})
}

// A topology that the operator has not numbered yet is waited for.
func TestWhatSettlesIsWaitedFor(t *testing.T) {
	s := newScene(t)
	s.Follow = true
	_, pending, err := s.Settle(t.Context(), s.group(t))
	require.NoError(t, err)
	require.Empty(t, pending)
	s.change(t, moveTo("pdx", 0))
	back := wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "iad"}
	state := s.reserves(t, back)
	require.Equal(t, []string{"Deferred", "TopologyPersistencePending"}, []string{state.Phase, state.Reason})
	require.Positive(t, state.Again)
	s.change(t, moveTo("pdx", 18))
	require.Equal(t, "Pending", s.looks(t, back).Phase)
}

func TestUpdatesAndRestores(t *testing.T) {
	for _, test := range []struct {
		request wire.PlannedRequest
		report  func(*unstructured.Unstructured)
	}{
		{update, status("updatePhase", "Rolling")},
		{restore, status("restoreInPlace", map[string]any{"phase": "Copying"})},
	} {
		kind := string(test.request.Kind)
		t.Run(kind, func(t *testing.T) {
			s := newScene(t)
			s.holding(t)
			state := s.reserves(t, test.request)
			require.Equal(t, []string{"Deferred", "DeploymentHold"}, []string{state.Phase, state.Reason})
			g := s.group(t)
			require.Equal(t, kind+"/Deferred", g.PlannedOperation.Value)
			require.Zero(t, g.PlannedFailover)
			refused := s.grant(t, lease.KindHold, "op-1", token(t, "another"))
			require.Equal(t, []any{lease.VerdictUnstable, kind}, []any{refused.Kind, refused.Reason})
			require.Equal(t, lease.VerdictRenew, s.renew(t, lease.KindHold, "op-1", token(t, "hold")).Kind)
			require.Zero(t, s.clears(t, test.request, true), "only what was handed over is cleared")
			require.Equal(t, kind+"/Deferred", s.group(t).PlannedOperation.Value)

			s.letsGo(t)
			require.Equal(t, "Pending", s.looks(t, test.request).Phase)
			require.Equal(t, kind+"/Pending", s.group(t).PlannedOperation.Value)
			require.Equal(t, "Pending", s.reserves(t, test.request).Phase, "left by a workflow that was terminated")
			require.Equal(t, "Pending", s.clears(t, test.request, false).Phase)
			s.change(t, test.report)
			require.Equal(t, "Pending", s.looks(t, test.request).Phase)
			require.Equal(t, wire.PlannedState{}, s.clears(t, test.request, false))
			require.False(t, s.group(t).PlannedOperation.Present)
			require.Equal(t, "Pending", s.looks(t, test.request).Phase, "a try whose answer was lost")
			require.Empty(t, s.events(t, "PlannedFailoverDeferred"))
		})
	}
}

func TestAnUpdateThatTheOperatorDoesNotReport(t *testing.T) {
	s := newScene(t)
	require.Equal(t, "Pending", s.reserves(t, update).Phase)
	require.Equal(t, wire.PlannedState{Reason: ReasonNotReported}, s.clears(t, update, true))
	require.False(t, s.group(t).PlannedOperation.Present)
	require.Equal(t, ReasonWithdrawn, s.looks(t, update).Reason)
	s.granted(t, lease.KindMigration, "op-1")
}

func TestAnUpdateThatIsNotPossibleAnyMoreFails(t *testing.T) {
	s := newScene(t)
	s.holding(t)
	require.Equal(t, "Deferred", s.reserves(t, update).Phase)
	s.change(t, unready)
	s.letsGo(t)
	state := s.looks(t, update)
	require.Equal(t, []string{"Failed", "ReplicationNotRunning"}, []string{state.Phase, state.Reason})
	require.False(t, s.group(t).PlannedOperation.Present)
}

func TestWithdraw(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("failover, keep %v", keep), func(t *testing.T) {
			s := newScene(t, marked(lease.AnnotationPlannedFailover, "pdx"))
			s.holding(t)
			require.Equal(t, "Deferred", s.reserves(t, failover).Phase)
			require.Equal(t, "Cancelled", s.withdraws(t, failover, keep).Reason)
			g := s.group(t)
			require.Equal(t, []any{"Failed", "Cancelled", keep}, []any{g.PlannedFailover.Phase, g.PlannedFailover.Reason, g.FailoverRequest.Present})
			require.Equal(t, lease.VerdictRenew, s.grant(t, lease.KindHold, "op-1", token(t, "another")).Kind)
		})
	}
	t.Run("update", func(t *testing.T) {
		s := newScene(t)
		s.holding(t)
		require.Equal(t, "Deferred", s.reserves(t, update).Phase)
		require.Equal(t, "Failed", s.withdraws(t, update, false).Phase)
		require.False(t, s.group(t).PlannedOperation.Present)
		require.Equal(t, lease.VerdictRenew, s.grant(t, lease.KindHold, "op-1", token(t, "another")).Kind)
	})
}

// Twenty grants of a hold and a reservation at once: either a hold or the
// operation is admitted, and never both.
func TestNeverBothAdmitted(t *testing.T) {
	const grants = 20
	s := newScene(t)
	admitted := map[bool]int{}
	for round := range 12 {
		group := fmt.Sprintf("race-%d", round)
		kubernetes.Group(t, s.namespace, group)
		request := []wire.PlannedRequest{failover, update, restore}[round/3%3]
		ref := func(kind lease.Kind) wire.LeaseRef {
			return wire.LeaseRef{Namespace: s.namespace, Group: group, Kind: kind, OperationID: "op-1"}
		}
		migration, err := s.Grant(t.Context(), ref(lease.KindMigration), wire.GrantRequest{Holder: holder("op-1"), TokenHash: token(t, "m"), TTL: ttl})
		require.NoError(t, err)
		require.Equal(t, lease.VerdictGrant, migration.Kind)

		// The reservation comes with the grants, or as the first of them writes, or
		// after the first answer.
		var starts sync.Once
		started := make(chan struct{})
		start := func() { starts.Do(func() { close(started) }) }
		cluster, racing := *s.Cluster, *s.Leases
		cluster.leases = &interrupted{LeasesGetter: cluster.leases, do: func() {
			if round%3 == 1 {
				start()
			}
		}}
		racing.Cluster = &cluster
		if round%3 == 0 {
			start()
		}
		var state wire.PlannedState
		answers := make([]wire.LeaseAnswer, grants)
		err = together(grants+1, func(i int) (err error) {
			if i == grants {
				<-started
				state, err = s.ReservePlanned(t.Context(), OperationInput{Namespace: s.namespace, Group: group, PlannedRequest: request})
				return err
			}
			answers[i], err = racing.Grant(t.Context(), ref(lease.KindHold), wire.GrantRequest{Holder: holder("op-1"), TokenHash: token(t, fmt.Sprint(round, i)), TTL: ttl})
			start()
			return ignoring(err, ErrBusy)
		})
		require.NoError(t, err)
		held := false
		for _, answer := range answers {
			held = held || answer.Kind == lease.VerdictGrant || answer.Kind == lease.VerdictRenew
		}
		require.False(t, held && state.Phase == lease.PhasePending, "round %d: a hold and %s", round, request.Kind)
		admitted[held]++

		// When the hold has lapsed it is the operation's turn, and no hold's.
		s.clock.jump(ttl + time.Second)
		in := OperationInput{Namespace: s.namespace, Group: group, PlannedRequest: request}
		state, err = s.LookAtPlanned(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, lease.PhasePending, state.Phase)
		again, err := s.Grant(t.Context(), ref(lease.KindMigration), wire.GrantRequest{Holder: holder("op-1"), TokenHash: token(t, "again"), TTL: ttl})
		require.NoError(t, err)
		require.Equal(t, lease.VerdictUnstable, again.Kind)
	}
	require.Positive(t, admitted[true], "a hold was never first")
	require.Positive(t, admitted[false], "the operation was never first")
	t.Logf("a hold was admitted in %d rounds, the operation at once in %d", admitted[true], admitted[false])
}

func ignoring(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}
