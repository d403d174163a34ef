package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"slipway.dev/slipway/schema/deployment"
)

func TestOthersAreAskedAllAtOnce(t *testing.T) {
	t.Parallel()
	first := make(chan struct{})
	h := &health{others: map[string]func(context.Context) error{
		"one":   func(context.Context) error { close(first); return nil },
		"two":   func(context.Context) error { <-first; return errors.New("sealed") },
		"three": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}}
	states := map[string]string{temporal: fine}
	h.lookAtOthers(t.Context(), states)
	require.Equal(t, map[string]string{temporal: "ok", "one": "ok", "two": "sealed", "three": "context deadline exceeded"}, states)
}

// dependencies are those of a health, of which some may be away.
type dependencies struct{ database, temporal error }

func (d *dependencies) Ready(context.Context) error { return d.database }

func (d *dependencies) Source(context.Context) (deployment.Source, error) {
	return deployment.Source{Snapshot: "/nix/store/source"}, d.database
}

func (d *dependencies) CheckHealth(context.Context, *client.CheckHealthRequest) (*client.CheckHealthResponse, error) {
	return nil, d.temporal
}

func TestWhoWasReadyStaysSoUntilItsEnd(t *testing.T) {
	t.Parallel()
	d := &dependencies{database: errors.New("refused"), temporal: errors.New("deadline")}
	stopping, stop := context.WithCancel(t.Context())
	h := &health{store: d, temporal: d, stopping: stopping}
	began := h.starts("the worker")

	r := h.look(t.Context())
	require.False(t, r.Ready)
	require.Equal(t, []string{"the worker: it starts", "PostgreSQL: refused", "Temporal: deadline"}, r.WaitsFor)
	began()
	d.database = nil
	require.Equal(t, []string{"Temporal: deadline"}, h.look(t.Context()).WaitsFor)
	d.temporal = nil
	require.Equal(t, readiness{Ready: true, Dependencies: map[string]string{postgres: fine, temporal: fine, moduleSource: fine}}, h.look(t.Context()))

	d.temporal = errors.New("deadline")
	r = h.look(t.Context())
	require.True(t, r.Ready)
	require.Equal(t, []string{"Temporal: deadline"}, r.Problems)
	require.Equal(t, "deadline", r.Dependencies[temporal])
	stop()
	require.False(t, h.look(t.Context()).Ready)
}
