// Package e2e drives a whole slipway over HTTP as its users do: real
// PostgreSQL, real Temporal, real Nix, the built programs. The tests of the
// package share one stand and use deployments of their own; those of
// module sources have a stand of their own, since there is one source to a stand.
//
// What the evaluation and the deployer do is said by the configuration; see
// tests/sources/controlled.
//
//	access     tokens, scopes, secrets
//	badinput   bodies, identifiers, evaluations and deployers that misbehave
//	channel    server-sent events, tickets, logs
//	cli        the slipway program
//	operators  what is seen and done in Temporal
//	queue      builds and their order, idempotency
//	sboms      SBOMs of the example source and of a deployer that leaves any
//	source     the module source, slots
//
// Nothing here is about time: a test polls for what it waits for, and gives up
// after a minute.
package e2e
