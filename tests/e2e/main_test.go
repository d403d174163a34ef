package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// slipway is the stand that the tests of this package share.
var slipway *stand.Stand

func TestMain(m *testing.M) {
	s, err := stand.New(stand.Options{Env: []string{
		"SLIPWAY_NIX_TIMEOUT=5s", "SLIPWAY_NIX_MEMORY=1GiB", "SLIPWAY_NIX_SLOTS=4", "SLIPWAY_DEPLOYER_GRACE=1s",
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	slipway = s
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, s.Logs())
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// api is a client that may do everything.
func api(t *testing.T) *client.Client {
	t.Helper()
	c, err := slipway.Client()
	require.NoError(t, err)
	return c
}

// configuration is one of the controlled source: members are added to what a
// configuration needs.
func configuration(members string) json.RawMessage {
	if members != "" {
		members = "," + members
	}
	return json.RawMessage(`{"test":{"domain":"example.org"` + members + `}}`)
}

// settled waits until a deployment has settled and returns it.
func settled(t *testing.T, id string) deployment.Deployment {
	t.Helper()
	var got deployment.Deployment
	await(t, 60*time.Second, func() error {
		var err error
		if got, err = api(t).Get(t.Context(), id); err != nil {
			return err
		}
		if !got.State.Settled() {
			return fmt.Errorf("%s is %s: %s", id, got.State, got.Reason)
		}
		return nil
	})
	return got
}

// build waits until a build has a status.
func build(t *testing.T, id string, number int64, status deployment.Status) deployment.Build {
	t.Helper()
	var got deployment.Build
	await(t, 60*time.Second, func() error {
		var err error
		if got, err = api(t).Build(t.Context(), deployment.Ref{Deployment: id, Build: number}); err != nil {
			return err
		}
		if got.Status != status {
			return fmt.Errorf("build %d of %s is %s (%s), want %s", number, id, got.Status, got.Reason, status)
		}
		return nil
	})
	return got
}

// logOf waits for the end of a build and returns its log.
func logOf(t *testing.T, id string, number int64) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	body, err := api(t).Log(ctx, deployment.Ref{Deployment: id, Build: number}, 0, true)
	require.NoError(t, err)
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	return string(text)
}

// record is what the deployer of the controlled source noted.
func record(t *testing.T, id string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(slipway.Record, id))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(text)
}

// open lets a deployer go on that waits at its gate.
func open(t *testing.T, id string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(slipway.Record, id+".open"), nil, 0o644))
}

// await polls until done returns nil.
func await(t *testing.T, limit time.Duration, done func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
