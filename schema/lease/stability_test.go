package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// stable is a group without any reason against it.
func stable() Group {
	return Group{
		Namespace: "bloodraven", Name: "orders", UID: "u-1", ResourceVersion: "42",
		ObservedTopology: Annotation{true, "iad@17"},
		Sites:            []string{"iad", "pdx"}, ActiveSite: "iad", Generation: 17,
		Conditions:   []Condition{{"Ready", "True", "AllGood"}, {"Degraded", "False", "AllGood"}},
		SiteStatuses: []SiteStatus{{Name: "iad", State: "writable"}, {Name: "pdx", State: "read-only", Replicating: true}},
	}
}

func with(changes ...func(*Group)) Group {
	group := stable()
	for _, change := range changes {
		change(&group)
	}
	return group
}

func is(kind, status, reason string) func(*Group) {
	return func(g *Group) {
		for i, c := range g.Conditions {
			if c.Type == kind {
				g.Conditions[i] = Condition{kind, status, reason}
				return
			}
		}
		g.Conditions = append(g.Conditions, Condition{kind, status, reason})
	}
}

func reserved(value string) func(*Group) {
	return func(g *Group) { g.PlannedOperation = Annotation{true, value} }
}

// inOrder makes a group unstable in every way, the first that applies first.
var inOrder = []struct {
	name   string
	change func(*Group)
	reason string
}{
	{"revocation asked for", func(g *Group) { g.Revoke = Annotation{Present: true} }, "DeploymentRevocationPending"},
	{"no active site", func(g *Group) { g.ActiveSite = "" }, "NoPrimary"},
	{"planned failover", func(g *Group) { g.PlannedFailover.Phase = "Draining" }, "PlannedFailover"},
	{"update", func(g *Group) { g.UpdatePhase = "Rolling" }, "OrderedUpdate"},
	{"restore", func(g *Group) { g.RestorePhase = "Running" }, "Restore"},
	{"dragonfly upgrade", func(g *Group) { g.DragonflyUpgradePhase = "Running" }, "DragonflyUpgrade"},
	{"dragonfly phase", func(g *Group) { g.DragonflyPhase = "Syncing" }, "DragonflySyncing"},
	{"restore in place", func(g *Group) { g.RestoreInPlacePhase = "Running" }, "RestoreInPlace"},
	{"degraded", is("Degraded", "True", "SplitBrain"), "SplitBrain"},
	{"recovery", is("RecoveryPending", "True", "Rejoin"), "Rejoin"},
	{"bootstrap", is("Bootstrapping", "True", ""), "Bootstrapping"},
	{"not ready", is("Ready", "False", "AllGood"), "NotReady"},
	{"site without status", func(g *Group) { g.Sites = append(g.Sites, "fra") }, "SiteNotObserved"},
	{"active not writable", func(g *Group) { g.SiteStatuses[0].State = "read-only" }, "NoPrimary"},
	{"follower not read-only", func(g *Group) { g.SiteStatuses[1].State = "unreachable" }, "SiteNotReady"},
	{"recovery of a site", func(g *Group) { g.SiteStatuses[1].RecoveryState = "RecoveryBlocked" }, "RecoveryBlocked"},
	{"convergence", func(g *Group) { g.SiteStatuses[1].SourceConvergenceState = "Pending" }, "SourceConvergencePending"},
	{"replication", func(g *Group) { g.SiteStatuses[1].Replicating = false }, "ReplicationNotRunning"},
}

