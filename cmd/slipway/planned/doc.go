// Package planned is `slipway planned`: it asks for planned operations of a
// failover group. It talks to Temporal, not to Kubernetes: the leader writes
// what it decides.
package planned
