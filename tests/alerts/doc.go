// Package alerts reads what deploy asks of Prometheus: the metrics in its alert
// rules (chart/alerts.yaml) and its dashboard (observability/dashboard.json), and
// the labels that they are chosen by. Tests with a running slipway compare that with what it exposes.
//
// It knows as much of PromQL as finding names takes. Prometheus's own parser is
// not used: its module would move the versions of OpenTelemetry and others
// that the Temporal server is pinned with.
package alerts
