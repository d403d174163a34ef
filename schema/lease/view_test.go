package lease

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestObservationIsTheSeeds(t *testing.T) {
	lag := 0.4
	group := with(func(g *Group) { g.SiteStatuses[1].SecondsBehindSource = &lag })
	body, err := json.Marshal(Observe(start, group, nil))
	require.NoError(t, err)
	require.Equal(t, `{"group":"orders","namespace":"bloodraven","activeSite":"iad","topologyGeneration":17,`+
		`"health":{"ready":true,"degradedReason":"","replicationRunning":true,"replicationLagSeconds":0.4,"recoveryPending":false},`+
		`"operations":{"plannedFailover":{"phase":"","reason":""},"updatePhase":"","restoreInPlace":"","dragonflyUpgrade":""},`+
		`"stable":true,"unstableReason":"","leases":[]}`, string(body))
}

func TestObservedLeases(t *testing.T) {
	hold := func(operation string, left time.Duration) Record {
		r := record(KindHold, deployer)
		r.OperationID, r.ExpiresAt = operation, start.Add(left)
		return r
	}
	mutex := record(KindMigration, deployer)
	mutex.ExpiresAt = start.Add(time.Minute)
	tombstone := record(KindMigration, another)
	tombstone.State = StateRevoked
	released := hold("released", time.Minute)
	released.State = StateReleased
	records := []Record{
		hold("c", 20*time.Second), tombstone, hold("a", 20*time.Second), released, hold("lapsed", -1), hold("b", 10*time.Second), mutex, hold("now", 0),
	}
	var names []string
	for _, view := range Observe(start, stable(), records).Leases {
		names = append(names, string(view.Kind)+" "+view.OperationID)
	}
	require.Equal(t, []string{"migration op-1", "failover-hold now", "failover-hold b", "failover-hold a", "failover-hold c"}, names)

	body, err := json.Marshal(Observe(start, stable(), []Record{mutex}).Leases)
	require.NoError(t, err)
	require.Equal(t, `[{"kind":"migration","operationId":"op-1","instance":"orders-app","expiresAt":"2026-11-30T12:01:00Z","topologyGeneration":17}]`, string(body))
}

func TestObservedOperations(t *testing.T) {
	group := with(func(g *Group) {
		g.PlannedFailover = PlannedFailoverStatus{Phase: "Deferred", Reason: "DeploymentHold", Message: "not shown"}
		g.UpdatePhase, g.RestoreInPlacePhase, g.DragonflyUpgradePhase = "Rolling", "Copying", "Running"
	})
	body := Observe(start, group, nil)
	require.Equal(t, Operations{FailoverView{"Deferred", "DeploymentHold"}, "Rolling", "Copying", "Running"}, body.Operations)
	require.False(t, body.Stable)
	require.Equal(t, "PlannedFailover", body.UnstableReason)
}

func TestHealth(t *testing.T) {
	seconds := func(n float64) *float64 { return &n }
	third := func(behind *float64) func(*Group) {
		return func(g *Group) {
			g.Sites = append(g.Sites, "fra")
			g.SiteStatuses = append(g.SiteStatuses, SiteStatus{Name: "fra", State: "read-only", Replicating: true, SecondsBehindSource: behind})
		}
	}
	good := Health{Ready: true, ReplicationRunning: true}
	for name, test := range map[string]struct {
		change func(*Group)
		want   func(*Health)
	}{
		"good":                   {func(*Group) {}, func(*Health) {}},
		"not ready":              {is("Ready", "False", ""), func(h *Health) { h.Ready = false }},
		"degraded":               {is("Degraded", "True", "SplitBrain"), func(h *Health) { h.DegradedReason = "SplitBrain" }},
		"degraded by lag":        {is("Degraded", "True", "ReplicationLagging"), func(h *Health) { h.DegradedReason = "ReplicationLagging" }},
		"not degraded":           {is("Degraded", "False", "SplitBrain"), func(*Health) {}},
		"largest lag":            {func(g *Group) { third(seconds(7))(g); g.SiteStatuses[1].SecondsBehindSource = seconds(3) }, func(h *Health) { h.ReplicationLagSeconds = 7 }},
		"lag unknown of one":     {func(g *Group) { third(nil)(g); g.SiteStatuses[1].SecondsBehindSource = seconds(3) }, func(h *Health) { h.ReplicationLagSeconds = 3 }},
		"lag of the active":      {func(g *Group) { g.SiteStatuses[0].SecondsBehindSource = seconds(9) }, func(*Health) {}},
		"active replicates not":  {func(g *Group) { g.SiteStatuses[0].Replicating = false }, func(*Health) {}},
		"follower stopped":       {func(g *Group) { g.SiteStatuses[1].Replicating = false }, func(h *Health) { h.ReplicationRunning = false }},
		"site not observed":      {func(g *Group) { g.Sites = append(g.Sites, "fra") }, func(h *Health) { h.ReplicationRunning = false }},
		"recovery condition":     {is("RecoveryPending", "True", "X"), func(h *Health) { h.RecoveryPending = true }},
		"recovery of a site":     {func(g *Group) { g.SiteStatuses[0].RecoveryState = "RecoveryInProgress" }, func(h *Health) { h.RecoveryPending = true }},
		"convergence pending":    {func(g *Group) { g.SiteStatuses[1].SourceConvergenceState = "Pending" }, func(h *Health) { h.RecoveryPending = true }},
		"convergence blocked":    {func(g *Group) { g.SiteStatuses[1].SourceConvergenceState = "Blocked" }, func(h *Health) { h.RecoveryPending = true }},
		"converged":              {func(g *Group) { g.SiteStatuses[1].SourceConvergenceState = "Converged" }, func(*Health) {}},
		"recovery not condition": {is("RecoveryPending", "Unknown", "X"), func(*Health) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := good
			test.want(&want)
			require.Equal(t, want, with(test.change).Health())
		})
	}
}

func TestReadGate(t *testing.T) {
	for name, test := range map[string]struct {
		group Group
		want  string
	}{
		"settled":                  {stable(), ""},
		"unstable is shown":        {unsteady, ""},
		"no primary is shown":      {noPrimary, ""},
		"revocation is shown":      {asked, ""},
		"topology moves":           {moved, "TopologyPersistencePending"},
		"generation not noted":     {unnoted, "TopologyPersistencePending"},
		"an operation waits":       {with(reserved("OrderedUpdate/Deferred")), ""},
		"handed over, not visible": {with(reserved("OrderedUpdate/Pending")), "OrderedUpdate"},
		"handed over, visible":     {with(reserved("OrderedUpdate/Pending"), func(g *Group) { g.UpdatePhase = "Rolling" }), ""},
		"restore handed over":      {with(reserved("RestoreInPlace/Pending"), func(g *Group) { g.UpdatePhase = "Rolling" }), "RestoreInPlace"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, test.group.ReadGate()) })
	}
}
