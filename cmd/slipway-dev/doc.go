// Command slipway-dev runs everything that slipway needs on one machine: a
// private PostgreSQL, Temporal with its Web UI, a Kubernetes API server and a
// secrets server when asked to, slipway itself with the example module source,
// and an example front-end. It is for development and for end-to-end tests; the program that
// production runs is cmd/slipway, which does not link the Temporal server.
//
// This package is the command line and the only place that reads the
// environment. The work is done by the packages below it:
//
//	up              the whole machine: order, progress, summary, stop
//	postgres        one private PostgreSQL
//	temporalserver  the Temporal server and the Web UI (the only package here
//	                that links them)
//	kube            a Kubernetes API server and its etcd
//	bao             a secrets server: OpenBao, or what it forked from
//	panel           the example front-end
//	issuer          key pair, JWKS file and tokens
//	supervise       children that are never left behind
//	ports           which ports are free
//
// The commands temporal, postgres, kube, bao and panel each run one server in the
// foreground; up runs them as children of itself. A test that restarts or kills one of them
// does the same.
package main
