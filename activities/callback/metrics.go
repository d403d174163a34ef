package callback

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"slipway.dev/slipway/schema/deployment"
)

// Metrics count what became of callbacks.
type Metrics struct {
	outcomes *prometheus.CounterVec
}

// NewMetrics registers the counter. It has a series for each outcome from the
// start, so that the first failure is an increase.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_callbacks_total",
		Help: "Calls to front-ends whose destroy succeeded, by what became of them.",
	}, []string{"state"})}
	for _, state := range []deployment.CallbackState{deployment.CallbackDelivered, deployment.CallbackFailed, deployment.CallbackRefused} {
		m.outcomes.WithLabelValues(string(state))
	}
	if err := registerer.Register(m.outcomes); err != nil {
		return nil, fmt.Errorf("register the metrics of callbacks: %w", err)
	}
	return m, nil
}

func (m *Metrics) became(state deployment.CallbackState) {
	if m != nil {
		m.outcomes.WithLabelValues(string(state)).Inc()
	}
}
