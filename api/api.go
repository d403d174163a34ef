package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"slipway.dev/slipway/api/auth"
	"slipway.dev/slipway/api/channel"
	"slipway.dev/slipway/schema/origin"
)

// Config of the deployments API. Everything is needed but what says otherwise.
type Config struct {
	Reader    Reader
	Listener  Listener
	Workflows Workflows
	Callbacks Callbacks
	// Sealer takes the values of secrets; nil where no OpenBao is configured.
	Sealer Sealer
	// Verifier checks bearer tokens.
	Verifier *auth.Verifier
	// Origins are the front-ends that may call from browsers, and that a
	// destroy may call back; none where it is empty.
	Origins origin.List
	// Codec encodes and decodes the payloads of Temporal; nil where they are not
	// encrypted.
	Codec converter.PayloadCodec
	// CodecOrigins are the Web UIs of Temporal that may call for that from
	// browsers.
	CodecOrigins origin.List
	// TicketKey signs the tickets of the channel: at least 32 random bytes
	// that all replicas share.
	TicketKey  []byte
	Log        *zap.Logger
	Registerer prometheus.Registerer
	// Tracer makes a span of each request, below the one that its traceparent
	// (W3C Trace Context) names; nil: there are no spans.
	Tracer trace.Tracer
	// TrustedProxies are the networks of proxies whose X-Forwarded-For tells the
	// address of the client; none.
	TrustedProxies []netip.Prefix

	// Now is the clock that tickets and the limits of addresses are judged by;
	// time.Now.
	Now func() time.Time
	// Timeout bounds a call that evaluates nothing, and each read of a stream;
	// 15 s.
	Timeout time.Duration
	// EvaluateTimeout bounds a submit and a preview, and is longer than an
	// evaluation may take; and a list, whose answer may be long; 2 minutes.
	EvaluateTimeout time.Duration
	// ImportTimeout bounds an import, which also evaluates the systems of all
	// nodes; 12 minutes.
	ImportTimeout time.Duration
	// BodyTimeout is how long a client may take to send a body; 30 s.
	BodyTimeout time.Duration
	// WriteTimeout bounds each write of a stream; a client that takes longer
	// is dropped; 10 s.
	WriteTimeout time.Duration
	// Ping is the time between two comments on a channel; 15 s.
	Ping time.Duration
	// Poll is when a stream reads without having heard of a change; 10 s.
	Poll time.Duration
}

type api struct {
	Config
	shown   shown
	tickets auth.Tickets
	hub     *channel.Hub
	schemas schemas
	limits  *limiter
	served  served
	metrics metrics
	// large is the memory that documents may take while they are served.
	large  *semaphore.Weighted
	router chi.Router
}

// NewHandler serves the deployments API. Its streams end when ctx ends; other
// requests go on.
func NewHandler(ctx context.Context, c Config) (http.Handler, error) {
	a, err := newAPI(ctx, c)
	if err != nil {
		return nil, err
	}
	return a.router, nil
}

