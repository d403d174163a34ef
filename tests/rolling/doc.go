// Package rolling tests a rolling update of the whole, as Kubernetes does one,
// while everything that slipway does goes on:
//
//	clients ── Service ──┬── api   ┄ the pod that goes
//	                     └── api2  ┄ the pod that comes
//	deploy jobs ── Service of the leader's label ── one of the two
//	                         worker, worker2 ┄ the same
//
// A new pod is started and becomes an endpoint when it is ready. Then the old one
// gets SIGTERM, and is an endpoint for a while yet, since the two happen at the
// same time; connections that it has stay with it until one of the two ends
// closes them. The two Services are balancers of TCP connections in the test.
//
// Clients may try each request again once, and more often only where the answer
// is that nobody leads yet, until the leader that let go is about to end. What
// fails twice fails the test, and so does an event that a channel loses or
// doubles over its connections, a lease that is lost, a build that does not
// succeed or whose deployer ran twice, and a process that does not end by itself
// with exit code 0.
package rolling
