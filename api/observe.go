package api

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// statusClientGone is the status in log and metrics of a request whose client
// did not wait for the answer. It is never sent.
const statusClientGone = 499

// exchange is what is observed of a request and its answer.
type exchange struct {
	http.ResponseWriter
	id      string
	status  int // 0 until the answer begins
	bytes   int64
	subject string // of the token
	stream  bool
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	x.bytes += int64(n)
	return n, err
}

// clientGone reports whether the request ended because its client left, or the
// server closes.
func (x *exchange) clientGone(r *http.Request) bool {
	return errors.Is(r.Context().Err(), context.Canceled)
}

// observe is around everything: it names the request, logs it without its
// query and headers (which hold tickets and tokens), counts it, and answers a
// panic.
func (a *api) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		x := &exchange{ResponseWriter: w, id: uuid.NewString()}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := a.Tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		r = r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
		header := w.Header()
		header.Set("X-Request-Id", x.id)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		// For those who do not take their answer. A route that may take longer
		// moves it, and a stream limits each of its writes anew.
		_ = http.NewResponseController(w).SetWriteDeadline(begin.Add(a.Timeout + time.Minute))

		broken := a.recovered(x, r, next)
		a.record(x, r, time.Since(begin))
		if broken {
			panic(http.ErrAbortHandler) // for the server, which closes the connection
		}
	})
}

// recovered serves the request and reports whether its connection must be
// closed.
func (a *api) recovered(x *exchange, r *http.Request, next http.Handler) (broken bool) {
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == any(http.ErrAbortHandler):
			broken = true
		default:
			a.Log.Error("a request panicked", zap.String("requestId", x.id), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			if x.status != 0 || x.clientGone(r) {
				broken = true
				return
			}
			a.fail(x, r, errors.New("panic"))
		}
	}()
	next.ServeHTTP(x, r)
	return false
}

func (a *api) record(x *exchange, r *http.Request, took time.Duration) {
	route := "none"
	if pattern := chi.RouteContext(r.Context()).RoutePattern(); pattern != "" && pattern != "/*" {
		route = pattern
	}
	status := x.status
	if status == 0 {
		status = http.StatusOK
	}
	a.metrics.observe(r.Method, route, status, took, x.stream)
	span := trace.SpanFromContext(r.Context())
	// Not the path and the query, as in the log.
	span.SetName(r.Method + " " + route)
	span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status), attribute.String("slipway.request_id", x.id))
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
	fields := []zap.Field{
		zap.String("requestId", x.id), zap.String("method", r.Method), zap.String("route", route),
		zap.Int("status", status), zap.Duration("took", took), zap.Int64("bytes", x.bytes),
	}
	if x.subject != "" {
		fields = append(fields, zap.String("subject", x.subject))
	}
	if c := span.SpanContext(); span.IsRecording() {
		fields = append(fields, zap.Stringer("traceId", c.TraceID()))
	}
	a.Log.Info("request", fields...)
}

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	streams  *prometheus.GaugeVec
	dropped  prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_api_requests_total",
			Help: "Requests of the deployments API that were answered, by route, method and class of status.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "slipway_api_request_duration_seconds",
			Help:    "How long requests of the deployments API took, without the streams.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"route", "method", "status"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slipway_api_streams",
			Help: "Streams that are open now, by route.",
		}, []string{"route"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_api_slow_clients_total",
			Help: "Clients of a stream that were dropped because they took too long to take it.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.streams, m.dropped} {
		if err := registerer.Register(c); err != nil {
			return metrics{}, err
		}
	}
	return m, nil
}

func (m metrics) observe(method, route string, status int, took time.Duration, stream bool) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
	default:
		method = "other" // a caller may invent any
	}
	class := strconv.Itoa(status/100) + "xx"
	m.requests.WithLabelValues(route, method, class).Inc()
	if !stream {
		m.duration.WithLabelValues(route, method, class).Observe(took.Seconds())
	}
}

// streaming marks a request as a stream until the returned function is called.
func (a *api) streaming(r *http.Request) (done func()) {
	exchangeOf(r).stream = true
	open := a.metrics.streams.WithLabelValues(chi.RouteContext(r.Context()).RoutePattern())
	open.Inc()
	return open.Dec
}
