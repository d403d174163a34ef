// Package codec encrypts what slipway writes into Temporal's histories, so that
// whoever reads the namespace, or the database under it, reads no configuration.
//
//	value ── JSON ──► payload ── AES-256-GCM, key by its ID ──► payload in the history
//
// Every process that talks to the same namespace has the same keys, of which the
// first encrypts and all decrypt. So a key is changed without a pause: it comes
// into every process to decrypt, then goes to the top, and the one before leaves
// when no history needs it any more. Payloads that are not encrypted pass as
// they are: the histories of before, and what an operator sends with the CLI.
//
// Encrypted are the inputs and results of workflows, activities, local
// activities, updates, signals and queries, heartbeats, memos, summaries, current
// details, and the texts, stack traces and details of failures. Temporal itself
// needs the rest in plain text: IDs, the names of types, queues and updates,
// search attributes, the types of errors, the reason of a termination, and who
// asked and when.
//
// A process without the key of a payload cannot decode it. In a workflow that
// fails the task and not the workflow: it goes on when a worker has the key.
package codec
