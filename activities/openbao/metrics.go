package openbao

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one Client.
type metrics struct {
	requests *prometheus.HistogramVec
	logins   prometheus.Counter
}

// newMetrics registers the metrics, unless registerer is nil.
func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	m := metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "slipway_openbao_request_duration_seconds",
			Help:    "How long requests to OpenBao took, by class of status, or none without an answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"status"}),
		logins: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_openbao_login_failures_total",
			Help: "Logins at OpenBao and renewals that failed and are tried again.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.logins} {
		if err := registerer.Register(c); err != nil {
			return metrics{}, fmt.Errorf("register the metrics of OpenBao: %w", err)
		}
	}
	return m, nil
}

// answered observes a request; response is nil where nothing answered.
func (m metrics) answered(response *http.Response, took time.Duration) {
	status := "none"
	if response != nil {
		status = fmt.Sprintf("%dxx", response.StatusCode/100)
	}
	m.requests.WithLabelValues(status).Observe(took.Seconds())
}
