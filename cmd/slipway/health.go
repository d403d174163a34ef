package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"go.temporal.io/sdk/client"

	"slipway.dev/slipway/activities/store"
)

// probe is how long one look at a dependency may take.
const probe = 3 * time.Second

// health answers /healthz (the process runs) and /readyz (it can do its work,
// or what it waits for).
type health struct {
	store    *store.Store
	temporal client.Client
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready := h.look(r.Context())
		w.Header().Set("Content-Type", "application/json")
		if !ready.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(ready)
	})
	return mux
}

// readiness is the body of /readyz.
type readiness struct {
	Ready bool `json:"ready"`
	// WaitsFor says what is missing, a line for each.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Problems do not keep the service from working.
	Problems []string `json:"problems,omitempty"`
}

func (h *health) look(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, probe)
	defer cancel()
	var r readiness
	if err := h.store.Ready(ctx); err != nil {
		r.WaitsFor = append(r.WaitsFor, "PostgreSQL: "+err.Error())
	} else {
		source, err := h.store.Source(ctx)
		switch {
		case err != nil:
			r.WaitsFor = append(r.WaitsFor, "PostgreSQL: "+err.Error())
		case source.Snapshot == "" && source.Problem == "":
			r.WaitsFor = append(r.WaitsFor, "module source: a worker evaluates it for the first time")
		case source.Snapshot == "":
			r.WaitsFor = append(r.WaitsFor, "module source: "+source.Problem)
		case source.Problem != "":
			r.Problems = append(r.Problems, "module source: it has changed and does not evaluate, submits go on with the one before: "+source.Problem)
		}
	}
	if _, err := h.temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		r.WaitsFor = append(r.WaitsFor, "Temporal: "+err.Error())
	}
	r.Ready = len(r.WaitsFor) == 0
	return r
}
