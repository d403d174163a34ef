package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	cluster, err := Connect(kubernetes.Slipway())
	require.NoError(t, err)
	require.NoError(t, cluster.Check(t.Context()), "slipway's own rights suffice")

	stranger := rest.CopyConfig(kubernetes.Slipway())
	stranger.BearerToken = "of nobody"
	cluster, err = Connect(stranger)
	require.NoError(t, err)
	require.ErrorContains(t, cluster.Check(t.Context()), "ask the Kubernetes API server whether it is ready: ")

	away := rest.CopyConfig(kubernetes.Slipway())
	away.Host = "https://127.0.0.1:1"
	cluster, err = Connect(away)
	require.NoError(t, err)
	require.ErrorContains(t, cluster.Check(t.Context()), "connection refused")
}
