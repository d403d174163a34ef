// Package coordination drives the deployment coordination API as deploy jobs,
// operators and attackers do: the built program on a real Kubernetes API server
// with RBAC, real Temporal, real tokens and real TLS. The tests share one stand,
// and each has a namespace and a group of its own. Those that take something
// away from all (the leader, Temporal, the certificate) are not parallel, so
// they run before the others.
//
//	answers    every status and body of the contract
//	callers    tokens, who may ask, what may be sent
//	lives      leases in Temporal: found, revoked, terminated
//	topology   a change of the active site, the revoke annotation
//	planned    planned operations and holds
//	leader     leader election, replicas that are killed and paused, the pod's label
//	transport  TLS, and Temporal that is away
//	numbers    metrics and the log
//	secrets    after all tests: no token is anywhere, no call was forbidden
package coordination
