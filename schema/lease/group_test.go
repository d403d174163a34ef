package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const groupJSON = `{
  "apiVersion": "shipstream.io/v1alpha1", "kind": "MysqlFailoverGroup",
  "metadata": {"namespace": "bloodraven", "name": "orders", "uid": "u-1", "resourceVersion": "42", "generation": 9,
    "managedFields": [{"manager": "operator"}],
    "annotations": {"slipway/observed-topology": "iad@17", "bloodraven.shipstream.io/revoke-deployment-leases": "",
      "bloodraven.shipstream.io/planned-failover": "pdx", "slipway/planned-operation": "OrderedUpdate/Deferred"}},
  "spec": {"sites": [{"name": "iad", "storage": {"size": 1}}, {"name": "pdx"}], "mysql": 8},
  "status": {"activeSite": "iad", "topologyGeneration": 17, "observedGeneration": "a text in a member nobody reads",
    "conditions": [{"type": "Ready", "status": "True", "reason": "AllGood", "lastTransitionTime": null}],
    "sites": [{"name": "iad", "state": "writable", "secondsBehindSource": null},
      {"name": "pdx", "state": "read-only", "replicating": true, "secondsBehindSource": 3,
       "recoveryState": "RecoveryBlocked", "sourceConvergenceState": "Converged", "gtid": []}],
    "plannedFailover": {"phase": "Deferred", "reason": "DeploymentHold", "message": "m", "target": "pdx",
      "sourcePrimary": "iad", "startTime": "2026-11-30T12:00:00Z", "retryAfter": null},
    "updatePhase": "Rolling", "restore": {"phase": "Succeeded"}, "restoreInPlace": null,
    "dragonfly": {"phase": "Ready", "upgrade": {"phase": "Failed"}}}}`

func TestParseGroup(t *testing.T) {
	group, err := ParseGroup([]byte(groupJSON))
	require.NoError(t, err)
	lag := 3.0
	require.Equal(t, Group{
		Namespace: "bloodraven", Name: "orders", UID: "u-1", ResourceVersion: "42",
		Revoke: Annotation{Present: true}, FailoverRequest: Annotation{true, "pdx"},
		ObservedTopology: Annotation{true, "iad@17"}, PlannedOperation: Annotation{true, "OrderedUpdate/Deferred"},
		Sites: []string{"iad", "pdx"}, ActiveSite: "iad", Generation: 17,
		Conditions: []Condition{{"Ready", "True", "AllGood"}},
		SiteStatuses: []SiteStatus{
			{Name: "iad", State: "writable"},
			{Name: "pdx", State: "read-only", Replicating: true, SecondsBehindSource: &lag, RecoveryState: "RecoveryBlocked", SourceConvergenceState: "Converged"},
		},
		PlannedFailover: PlannedFailoverStatus{
			Phase: "Deferred", Reason: "DeploymentHold", Message: "m", Target: "pdx", SourcePrimary: "iad", StartTime: "2026-11-30T12:00:00Z",
		},
		UpdatePhase: "Rolling", RestorePhase: "Succeeded", DragonflyPhase: "Ready", DragonflyUpgradePhase: "Failed",
	}, group)
	require.True(t, group.RevokeRequested())
}

func TestParseGroupTolerates(t *testing.T) {
	for name, test := range map[string]struct {
		raw  string
		good bool
	}{
		"nothing but a name":      {`{"metadata":{"namespace":"a","name":"b"}}`, true},
		"null parts":              {`{"metadata":{"namespace":"a","name":"b","annotations":null},"spec":null,"status":null}`, true},
		"unknown of any type":     {`{"metadata":{"namespace":"a","name":"b","labels":7},"spec":{"x":[1]},"status":{"y":"z"},"w":null}`, true},
		"empty":                   {``, false},
		"no object":               {`[]`, false},
		"no name":                 {`{"metadata":{"namespace":"a"}}`, false},
		"no namespace":            {`{"metadata":{"name":"a"}}`, false},
		"generation as text":      {`{"metadata":{"namespace":"a","name":"b"},"status":{"topologyGeneration":"17"}}`, false},
		"conditions as an object": {`{"metadata":{"namespace":"a","name":"b"},"status":{"conditions":{}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			group, err := ParseGroup([]byte(test.raw))
			if !test.good {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, Group{Namespace: "a", Name: "b"}, group)
		})
	}
	deleting, err := ParseGroup([]byte(`{"metadata":{"namespace":"a","name":"b","deletionTimestamp":"2026-11-30T12:00:00Z"}}`))
	require.NoError(t, err)
	require.True(t, deleting.Deleting)
}

func TestSame(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Group)
		same   bool
	}{
		"nothing":           {func(*Group) {}, true},
		"something else":    {func(g *Group) { g.ResourceVersion = "43"; g.UpdatePhase = "Rolling" }, true},
		"generation":        {func(g *Group) { g.Generation++ }, false},
		"active site":       {func(g *Group) { g.ActiveSite = "pdx" }, false},
		"another same name": {func(g *Group) { g.UID = "u-2" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			after := stable()
			test.change(&after)
			require.Equal(t, test.same, stable().Same(after))
		})
	}
}

func FuzzParseGroup(f *testing.F) {
	f.Add([]byte(groupJSON))
	f.Add([]byte(`{"metadata":{"namespace":"a","name":"b"},"status":{"sites":[null,{}],"conditions":[null]},"spec":{"sites":[null]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		group, err := ParseGroup(raw)
		if err != nil {
			return
		}
		body := Observe(start, group, nil)
		require.Equal(t, body.Stable, body.UnstableReason == "")
		require.NotNil(t, body.Leases)
		if step := group.Topology(false); step.Kind == StepRaise {
			require.Greater(t, step.Generation, int64(0))
		}
		_ = group.Revalidate(PlannedFailover, group.ActiveSite)
		_ = group.ReadGate()
	})
}
