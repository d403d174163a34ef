// Package nix evaluates module sources: it asks Nix what a configuration may
// be, which nodes it stands up, and where the deployer is.
//
// A source (a folder, or a pinned git commit) first becomes a snapshot, a
// content-addressed store path that never changes (Snapshot). Only snapshots
// are evaluated and deployed:
//
//	source ──Snapshot──► snapshot ──Evaluate──► schema, names, systems (JSON)
//	                         └─────Realise───► path of the deployer
//
// A source is somebody else's program, so an evaluation is kept on a short
// lead. It is one nix-instantiate with restrict-eval and without import from
// derivation, which sees the snapshot, a private folder with the
// configuration, and nothing else: no environment, no standard input, no
// network (as root, where the kernel lets us, not even a network interface).
// The process has an address-space limit and a time limit; at the end of
// either, when its output is too large, or when the context is done, its whole
// process group gets SIGKILL, because an evaluator can ignore anything less.
// It also dies with the worker. Its output is looked at only after it exited
// with 0: Nix prints half a document before an error.
//
// What can go wrong is of three kinds:
//
//   - *Failure: the source, or what it does with this configuration. Its Kind
//     tells a refusal of the module (with the module's message) from a limit
//     that was reached and from a source that does not keep the contract.
//   - *SourceError: the source, or its entry, is not there.
//   - Anything else: Nix or the machine is not well, or the context is done.
//     It says nothing about the source and must not be remembered.
//
// To tell the first from the last, our side of an evaluation (evaluate.nix)
// prints a line when it begins: what fails before that is not the source's
// fault.
//
// Slots bound how many evaluations run at once. Evaluate takes none itself,
// since who has to wait and who must not is for the caller to say.
//
// The package needs Linux, and Nix 2.8 or later, or Lix.
package nix
