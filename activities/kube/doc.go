// Package kube keeps the leases of the deployment coordination API on the
// Kubernetes API server, as Lease objects that the database operator reads too.
// What is decided, schema/lease decides; this package reads, writes and starts
// over.
//
//	api/coordination ──┐                      ┌── MysqlDatabase: who may call
//	                   ├── Leases ── Cluster ─┼── MysqlFailoverGroup: is it stable
//	workflow Lease ────┘                      └── Lease: who holds what
//
// A renewal comes from the API, everything else by way of the workflow of the
// lease; both run the same code here, and may run it at once, in two processes,
// one of which was paused for a minute.
//
// These hold:
//
//   - Every write is on the condition that the object is as it was when the
//     decision was made (resourceVersion). A conflict starts over, a few times.
//   - Who grants or renews reads the group again after the write. A grant that
//     finds the group moved or unstable is taken back, a renewal is decided
//     again: by then the lease is revoked.
//   - A revocation of a migration is written to the object of its operation
//     first, then to the mutex; the two are read the other way round. So nobody
//     finds a live mutex without finding the tombstone.
//   - The group is settled (Leases.Settle) before anything is decided: the
//     generation raised where the operator did not, leases of another
//     generation revoked, and only then the topology noted on the group. A
//     process that dies in between leaves the group closed for the next one.
//   - An object that cannot be understood gives nobody anything: a *BrokenError,
//     which only a person can mend.
//
// # The leader
//
// Election decides which process runs the activities, answers the API and
// watches: not because two could do harm, but because expiry is judged by one
// clock. A leader that was paused for longer than a term knows it.
//
// # Planned operations
//
// planned.go reserves a group before it looks at the holds, and a hold is
// granted only where the second look at the group finds no reservation. One of
// the two always sees the other.
package kube