func TestStableGroup(t *testing.T) {
	lag := 1e6
	for name, group := range map[string]Group{
		"as it is":             stable(),
		"lag":                  with(func(g *Group) { g.SiteStatuses[1].SecondsBehindSource = &lag }),
		"degraded by lag":      with(is("Degraded", "True", "ReplicationLagging")),
		"condition unknown":    with(is("Degraded", "Unknown", "X"), is("RecoveryPending", "Unknown", ""), is("Bootstrapping", "False", "X")),
		"another condition":    with(is("Paused", "True", "X")),
		"dragonfly disabled":   with(func(g *Group) { g.DragonflyPhase = "Disabled" }),
		"dragonfly ready":      with(func(g *Group) { g.DragonflyPhase = "Ready" }),
		"converged":            with(func(g *Group) { g.SiteStatuses[1].SourceConvergenceState = "Converged" }),
		"failover asked for":   with(func(g *Group) { g.FailoverRequest = Annotation{true, "pdx"} }),
		"reservation finished": with(reserved("OrderedUpdate/Succeeded")),
		"reservation failed":   with(reserved("RestoreInPlace/Failed")),
		"reservation broken":   with(reserved("nonsense")),
		"one site":             with(func(g *Group) { g.Sites, g.SiteStatuses = g.Sites[:1], g.SiteStatuses[:1] }),
	} {
		t.Run(name, func(t *testing.T) { require.Empty(t, group.Unstable()) })
	}
	for _, phase := range []string{"", "Succeeded", "Failed"} {
		require.Empty(t, with(func(g *Group) {
			g.PlannedFailover.Phase, g.RestorePhase, g.RestoreInPlacePhase, g.DragonflyUpgradePhase = phase, phase, phase, phase
		}).Unstable(), phase)
	}
}

func TestEveryReason(t *testing.T) {
	for _, one := range inOrder {
		t.Run(one.name, func(t *testing.T) { require.Equal(t, one.reason, with(one.change).Unstable()) })
	}
	for name, test := range map[string]struct {
		change func(*Group)
		reason string
	}{
		"degraded by lag and more":   {func(g *Group) { is("Degraded", "True", "ReplicationLagging")(g); is("RecoveryPending", "True", "")(g) }, "RecoveryPending"},
		"degraded without reason":    {is("Degraded", "True", ""), "Degraded"},
		"ready unknown":              {is("Ready", "Unknown", ""), "NotReady"},
		"no conditions":              {func(g *Group) { g.Conditions = nil }, "NotReady"},
		"split brain":                {func(g *Group) { g.SiteStatuses[1].State = "writable" }, "SiteNotReady"},
		"active without status":      {func(g *Group) { g.ActiveSite = "fra" }, "NoPrimary"},
		"recovery of the active":     {func(g *Group) { g.SiteStatuses[0].RecoveryState = "RecoveryInProgress" }, "RecoveryInProgress"},
		"convergence blocked":        {func(g *Group) { g.SiteStatuses[1].SourceConvergenceState = "Blocked" }, "SourceConvergenceBlocked"},
		"update deferred":            {reserved("OrderedUpdate/Deferred"), "OrderedUpdate"},
		"update handed over":         {reserved("OrderedUpdate/Pending"), "OrderedUpdate"},
		"restore in place deferred":  {reserved("RestoreInPlace/Deferred"), "RestoreInPlace"},
		"update in any phase at all": {func(g *Group) { g.UpdatePhase = "Succeeded" }, "OrderedUpdate"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.reason, with(test.change).Unstable()) })
	}
	for _, phase := range []string{
		"Deferred", "Pending", "Validating", "Draining", "WaitingForLag", "WaitingForDragonflySync", "PromotingDragonfly", "Promoting", "Resuming",
	} {
		group := with(func(g *Group) { g.PlannedFailover.Phase = phase })
		require.Equal(t, "PlannedFailover", group.Unstable(), phase)
		require.True(t, group.InFlight(PlannedFailover), phase)
	}
}

func TestOrderOfReasons(t *testing.T) {
	for i, first := range inOrder {
		group := stable()
		for at := len(inOrder) - 1; at >= i; at-- {
			inOrder[at].change(&group)
		}
		require.Equal(t, first.reason, group.Unstable(), first.name)
	}
}

func TestTransient(t *testing.T) {
	require.True(t, Transient(ReasonTopologyPending))
	require.True(t, Transient(ReasonRevocationPending))
	require.False(t, Transient(UnstableNotReady))
	require.False(t, Transient(""))
}
