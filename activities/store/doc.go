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
//   - A step of a workflow touches no build but that which the workflow
//     recorded. A database that was restored to an earlier time gives numbers
//     again, and Temporal may still run the workflows that had them.
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
// # SBOMs
//
// A document is kept as its components, each once for all documents, and its
// remainder (see schema/sbom). It goes
//
//	staged ──► SBOM of its node ──► earlier SBOM of its node ──► dropped ──► gone
//	   └────────────────────────────────┴────────────────────────────┘
//
// StageSBOM does all the work, under the fence and while the build still runs:
// it stores the components and the document, which nobody sees yet. The
// transaction that ends the build only moves references, however large the
// documents are: those of a build that succeeded become those of the nodes in
// the same moment, and those of another are dropped.
//
//   - A component stays while a document has it that is not dropped. The rows of
//     sbom_document_components are exactly those documents, from the transaction
//     that stores them to the one that drops them.
//   - CollectSBOMs removes dropped documents and then unused components. It
//     looks through them without a lock, and again, for the few that are left,
//     under an advisory lock that stores share: a component that a running store
//     found is in use when the lock is free. It waits for half a second at most.
//   - Stores write components in the order of their hashes, so that they wait
//     for each other in one direction only.
//   - Readers put a document together from one snapshot of the database, and
//     compare its SHA-256.
//   - A component is known by the SHA-256 of its text, which an index computes
//     and no column repeats.
//
// Each exported method but CollectSBOMs is one transaction. NOTIFY carries only
// the deployment and the build; who listens reads the rows.
package store
