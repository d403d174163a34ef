package ports_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

func TestCheckReportsEveryProblemAtOnce(t *testing.T) {
	listener, err := net.Listen("tcp", ports.Address(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	taken := listener.Addr().(*net.TCPAddr).Port
	free, err := ports.Free(1)
	require.NoError(t, err)

	err = ports.Check([]ports.Use{
		{For: "deployments API", Port: taken, Choose: "--api-port or DEV_API_PORT"},
		{For: "metrics", Port: free[0], Choose: "--metrics-port"},
		{For: "health checks", Port: free[0], Choose: "--health-port"},
		{For: "Temporal", Port: 70000, Choose: "--temporal-port"},
	})
	require.Error(t, err)
	text := err.Error()
	require.Contains(t, text, "port "+strconv.Itoa(taken)+" for the deployments API: cannot listen on it")
	require.Contains(t, text, "choose another with --api-port or DEV_API_PORT")
	require.Contains(t, text, "is wanted twice, for the metrics (--metrics-port) and for the health checks (--health-port)")
	require.Contains(t, text, "port 70000 for the Temporal: is not a port number")
}

func TestCheckAcceptsFreePorts(t *testing.T) {
	free, err := ports.Free(3)
	require.NoError(t, err)
	require.NotEqual(t, free[0], free[1])
	require.NotEqual(t, free[1], free[2])
	require.NotEqual(t, free[0], free[2])
	require.NoError(t, ports.Check([]ports.Use{{For: "a", Port: free[0]}, {For: "b", Port: free[1]}, {For: "c", Port: free[2]}}))
}

func TestCheckSeesAListenerOnEveryAddress(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	require.Error(t, ports.Check([]ports.Use{{For: "metrics", Port: listener.Addr().(*net.TCPAddr).Port}}))
}
