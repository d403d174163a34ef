package coordination

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger writes JSON lines as the log of the deploy API has them: time in
// UTC, level, msg and the fields, and nothing else.
func NewLogger(w io.Writer) *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg",
		EncodeLevel: zapcore.CapitalLevelEncoder,
		EncodeTime: func(t time.Time, e zapcore.PrimitiveArrayEncoder) {
			e.AppendString(t.UTC().Format(time.RFC3339Nano))
		},
	}), zapcore.Lock(zapcore.AddSync(w)), zapcore.InfoLevel))
}

// place is what the lines about a request have in common. The group is the one
// asked for, the namespace that of the group once the caller may know.
func (c *call) place() []zap.Field {
	instance := c.instance
	if instance == "" && len(c.instances) == 1 {
		instance = c.instances[0]
	}
	return []zap.Field{
		zap.String("handler", c.match.handler), zap.String("group", c.match.group), zap.String("instance", instance),
		zap.String("namespace", c.namespace), zap.String("operationId", c.operationID),
	}
}

// record logs and counts an answer.
func (h *Handler) record(c *call, status int, took time.Duration) {
	h.Log.Info("deploy api", append(c.place(), zap.Int("status", status), zap.Int64("duration_ms", took.Milliseconds()))...)
	method := c.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		method = "other" // a caller may invent any
	}
	h.metrics.requests.WithLabelValues(server, c.match.handler, method, strconv.Itoa(status/100)+"xx").Inc()
	h.metrics.duration.WithLabelValues(server, c.match.handler, method).Observe(took.Seconds())
	if c.match.handler != "grant" {
		return
	}
	if result := grantResult(status); result != "" {
		// Not the group of the path: anybody can make those up.
		h.metrics.grants.WithLabelValues(c.group.Name, string(c.kind), result).Inc()
	}
}

// grantResult is the label of a grant's status, or "" for one that is neither
// granted nor refused for what it asks.
func grantResult(status int) string {
	switch status {
	case http.StatusCreated, http.StatusOK:
		return "granted"
	case http.StatusConflict:
		return "conflict"
	case http.StatusLocked:
		return "unstable"
	case http.StatusUnauthorized, http.StatusForbidden:
		return "unauthorized"
	}
	return ""
}

// Forget drops the series of a group that is gone.
func (h *Handler) Forget(group string) {
	if group != "" { // those that belong to no group stay
		h.metrics.grants.DeletePartialMatch(prometheus.Labels{"group": group})
	}
}

// server is the label of this API's requests.
const server = "deploy"

type metrics struct {
	grants   *prometheus.CounterVec
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	m := metrics{
		grants: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bloodraven_deploy_lease_grants_total",
			Help: "Grants of leases that were asked for, by result. The group is empty where none was resolved.",
		}, []string{"group", "kind", "result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bloodraven_http_requests_total",
			Help: "HTTP requests that were answered, by handler, method and class of status.",
		}, []string{"server", "handler", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "bloodraven_http_request_duration_seconds",
			Help:    "How long HTTP requests took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"server", "handler", "method"}),
	}
	for _, c := range []prometheus.Collector{m.grants, m.requests, m.duration} {
		if err := registerer.Register(c); err != nil {
			return metrics{}, fmt.Errorf("register the metrics of the deploy API: %w", err)
		}
	}
	return m, nil
}
