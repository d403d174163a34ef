// Package lease holds the rules of the deployment coordination API, /deploy/v1
// (seed A and docs/lease-api.md): who may ask, what a group's status allows, what
// a record means and what a request comes to. Everything is a function of its
// arguments; the clock is one of them.
//
// # A record and its states
//
//	           POST, PUT
//	            ┌────┐
//	    POST    │    ▼   DELETE
//	──────────▶ active ──────────▶ released ──┐
//	            │    │   deadline             │ POST: a new record
//	            │    └───────────▶ expired ───┤
//	            │ generation changed,         ▼
//	            │ somebody asked            active
//	            └────────────────▶ revoked, for ever
//
// A record is the annotation of a Lease object. The annotation decides, never
// the Lease's spec or its labels, which repeat it for others. A migration lives
// in the group's mutex object (MutexName), a hold in an object of its operation
// (OperationName). A revoked migration is written to the object of its operation
// too, the tombstone, and there first: the mutex passes on, the tombstone stays.
//
// # Invariants
//
//   - At most one migration of a group is live, because there is one object.
//   - A record is live while it is active and now is not after expiresAt. Whether
//     its expiry was written down makes no difference, so a lease ends on time
//     with nobody there to end it.
//   - An operation that was revoked is never granted or renewed again, per kind.
//   - A live record of another generation than its group's has no future: every
//     decision on it is revoked, and asks the caller to write that (Sweep).
//   - Nothing is admitted while the topology has not settled (Topology) or a
//     revocation is asked for (DecideGrant).
//   - A grant needs a stable group before and after its write; a renewal needs
//     only that the group has not moved (Group.Same).
//
// # A record edited by hand
//
// A record that a person broke is an error of ParseRecord. One with an expiry
// beyond MaxTTL stays in effect until then. Nothing in the annotation says when
// it was last renewed, the spec may not decide, and the operator reads the same
// annotation: if slipway took the lease for over while the operator honours it,
// or gave the mutex away because this replica's clock had jumped back, two could
// hold at once. The way out is the next renewal, which sets the expiry anew, a
// release, or a revocation. Record.Deadline bounds only how long slipway waits
// before it looks again, and what it writes to the spec.
//
// # Files
//
// names.go: names and limits. record.go: the record. group.go, authorize.go:
// what is read of the cluster, and who may ask. stability.go, topology.go,
// planned.go: what a group's status allows. decide.go: the verdicts. view.go:
// the body of a GET.
package lease
