package kube

import (
	"fmt"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// Metrics of leases. Their names are those of the existing operator.
type Metrics struct {
	expirations, revocations, deferred *prometheus.CounterVec
}

// NewMetrics registers the counters.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bloodraven", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		expirations: counter("deploy_lease_expirations_total", "Leases that nobody renewed in time.", "group", "kind"),
		revocations: counter("deploy_lease_revocations_total", "Leases that were revoked, by reason.", "group", "kind", "reason"),
		deferred:    counter("planned_failovers_deferred_total", "Planned failovers that a lease deferred.", "group", "reason"),
	}
	for _, c := range []prometheus.Collector{m.expirations, m.revocations, m.deferred} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of leases: %w", err)
		}
	}
	return m, nil
}

// awaits has the expirations of a group and kind counted from 0 while there is a
// lease: a counter that appears with its first one does not increase by it, and
// an alert would miss it.
func (m *Metrics) awaits(group string, kind lease.Kind) {
	m.expirations.WithLabelValues(group, string(kind))
}

// Forget drops the series of a group that is gone.
func (m *Metrics) Forget(group string) {
	for _, c := range []*prometheus.CounterVec{m.expirations, m.revocations, m.deferred} {
		c.DeletePartialMatch(prometheus.Labels{"group": group})
	}
}

// Gauges are the leases that are held now, taken from what a watch knows.
type Gauges struct {
	Records iter.Seq2[wire.LeaseRef, lease.Record]
	Now     func() time.Time
}

var (
	activeLeases = prometheus.NewDesc("bloodraven_deploy_leases_active", "Leases that are held now.", []string{"group", "kind"}, nil)
	leaseAge     = prometheus.NewDesc("bloodraven_deploy_lease_age_seconds", "Age of the oldest lease that is held now.", []string{"group", "kind"}, nil)
)

// Describe is of prometheus.Collector.
func (Gauges) Describe(all chan<- *prometheus.Desc) {
	all <- activeLeases
	all <- leaseAge
}

// Collect is of prometheus.Collector.
func (g Gauges) Collect(all chan<- prometheus.Metric) {
	type series struct{ group, kind string }
	active, oldest := map[series]int{}, map[series]time.Time{}
	now := g.Now()
	for ref, r := range g.Records {
		if !r.Live(now) {
			continue
		}
		s := series{ref.Group, string(r.Kind)}
		active[s]++
		if first, ok := oldest[s]; !ok || r.CreatedAt.Before(first) {
			oldest[s] = r.CreatedAt
		}
	}
	for s, n := range active {
		all <- prometheus.MustNewConstMetric(activeLeases, prometheus.GaugeValue, float64(n), s.group, s.kind)
		all <- prometheus.MustNewConstMetric(leaseAge, prometheus.GaugeValue, max(0, now.Sub(oldest[s]).Seconds()), s.group, s.kind)
	}
}
