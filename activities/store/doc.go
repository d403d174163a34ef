// Package store is PostgreSQL: deployments, builds, logs, events and the
// evaluation cache. It is the arbiter of everything about builds, so that a
// workflow that an operator terminates, cancels or resets wedges nothing.
//
// A build goes
//
//	            ┌──────────► superseded   (a newer submit, or a destroy)
//	queued ─────┼──────────► cancelled
//	   │        └──────────► failed       (its workflow is gone)
//	   ▼
//	running ──► succeeded | failed | cancelled
//
// and these hold at every commit:
//
//   - At most one build of a deployment runs (a partial unique index), and it
//     is the oldest that has not ended.
//   - A build that has ended never changes again.
//   - A deployer runs only under the fence of a running build. The fence is
//     renewed by the supervisor of the deployer and lapses by the clock of the
//     database. A build is failed for want of a result only after its fence
//     has lapsed, so two deployers of a deployment never run at once.
//   - The exit of a deployer is staged with the build by the holder of the
//     fence. Whoever finishes the build goes by it: a deploy that succeeded is
//     never recorded as failed.
//   - What happens to a deployment happens under the lock of its row, and the
//     events of its channel are written in the same transaction. So sequences
//     of events commit in order, and every event says what was true when it
//     was written.
//
// A destroy may call its front-end back (seed B, "Durability of the intent
// record"). URL and token wait in an offer until the request is recorded, then
// in the row of the build, and leave it with the one claim:
//
//	offer ──► pending ──► claimed ──► delivered | failed | refused
//	             └──────► skipped   (it did not succeed, or there is a later build)
//
// Each exported method is one transaction. NOTIFY carries only the deployment
// and the build; who listens reads the rows.
package store
