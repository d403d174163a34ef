// Package e2e drives a whole slipway over HTTP as its users do: real
// PostgreSQL, real Temporal, real Nix, the built programs. All tests of the
// package share one stand and use deployments of their own.
package e2e
