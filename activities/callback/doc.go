// Package callback calls a front-end when a destroy has reached idle, once and
// without a retry (seed B, "Durability of the intent record"):
//
//	POST {url}
//	Authorization: Bearer {token}
//
//	{"deploymentId": "…", "build": 7, "state": "idle"}
//
// The call is claimed in the database before it is made, so a crash at any
// moment gives at most one. URL and token come with the claim and go nowhere
// else: not into an error, not into the log, not into the history of a workflow.
//
// Whoever asked for the call chose its URL, so it is a way to make this program
// reach places that the caller cannot. What limits it:
//
//   - its origin is one of the allowed front-ends, now and not only when it was
//     asked for (package origin)
//   - the name is looked up once; every address that it has is checked, and the
//     connection goes to one of those
//   - redirects are not followed, no proxy is used, and nothing of the answer
//     but its status is told
//   - 10 seconds for all of it, and 64 KiB of the answer
package callback
