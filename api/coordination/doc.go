// Package coordination is the deployment coordination API, /deploy/v1 (seed A
// and docs/lease-api.md): clients of Bloodraven call it unchanged, so paths,
// codes, bodies and their members are exact and nothing is added to them.
//
// A handler decides nothing about leases. It finds out who asks for what, hands
// that to one of three interfaces, and writes the answer:
//
//	Cluster    whose token it is, which databases there are, the group
//	Leases     observe, renew, and look before a grant or a release
//	Workflows  grant and release, as updates of the workflow of the lease
//
// # A request
//
//	match     which row of the route table, from the path as it was sent
//	leader    503 not_leader
//	token     401 unauthorized (authenticate)
//	route     404 not_found, 405 method_not_allowed
//	values    400 invalid_request, 413 request_too_large: the path, and the
//	          body of a POST, because it names the instance
//	caller    403 forbidden, from the databases as they are now (admit)
//	group     read; 503 when it is gone; then the leader again
//	the call  the body of a PUT, and what Leases and Workflows say
//
// The route is found first, for the log and the metrics, and answered third.
//
// # What fails
//
// A *refusal is an answer. Every other error is 503 unavailable and its cause a
// line in the log: the API server or Temporal is away, an object is broken, the
// 10 s are over. A client that left is neither; its connection is broken off.
// A release does not need Temporal: when the workflow does not answer, the
// record is released directly, and the workflow finds that out by itself.
//
// # Secrets
//
// A bearer token goes to Cluster.Review and is kept as its SHA-256 only. A lease
// token is made here, written into the one answer, and handed on as its hash.
// Neither they nor the hashes are logged, and bodies are not quoted in errors.
//
// # Files
//
// coordination.go: the handler and the order of checks. route.go: paths.
// checks.go: token and caller. callers.go: the cache of tokens. body.go: strict
// JSON. calls.go: the four calls. answer.go: every body and status. observe.go:
// log and metrics. temporal.go: Workflows.
package coordination
