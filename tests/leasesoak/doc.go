// Package leasesoak uses the deployment coordination API for a while, with
// everything breaking under it, and judges what its callers were told.
//
// Callers record each call with its begin, its end and its answer (History).
// Check then looks for what cannot have happened, whatever else did in between:
//
//   - Two operations never hold the migration lease of a group at once.
//   - A hold is never in force while a planned operation is.
//   - Once an operation was revoked, nothing of it succeeds any more.
//   - A token is not accepted after its lease expired, was released or was
//     revoked, nor after another grant of the operation replaced it.
//
// An operation is sure of its lease from the end of the call that confirmed it
// until the expiry that it was told, or the begin of whatever may have ended the
// lease before. All that is uncertain counts in favour of slipway, so a finding
// is a fault.
//
// TestSoak renews leases while each piece is killed and restarted; TestHistory
// has callers do at random what they like, with replicas frozen at times.
// SOAK=5m makes the soak last so long and the history have 100,000 calls.
// SOAK_SEED repeats the choices of callers.
package leasesoak
