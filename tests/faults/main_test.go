package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/tests/stand"
)

// The stand that the tests of this package share, one after the other, and
// what they look at it with. All survive a restart of what they connect to.
var (
	slipway  *stand.Stand
	api      *client.Client
	database *pgxpool.Pool
	temporal temporalclient.Client
)

// soakTime is how long the soak lasts; 0 when SOAK is not set.
var soakTime time.Duration

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if soakTime, err = time.ParseDuration(text); err != nil {
			return fail(fmt.Errorf("SOAK: %w", err))
		}
	}
	var err error
	slipway, err = stand.New(stand.Options{Env: []string{"SLIPWAY_NIX_SLOTS=4", "SLIPWAY_DEPLOYER_GRACE=1s"}})
	if err != nil {
		return fail(err)
	}
	code := 1
	if err = connect(); err == nil {
		code = m.Run()
		database.Close()
		temporal.Close()
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, err, slipway.Logs())
	}
	if err := slipway.Close(); err != nil {
		return fail(err)
	}
	return code
}

func connect() (err error) {
	// Longer than any fault of these tests, so that callers get their answer.
	const patience = 3 * time.Minute
	if api, err = client.New(slipway.URL, token, client.Options{Patience: patience}); err != nil {
		return err
	}
	if database, err = slipway.Database(context.Background()); err != nil {
		return err
	}
	temporal, err = slipway.TemporalClient()
	return err
}

func token() (string, error) { return slipway.Token(issuer.Claims{}), nil }

// long is how long something lasts in the long version of the tests, and
// otherwise.
func long(soaking, otherwise time.Duration) time.Duration {
	if soakTime > 0 {
		return soaking
	}
	return otherwise
}

// kill kills pieces at once, as kill -9 does.
func kill(t *testing.T, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		require.NoError(t, slipway.Kill(piece))
	}
}

// start starts pieces again, waits until all of slipway can be used, and
// returns when that was.
func start(t *testing.T, pieces ...string) time.Time {
	t.Helper()
	since := time.Now()
	for _, piece := range pieces {
		require.NoError(t, slipway.Start(piece))
	}
	require.NoError(t, slipway.Ready())
	t.Logf("%v: up again after %s", pieces, time.Since(since).Round(100*time.Millisecond))
	return time.Now()
}

// configuration is one of the controlled source: members are added to what a
// configuration needs.
func configuration(members string) json.RawMessage {
	if members != "" {
		members = "," + members
	}
	return json.RawMessage(`{"test":{"domain":"example.org"` + members + `}}`)
}

// await polls until done returns nil.
func await(t *testing.T, limit time.Duration, done func() error) {
	t.Helper()
	if err := poll(t.Context(), limit, done); err != nil {
		t.Fatal(err)
	}
}

func poll(ctx context.Context, limit time.Duration, done func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := done()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("after %s: %w", limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
