// Package panel is the example front-end: a small web panel with which a person
// drafts, submits, watches and deletes deployments. It is what docs/front-ends.md
// explains, and production does not have it.
//
// # Two stores
//
// slipway knows what runs, the panel knows what is wanted (seed B, "Two-store
// model and deletion"): its store has the drafts, each with a name for people,
// an owner, and the configuration as it was last saved, without the values of
// secrets. A draft is there before the first build and after a failed one.
//
//	panel.json   drafts, sessions, outstanding deletions; written whole or not
//	             at all, and only hashes of what opens something
//	issuer/      the key pair that signs access tokens
//
// # Who talks to whom
//
//	browser ── session cookie ──→ panel   drafts, access tokens, confirm
//	browser ── access token ────→ slipway everything about what runs
//	slipway ── callback token ──→ panel   reconcile, once, after a destroy
//
// The server of the panel never calls slipway. The pages call its public API
// from the browser, with a token of a few minutes that the panel signs and that
// is limited to the user's own drafts; slipway trusts it by OIDC discovery.
//
// # Deletion
//
// The browser orders it: begin (the panel makes a callback token for this one
// draft), destroy (slipway), wait (the channel), confirm (the panel removes the
// draft). Confirm and reconcile are siblings with one credential each: confirm
// takes the session and refuses requests of other origins, reconcile takes the
// callback token in a header and looks at no cookie. Saving a draft withdraws
// what is outstanding, so a deployment that was submitted again does not lose
// its record; at worst a record stays that has nothing to it, and that can be
// deleted again.
package panel
