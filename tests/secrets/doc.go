// Package secrets tests what becomes of the secrets of operators (seed B,
// "Secrets of the operator") in a whole slipway: the built programs, real
// PostgreSQL, Temporal and Nix, and a real KV v2 server, to which slipway has a
// token with the policy of docs/secrets.md and nothing more.
//
// All tests share one stand and are steps of one test, each with deployments of
// its own:
//
//	rules     what a submit, a preview, a clear and a destroy do
//	failures  OpenBao is away, refuses, or is none
//	entries   that a person or OpenBao has changed, and a strict mount
//	example   the example source, whose nodes read; logins and TLS
//	races     submits, clears and destroys at once; a worker that dies
//	canary    the search, at the end, for every value that a step used
//
// The server is reached by a proxy, in which a step can break what concerns its
// own deployment.
package secrets
