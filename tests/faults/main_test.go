package faults

import (
	"context"
	"encoding/json"
	"errors"
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

// worlds are the stands of this package. A test has one for itself; there are
// two, since most of a test is waiting.
var worlds = make(chan *world, 2)

// soakTime is how long the soak lasts; 0 when SOAK is not set.
var soakTime time.Duration

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for range cap(worlds) {
		if w := <-worlds; w != nil {
			if err := w.close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

func prepare() (err error) {
	if text := os.Getenv("SOAK"); text != "" {
		if soakTime, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("SOAK: %w", err)
		}
	}
	made := make(chan error)
	for range cap(worlds) {
		go func() {
			w, err := newWorld()
			worlds <- w
			made <- err
		}()
	}
	for range cap(worlds) {
		err = errors.Join(err, <-made)
	}
	return err
}

// world is a running slipway, and what tests look at it with. All survive a
// restart of what they connect to.
type world struct {
	*stand.Stand
	api      *client.Client
	database *pgxpool.Pool
	temporal temporalclient.Client
}

func newWorld() (*world, error) {
	// Evaluations give way to everything else: on a busy machine they take long.
	s, err := stand.New(stand.Options{Env: []string{"SLIPWAY_NIX_SLOTS=4", "SLIPWAY_DEPLOYER_GRACE=1s"}})
	if err != nil {
		return nil, err
	}
	w := &world{Stand: s}
	// Longer than any fault of these tests, so that callers get their answer.
	w.api, err = w.client(3 * time.Minute)
	if err == nil {
		w.database, err = s.Database(context.Background())
	}
	if err == nil {
		w.temporal, err = s.TemporalClient()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return w, nil
}

// client makes a client that repeats a submit for so long.
func (w *world) client(patience time.Duration) (*client.Client, error) {
	token := func() (string, error) { return w.Token(issuer.Claims{}), nil }
	return client.New(w.URL, token, client.Options{Patience: patience})
}

func (w *world) close() error {
	w.database.Close()
	w.temporal.Close()
	return w.Close()
}

// enter gives a test a world until it ends. After a test that failed nobody
// knows what state its world is in, so the next one gets another.
func enter(t *testing.T) *world {
	t.Parallel()
	w := <-worlds
	if w == nil {
		worlds <- nil
		t.Fatal("there is no world, see the tests before")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.Logs())
			var err error
			if err = w.close(); err == nil {
				w, err = newWorld()
			}
			if err != nil {
				t.Error(err)
				w = nil
			}
		}
		worlds <- w
	})
	return w
}

// long is how long something lasts in the long version of the tests, and
// otherwise.
func long(soaking, otherwise time.Duration) time.Duration {
	if soakTime > 0 {
		return soaking
	}
	return otherwise
}

// kill kills pieces at once, as kill -9 does.
func (w *world) kill(t *testing.T, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		require.NoError(t, w.Kill(piece))
	}
}

// start starts pieces again, waits until all of slipway can be used, and
// returns when that was.
func (w *world) start(t *testing.T, pieces ...string) time.Time {
	t.Helper()
	since := time.Now()
	for _, piece := range pieces {
		require.NoError(t, w.Start(piece))
	}
	require.NoError(t, w.Ready())
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
			return fmt.Errorf("after %s: %w", limit.Round(time.Second), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
