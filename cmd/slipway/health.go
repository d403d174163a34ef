package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"

	"slipway.dev/slipway/schema/deployment"
)

// probe is how long one look at a dependency may take.
const probe = 3 * time.Second

// health answers /healthz (the process runs) and /readyz (it can do its work,
// or what it waits for; with ?verbose also the state of each dependency).
//
// Ready is who has found all that it needs once, until it is asked to stop. What
// goes away later is a problem, and no reason to take a replica of the API out
// of its Service: all of them would go at once, and with them the reads and
// channels that go on, and the answers that say what is away.
type health struct {
	store interface {
		Ready(ctx context.Context) error
		Source(ctx context.Context) (deployment.Source, error)
	}
	temporal interface {
		CheckHealth(ctx context.Context, request *client.CheckHealthRequest) (*client.CheckHealthResponse, error)
	}
	// others are the checks of what the service is ready without, by name; they
	// are made for ?verbose alone.
	others map[string]func(context.Context) error
	// stopping has ended once the process was asked to stop.
	stopping context.Context

	// found: all that is needed was there once.
	found atomic.Bool

	mu sync.Mutex
	// starting are the parts of the process that nobody can use yet.
	starting []string
}

// starts holds readiness back until the part has begun.
func (h *health) starts(part string) (began func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starting = append(h.starting, part)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.starting = slices.DeleteFunc(h.starting, func(s string) bool { return s == part })
	}
}

// waits are the parts that have not begun.
func (h *health) waits() (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, part := range h.starting {
		lines = append(lines, part+": it starts")
	}
	return lines
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready := h.look(r.Context())
		if r.URL.Query().Has("verbose") {
			h.lookAtOthers(r.Context(), ready.Dependencies)
		} else {
			ready.Dependencies = nil
		}
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
	// Dependencies says of each "ok" or what is wrong, where that is asked for.
	Dependencies map[string]string `json:"dependencies,omitempty"`

	away []string // a line for each dependency that is
}

// lacks notes a dependency that is away.
func (r *readiness) lacks(name, why string) {
	r.away = append(r.away, name+": "+why)
	r.Dependencies[name] = why
}

const (
	fine         = "ok"
	postgres     = "PostgreSQL"
	temporal     = "Temporal"
	moduleSource = "module source"
)

func (h *health) look(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, probe)
	defer cancel()
	r := readiness{Dependencies: map[string]string{postgres: fine, temporal: fine}, WaitsFor: h.waits()}
	if h.stopping.Err() != nil {
		r.WaitsFor = append(r.WaitsFor, "its end: the process was asked to stop")
	}
	if err := h.store.Ready(ctx); err != nil {
		r.lacks(postgres, err.Error())
	} else {
		source, err := h.store.Source(ctx)
		switch {
		case err != nil:
			r.lacks(postgres, err.Error())
		case source.Snapshot == "" && source.Problem == "":
			r.lacks(moduleSource, "a worker evaluates it for the first time")
		case source.Snapshot == "":
			r.lacks(moduleSource, source.Problem)
		case source.Problem != "":
			problem := "it has changed and cannot be used, submits go on with the one before: " + source.Problem
			r.Problems = append(r.Problems, moduleSource+": "+problem)
			r.Dependencies[moduleSource] = problem
		default:
			r.Dependencies[moduleSource] = fine
		}
	}
	if _, err := h.temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		r.lacks(temporal, err.Error())
	}
	if h.found.Load() {
		r.Problems = append(r.Problems, r.away...)
	} else {
		r.WaitsFor = append(r.WaitsFor, r.away...)
	}
	r.Ready = len(r.WaitsFor) == 0
	if r.Ready {
		h.found.Store(true)
	}
	return r
}

// lookAtOthers asks the others, all at once, and adds their states.
func (h *health) lookAtOthers(ctx context.Context, states map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, probe)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for name, check := range h.others {
		asked.Go(func() {
			state := fine
			if err := check(ctx); err != nil {
				state = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			states[name] = state
		})
	}
	asked.Wait()
}
