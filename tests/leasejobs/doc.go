// Package leasejobs drives `slipway lease` as deploy jobs do: the built program
// with real commands, against the deployment coordination API on a real
// Kubernetes API server. The tests share one stand, and each has a group of its
// own; the one that takes the API away from all is not parallel, so it runs
// before the others.
//
// A command that must not outlive its leases beats: it writes into a file again
// and again, and the test reads when it did so last.
package leasejobs
