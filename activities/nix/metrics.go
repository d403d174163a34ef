package nix

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one Evaluator.
type metrics struct {
	duration *prometheus.HistogramVec
	refused  prometheus.Counter
}

// newMetrics registers the metrics of e, unless registerer is nil.
func newMetrics(registerer prometheus.Registerer, e *Evaluator) (metrics, error) {
	m := metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "slipway_nix_evaluation_duration_seconds",
			Help:    "How long evaluations took, by result: ok, the kind of a failure, cancelled or error.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"result"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_nix_slots_refused_total",
			Help: "Evaluations that did not run because every slot of this process was in use.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.duration, m.refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "slipway_nix_slots_in_use", Help: "Evaluations that run in this process.",
		}, func() float64 { return float64(e.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "slipway_nix_slots", Help: "Evaluations that may run at once in this process.",
		}, func() float64 { return float64(cap(e.slots)) }),
	} {
		if err := registerer.Register(c); err != nil {
			return metrics{}, fmt.Errorf("register the metrics of evaluations: %w", err)
		}
	}
	return m, nil
}

func (m metrics) evaluated(took time.Duration, err error) {
	result := "error"
	var failure *Failure
	switch {
	case err == nil:
		result = "ok"
	case errors.As(err, &failure):
		result = string(failure.Kind)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		result = "cancelled"
	}
	m.duration.WithLabelValues(result).Observe(took.Seconds())
}
