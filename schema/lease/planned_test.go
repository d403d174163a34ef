package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePlannedFailover(t *testing.T) {
	for text, want := range map[string]FailoverRequest{
		"pdx": {"pdx", ""}, "pdx:maxLag=5": {"pdx", "maxLag=5"}, "pdx:a=b:c=d": {"pdx", "a=b:c=d"}, "pdx:": {"pdx", ""},
	} {
		request, err := ParsePlannedFailover(text)
		require.NoError(t, err, text)
		require.Equal(t, want, request)
	}
	for _, text := range []string{"", ":", ":a=b", "PDX", "pd x", "pdx,a=b"} {
		_, err := ParsePlannedFailover(text)
		require.Error(t, err, "%q", text)
	}
}

func TestReservation(t *testing.T) {
	for text, want := range map[string]bool{
		"OrderedUpdate/Deferred": true, "RestoreInPlace/Pending": true, "PlannedFailover/Deferred": true,
		"": false, "OrderedUpdate": false, "OrderedUpdate/": false, "/Deferred": false, "Other/Deferred": false, "OrderedUpdate/Deferred/x": false,
	} {
		reservation, ok := ParseReservation(text)
		require.Equal(t, want, ok, "%q", text)
		if ok {
			require.Equal(t, text, reservation.String())
		}
	}
	for text, stands := range map[string]bool{"OrderedUpdate/Deferred": true, "OrderedUpdate/Pending": true, "OrderedUpdate/Failed": false, "x": false} {
		_, ok := with(reserved(text)).Reservation()
		require.Equal(t, stands, ok, text)
	}
}

func TestOperation(t *testing.T) {
	for name, test := range map[string]struct {
		group Group
		want  OperationKind
	}{
		"none":                 {stable(), ""},
		"failover":             {with(func(g *Group) { g.PlannedFailover.Phase = "Deferred" }), PlannedFailover},
		"failover over":        {with(func(g *Group) { g.PlannedFailover.Phase = "Succeeded" }), ""},
		"update":               {with(func(g *Group) { g.UpdatePhase = "Rolling" }), OrderedUpdate},
		"update over":          {with(func(g *Group) { g.UpdatePhase = "Failed" }), ""},
		"update reserved":      {with(reserved("OrderedUpdate/Pending")), OrderedUpdate},
		"restore":              {with(func(g *Group) { g.RestoreInPlacePhase = "Copying" }), RestoreInPlace},
		"restore reserved":     {with(reserved("RestoreInPlace/Deferred")), RestoreInPlace},
		"restore to a new one": {with(func(g *Group) { g.RestorePhase = "Running" }), ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, test.group.Operation()) })
	}
	require.False(t, stable().InFlight("Other"))
	_, ok := ParseOperationKind("plannedfailover")
	require.False(t, ok)
}

func TestRevalidate(t *testing.T) {
	deferred := func(g *Group) { g.PlannedFailover.Phase = PhaseDeferred }
	for name, test := range map[string]struct {
		kind   OperationKind
		target string
		group  Group
		want   string
	}{
		"failover, before it is written": {PlannedFailover, "pdx", stable(), ""},
		"failover, deferred":             {PlannedFailover, "pdx", with(deferred), ""},
		"failover, running already":      {PlannedFailover, "pdx", with(func(g *Group) { g.PlannedFailover.Phase = "Promoting" }), "PlannedFailover"},
		"failover, update waits":         {PlannedFailover, "pdx", with(deferred, reserved("OrderedUpdate/Deferred")), "OrderedUpdate"},
		"failover, unstable":             {PlannedFailover, "pdx", with(deferred, is("Degraded", "True", "SplitBrain")), "SplitBrain"},
		"failover, revocation pending":   {PlannedFailover, "pdx", with(deferred, func(g *Group) { g.Revoke.Present = true }), "DeploymentRevocationPending"},
		"failover, topology moves":       {PlannedFailover, "pdx", with(deferred, func(g *Group) { g.Generation++ }), "TopologyPersistencePending"},
		"failover to the active site":    {PlannedFailover, "iad", with(deferred), "TargetNotReadOnly"},
		"failover to nowhere":            {PlannedFailover, "fra", with(deferred), "TargetUnknown"},
		"failover without target":        {PlannedFailover, "", with(deferred), "TargetUnknown"},
		"failover to a site that left": {PlannedFailover, "fra", with(deferred, func(g *Group) {
			g.SiteStatuses = append(g.SiteStatuses, SiteStatus{Name: "fra", State: "read-only", Replicating: true})
		}), "TargetUnknown"},
		"failover, target stopped":   {PlannedFailover, "pdx", with(deferred, func(g *Group) { g.SiteStatuses[1].Replicating = false }), "ReplicationNotRunning"},
		"update, deferred":           {OrderedUpdate, "", with(reserved("OrderedUpdate/Deferred")), ""},
		"update, handed over before": {OrderedUpdate, "", with(reserved("OrderedUpdate/Pending")), "OrderedUpdate"},
		"update, running already":    {OrderedUpdate, "", with(reserved("OrderedUpdate/Deferred"), func(g *Group) { g.UpdatePhase = "Rolling" }), "OrderedUpdate"},
		"update, failover waits":     {OrderedUpdate, "", with(reserved("OrderedUpdate/Deferred"), deferred), "PlannedFailover"},
		"restore, deferred":          {RestoreInPlace, "backup-7", with(reserved("RestoreInPlace/Deferred")), ""},
		"restore, update waits":      {RestoreInPlace, "backup-7", with(reserved("OrderedUpdate/Deferred")), "OrderedUpdate"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, test.group.Revalidate(test.kind, test.target)) })
	}
}
