package store

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slipway.dev/slipway/schema/deployment"
)

// collectTime bounds the look at the database of one scrape.
const collectTime = 3 * time.Second

// newDurations counts the builds that this process ended, and how long they ran.
func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "slipway_build_duration_seconds",
		Help:    "Time from the turn of a build to its end, by action and status; 0 for one that never had its turn.",
		Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200},
	}, []string{"action", "status"})
}

// Register registers the metrics of the database: what is in it, the
// connections of this process, and the builds that it ended. Every process that
// shares the database tells the same of what is in it.
func (s *Store) Register(registerer prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{s.durations, collector{s}} {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("register the metrics of the database: %w", err)
		}
	}
	return nil
}

// collector tells what is in the database when it is scraped.
type collector struct{ store *Store }

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("slipway_"+name, help, labels, nil)
}

var (
	databaseUp  = gauge("database_up", "Whether the database answered this scrape. Without it, nothing is told of what is in it.")
	connections = gauge("database_connections", "Connections of this process to the database, by state.", "state")
	most        = gauge("database_connections_max", "Connections to the database that this process may have.")
	builds      = gauge("builds", "Builds that have not ended, by status.", "status")
	waiting     = gauge("builds_oldest_queued_seconds", "For how long the oldest queued build has waited for its turn; 0 without one.")
	running     = gauge("builds_oldest_running_seconds", "For how long the build that runs the longest has run; 0 without one.")
	callbacks   = gauge("callbacks_pending", "Destroys that ended and whose front-end was not called yet.")
	source      = gauge("source_problem", "Whether the module source as it is now cannot be used: it does not evaluate, or its deployer does not build.")
	sbomBytes   = gauge("sbom_store_bytes", "Space that the SBOMs take in the database, with their indexes.")
	sbomDropped = gauge("sbom_dropped_documents", "SBOMs that nothing uses any more and that were not collected yet.")
)

// Describe is of prometheus.Collector.
func (collector) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{databaseUp, connections, most, builds, waiting, running, callbacks, source, sbomBytes, sbomDropped} {
		all <- d
	}
}

// Collect is of prometheus.Collector.
func (c collector) Collect(all chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		all <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	pool := c.store.pool.Stat()
	set(connections, float64(pool.AcquiredConns()), "acquired")
	set(connections, float64(pool.IdleConns()), "idle")
	set(most, float64(pool.MaxConns()))

	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	var found struct {
		queued, running, callbacks, dropped, bytes int64
		waits, runs                                float64
		problem                                    bool
	}
	// Each part has an index that is as small as what it counts.
	err := c.store.pool.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE status = 'queued'), count(*) FILTER (WHERE status = 'running'),
		       coalesce(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE status = 'queued')), 0)::float8,
		       coalesce(extract(epoch FROM clock_timestamp() - min(started_at) FILTER (WHERE status = 'running')), 0)::float8,
		       (SELECT count(*) FROM builds WHERE callback = 'pending' AND finished_at IS NOT NULL),
		       coalesce((SELECT problem <> '' FROM source), false),
		       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
		        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'sbom\_%'),
		       (SELECT count(*) FROM sbom_documents WHERE dropped)
		FROM builds WHERE status IN ('queued', 'running')`).
		Scan(&found.queued, &found.running, &found.waits, &found.runs, &found.callbacks, &found.problem, &found.bytes, &found.dropped)
	if err != nil {
		set(databaseUp, 0)
		return
	}
	set(databaseUp, 1)
	set(builds, float64(found.queued), string(deployment.StatusQueued))
	set(builds, float64(found.running), string(deployment.StatusRunning))
	set(waiting, max(0, found.waits))
	set(running, max(0, found.runs))
	set(callbacks, float64(found.callbacks))
	problem := 0.0
	if found.problem {
		problem = 1
	}
	set(source, problem)
	set(sbomBytes, float64(found.bytes))
	set(sbomDropped, float64(found.dropped))
}
