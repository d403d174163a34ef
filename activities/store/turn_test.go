package store_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
)

// The worker of the SDK waits for its activities when it stops, and one that
// waits for a turn may do so for a day.
func TestAwaitTurnGivesUpWhenTheWorkerStops(t *testing.T) {
	s := database(t)
	take(t, s, "d", submit(t, s, "d"))
	recorded, err := s.Record(t.Context(), store.Submit{
		Deployment: "d", Request: "r", WorkflowID: "default-test-workflow-id", // the one of the SDK's environment
		Snapshot: snapshot, Configuration: json.RawMessage(`{}`),
	})
	require.NoError(t, err)
	ref := deployment.Ref{Deployment: "d", Build: recorded.Build}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	stopped := make(chan struct{})
	close(stopped)
	env.SetWorkerStopChannel(stopped)
	a := &store.Activities{Store: s, Listener: s.Listener(zap.NewNop())}
	env.RegisterActivity(a)
	_, err = env.ExecuteActivity(a.AwaitTurn, ref)
	require.ErrorContains(t, err, "another one waits on")
	run(t, s, "d", ref.Build-1, 0)
	value, err := env.ExecuteActivity(a.AwaitTurn, ref)
	require.NoError(t, err)
	var turn store.Turn
	require.NoError(t, value.Get(&turn))
	require.Equal(t, store.TurnTaken, turn)
}
