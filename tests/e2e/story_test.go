package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

func TestSubmitDeployDestroy(t *testing.T) {
	t.Parallel()
	const id = "story"
	submitted, err := slipway.api(t).Submit(t.Context(), id, configuration(`"deploy":"lines-3"`), "")
	require.NoError(t, err)
	require.EqualValues(t, 1, submitted.Build)
	require.Equal(t, deployment.EvaluationEvaluated, submitted.Evaluation)
	require.Equal(t, []deployment.Node{{Name: "web", Names: []string{"example.org"}}}, submitted.Nodes)

	d := slipway.settled(t, id)
	require.Equal(t, deployment.StateActive, d.State)
	require.EqualValues(t, 1, *d.Live)
	require.Equal(t, "deploy of build 1: lines-3\n1\n2\n3\ndone\n", slipway.logOf(t, id, 1))
	require.JSONEq(t, string(configuration(`"deploy":"lines-3"`)), string(d.Configuration))

	destroyed, err := slipway.api(t).Destroy(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 2, destroyed.Build)
	d = slipway.settled(t, id)
	require.Equal(t, deployment.StateIdle, d.State)
	require.Nil(t, d.Live)
	require.Equal(t, "destroy of build 2: quick\ndone\n", slipway.logOf(t, id, 2))

	destroyed, err = slipway.api(t).Destroy(t.Context(), id)
	require.NoError(t, err)
	require.Zero(t, destroyed.Build, "idle already")
}
