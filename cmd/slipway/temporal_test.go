package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"slipway.dev/slipway/worker/codec"
)

// frontend is as much of Temporal as a client needs to ask for its health.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	address string

	mu   sync.Mutex
	keys []string // the API keys of the requests
}

// serve serves until stop is called. p is both the certificate of the server and
// the one that it asks its clients for.
func (f *frontend) serve(t *testing.T, p pair) (stop func()) {
	t.Helper()
	certificate, err := tls.X509KeyPair(p.certificate, p.key)
	require.NoError(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(certificate.Leaf)
	listener, err := net.Listen("tcp", f.address)
	require.NoError(t, err)
	f.address = listener.Addr().String()
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		})),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			f.mu.Lock()
			f.keys = append(f.keys, metadata.ValueFromIncomingContext(ctx, "authorization")...)
			f.mu.Unlock()
			return handler(ctx, request)
		}))
	status := grpchealth.NewServer()
	status.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, status)
	workflowservice.RegisterWorkflowServiceServer(server, f)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() {
		server.Stop()
		require.NoError(t, <-ended)
	}
}

func (f *frontend) lastKey() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[len(f.keys)-1]
}

func TestCredentialsOfTemporalThatChange(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	first, second := makePair(t, 1), makePair(t, 2)
	give := func(p pair) {
		put(t, path("tls.key"), p.key)
		put(t, path("tls.crt"), p.certificate)
		put(t, path("ca.crt"), p.certificate)
	}
	give(first)
	put(t, path("api-key"), []byte("one\n"))
	f := &frontend{address: "127.0.0.1:0"}
	stop := f.serve(t, first)
	t.Setenv("TEMPORAL_CONFIG_FILE", path("none.toml"))
	t.Setenv("TEMPORAL_ADDRESS", f.address)
	t.Setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", path("ca.crt"))
	t.Setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", path("tls.crt"))
	t.Setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", path("tls.key"))
	temporal, _, err := temporalClient(&codec.Codec{}, path("api-key"), zap.NewNop())
	require.NoError(t, err)
	defer temporal.Close()
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := temporal.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	}
	require.NoError(t, ask())
	require.Equal(t, "Bearer one", f.lastKey())

	put(t, path("api-key"), []byte("two\n"))
	require.NoError(t, ask())
	require.Equal(t, "Bearer two", f.lastKey(), "on the same connection")

	// All of a server's certificates change, and then ours.
	stop()
	stop = f.serve(t, second)
	defer func() { stop() }()
	require.Eventually(t, func() bool {
		err := ask()
		require.Error(t, err)
		return strings.Contains(err.Error(), "certificate")
	}, time.Minute, 50*time.Millisecond)
	give(second)
	require.Eventually(t, func() bool { return ask() == nil }, time.Minute, 50*time.Millisecond)

	require.NoError(t, os.Remove(path("api-key")))
	require.ErrorContains(t, ask(), "SLIPWAY_TEMPORAL_API_KEY_FILE: open "+path("api-key"))
}

func TestTheAPIKeyOfTemporal(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "api-key")
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(folder, "none.toml"))
	_, _, err := temporalClient(&codec.Codec{}, file, zap.NewNop())
	require.ErrorContains(t, err, "SLIPWAY_TEMPORAL_API_KEY_FILE: open "+file)
	require.NoError(t, os.WriteFile(file, []byte("\n"), 0o600))
	_, _, err = temporalClient(&codec.Codec{}, file, zap.NewNop())
	require.ErrorContains(t, err, "is empty")
	require.NoError(t, os.WriteFile(file, []byte("secret"), 0o600))
	t.Setenv("TEMPORAL_API_KEY", "secret")
	_, _, err = temporalClient(&codec.Codec{}, file, zap.NewNop())
	require.ErrorContains(t, err, "are both set")
	require.NotContains(t, err.Error(), "secret")
}