func newAPI(ctx context.Context, c Config) (*api, error) {
	switch {
	case c.Reader == nil, c.Listener == nil, c.Workflows == nil, c.Callbacks == nil, c.Verifier == nil, c.Log == nil, c.Registerer == nil:
		return nil, errors.New("the configuration of the deployments API is not complete")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	for _, d := range []struct {
		value *time.Duration
		other time.Duration
	}{
		{&c.Timeout, 15 * time.Second},
		{&c.EvaluateTimeout, 2 * time.Minute},
		{&c.ImportTimeout, 12 * time.Minute},
		{&c.BodyTimeout, 30 * time.Second},
		{&c.WriteTimeout, 10 * time.Second},
		{&c.Ping, 15 * time.Second},
		{&c.Poll, 10 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.other
		}
	}
	tickets, err := auth.NewTickets(c.TicketKey)
	if err != nil {
		return nil, err
	}
	a := &api{Config: c, tickets: tickets, limits: newLimiter(), large: semaphore.NewWeighted(largeBytes)}
	a.shown = shown{c.Reader, &a.schemas, newSources(c.Reader), newFacts()}
	if a.metrics, err = newMetrics(c.Registerer); err != nil {
		return nil, fmt.Errorf("register the metrics of the deployments API: %w", err)
	}
	a.hub = channel.NewHub(ctx, channel.Config{
		Reader:   bounded{a.shown, c.Timeout},
		Listener: c.Listener,
		Encode:   encodeDeployment,
		Log:      c.Log,
		Dropped:  a.metrics.dropped.Inc,
		Ping:     c.Ping,
		Poll:     c.Poll,
		Write:    c.WriteTimeout,
	})
	a.router = a.routes(ctx)
	return a, nil
}

func (a *api) routes(ctx context.Context) chi.Router {
	r := chi.NewRouter()
	r.Use(a.observe, allowOrigins(a.Origins, a.CodecOrigins), middleware.GetHead)
	r.NotFound(a.notFound)
	r.MethodNotAllowed(a.methodNotAllowed)

	read, write := a.token(auth.ScopeRead), a.token(auth.ScopeWrite)
	const noLimit = 0 // a stream, which bounds each of its steps

	r.Get("/deployments", a.handle(read, a.EvaluateTimeout, a.list))
	r.Post("/deployments/list", a.handle(read, a.EvaluateTimeout, a.listMany))
	r.Put("/deployments/{id}", a.handle(write, a.EvaluateTimeout, a.submit))
	r.Get("/deployments/{id}", a.handle(read, a.Timeout, a.show))
	r.Delete("/deployments/{id}", a.handle(write, a.Timeout, a.destroy))
	r.Post("/deployments/{id}/preview", a.handle(write, a.EvaluateTimeout, a.preview))
	r.Post("/deployments/{id}/import", a.handle(write, a.ImportTimeout, a.importDeployment))
	r.Get("/deployments/{id}/builds", a.handle(read, a.Timeout, a.builds))
	r.Get("/deployments/{id}/builds/{n}", a.handle(read, a.Timeout, a.build))
	r.Get("/deployments/{id}/builds/{n}/log", a.handle(read, noLimit, a.log(ctx)))
	r.Post("/deployments/{id}/builds/{n}/cancel", a.handle(write, a.Timeout, a.cancel))
	r.Get("/deployments/{id}/events", a.handle(a.tokenOrTicket, noLimit, a.events))
	r.Post("/deployments/{id}/events/ticket", a.handle(read, a.Timeout, a.ticket))

	r.Get("/sbom-list/{id}", a.handle(read, a.Timeout, a.sbomList))
	r.Get("/sbom/{id}", a.handle(read, a.Timeout, a.sbom))
	r.Get("/sbom-diff/{id}", a.handle(read, a.Timeout, a.sbomDiff))
	r.Get("/components", a.handle(read, a.Timeout, a.components))

	r.Post("/codec/decode", a.handle(read, a.Timeout, a.decodePayloads))
	r.Post("/codec/encode", a.handle(read, a.Timeout, a.encodePayloads))

	r.Post("/application-paths", a.handle(a.anyone, a.Timeout, a.applicationPaths))
	r.Post("/sections", a.handle(a.anyone, a.Timeout, a.sections))

	r.Get("/schema", a.handle(anybody, a.Timeout, a.schema))
	r.Get("/openapi.yaml", a.openAPI())
	r.Get("/docs", a.docs)
	r.Get("/docs/{asset}", a.docsAsset)
	return r
}

// Server is an http.Server for the handler. It has no time limit for a whole
// request or answer, because of the streams; those who send a body slowly are
// limited where it is read, and those who take an answer slowly where it is
// written. To stop it: end the context of NewHandler, then call Shutdown.
func Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler,
		// A request line and headers are small and arrive at once.
		ReadHeaderTimeout: 10 * time.Second,
		// Longer than the idle timeout of common load balancers, so that they
		// are the ones to close.
		IdleTimeout: 2 * time.Minute,
		// A token has at most 16 KiB, 100 identifiers in a query 5 KiB.
		MaxHeaderBytes: 64 << 10,
	}
}
