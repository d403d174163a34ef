package wire

import (
	"errors"
	"time"

	"slipway.dev/slipway/schema/lease"
)

// QueueLease is the task queue of leases and planned operations. Only the
// process that holds leader election polls it.
const QueueLease = "slipway-lease"

// Workflow types of the deployment coordination API.
const (
	WorkflowLease   = "Lease"
	WorkflowPlanned = "PlannedOperation"
)

const (
	// UpdateGrant grants a lease, or renews it and rotates its token. Argument
	// GrantRequest, result LeaseAnswer.
	UpdateGrant = "grant"
	// UpdateRelease releases a lease. Argument ReleaseRequest, result
	// LeaseAnswer.
	UpdateRelease = "release"
	// UpdateRequest asks for a planned operation. Argument PlannedRequest,
	// result PlannedAnswer.
	UpdateRequest = "request"
	// SignalRevoke revokes a lease, or tells its workflow that it has been.
	// Argument Revocation.
	SignalRevoke = "revoke"
)

// LeaseRef names a lease.
type LeaseRef struct {
	Namespace   string     `json:"namespace"`
	Group       string     `json:"group"`
	Kind        lease.Kind `json:"kind"`
	OperationID string     `json:"operationId"`
}

// LeaseInput starts a Lease workflow.
type LeaseInput struct {
	LeaseRef
	// Adopt: the lease was granted before; the run looks after it to its end.
	Adopt bool `json:"adopt,omitempty"`
}

// GrantRequest asks for a lease. Who may ask has been decided.
type GrantRequest struct {
	Holder lease.Holder `json:"holder"`
	// TokenHash is the SHA-256 of the token, in hex. The token itself never
	// gets here.
	TokenHash string        `json:"tokenHash"`
	TTL       time.Duration `json:"ttl"` // in nanoseconds, within lease.MinTTL and lease.MaxTTL
}

// ReleaseRequest releases a lease.
type ReleaseRequest struct {
	Caller lease.Caller `json:"caller"`
	// TokenHash is the SHA-256 of the presented token, in hex.
	TokenHash string `json:"tokenHash"`
}

// Revocation is why a lease is revoked. A reason that is none counts as
// lease.ReasonOperatorRevoked.
type Revocation struct {
	Reason lease.Reason `json:"reason"`
}

// LeaseAnswer is what became of a call of a lease. A grant, and a renewal, have
// been written.
type LeaseAnswer struct {
	lease.Verdict
	// ExpiresAt is set where the lease was granted or renewed.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// LeaseState is how a lease is, as its workflow looks at it.
type LeaseState struct {
	// State is empty where there is no lease of that operation.
	State  lease.State  `json:"state,omitempty"`
	Reason lease.Reason `json:"reason,omitempty"`
	// Lapses is the time until it lapses, if nobody renews it; in nanoseconds.
	Lapses    time.Duration `json:"lapses,omitempty"`
	ExpiresAt time.Time     `json:"expiresAt,omitzero"`
}

// LeaseResult is how a lease ended: its final state, or "none" for a run that
// found no lease, or "refused".
type LeaseResult struct {
	Outcome string       `json:"outcome"`
	Reason  lease.Reason `json:"reason,omitempty"`
}

// PlannedInput starts a PlannedOperation workflow.
type PlannedInput struct {
	Namespace string `json:"namespace"`
	Group     string `json:"group"`
	// Adopt is a request that waits already: the run carries it on.
	Adopt *PlannedRequest `json:"adopt,omitempty"`
}

// PlannedRequest asks for a planned operation.
type PlannedRequest struct {
	Kind lease.OperationKind `json:"kind"`
	// Target is the site to fail over to. For the other kinds it is a text for
	// people, and may be empty.
	Target string `json:"target"`
}

// Check says what is wrong with a request that nobody can carry out.
func (r PlannedRequest) Check() error {
	_, known := lease.ParseOperationKind(string(r.Kind))
	switch {
	case !known:
		return errors.New("kind is none of PlannedFailover, OrderedUpdate and RestoreInPlace")
	case r.Kind == lease.PlannedFailover && !lease.ValidName(r.Target):
		return errors.New("target is no name of a site")
	case r.Target != "" && !lease.ValidOperation(r.Target):
		return errors.New("target is no text of up to 128 bytes without control characters")
	}
	return nil
}

// ErrorInvalidOperation: PlannedRequest.Check found something.
const ErrorInvalidOperation = "InvalidOperation"

// The statuses of a PlannedAnswer.
const (
	// PlannedAdmitted: handed over to the operator.
	PlannedAdmitted = "admitted"
	// PlannedDeferred: waits and goes on by itself. The same request again is
	// answered as it is then.
	PlannedDeferred = "deferred"
	// PlannedRefused: over.
	PlannedRefused = "refused"
)

// PlannedAnswer is what became of a PlannedRequest.
type PlannedAnswer struct {
	Status string `json:"status"`
	// Reason of deferred and refused; empty for admitted.
	Reason string `json:"reason,omitempty"`
	// RetryAfter is set where a hold defers: when the first one lapses, if
	// nobody renews it.
	RetryAfter time.Time `json:"retryAfter,omitzero"`
	Message    string    `json:"message,omitempty"`
}

// PlannedState is how a planned operation is, as its workflow looks at it.
type PlannedState struct {
	// Phase is lease.PhaseDeferred while it waits, lease.PhasePending from the
	// handover on, lease.PhaseFailed where it was refused, and empty where the
	// group has no such operation.
	Phase      string    `json:"phase,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	RetryAfter time.Time `json:"retryAfter,omitzero"`
	// Again is the time until the next look, in nanoseconds.
	Again time.Duration `json:"again,omitempty"`
}

// Answer is the state for who asked for the operation.
func (s PlannedState) Answer() PlannedAnswer {
	status := PlannedRefused
	switch s.Phase {
	case lease.PhaseDeferred:
		status = PlannedDeferred
	case lease.PhasePending:
		status = PlannedAdmitted
	}
	return PlannedAnswer{Status: status, Reason: s.Reason, RetryAfter: s.RetryAfter, Message: s.Message}
}

// PlannedResult is how a PlannedOperation run ended: with the status of its
// last answer, "withdrawn", or "no request".
type PlannedResult struct {
	Outcome string `json:"outcome"`
	PlannedRequest
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// LeaseID is the ID of the workflow of a lease.
func LeaseID(ref LeaseRef) string {
	return id("lease", ref.Namespace, ref.Group, string(ref.Kind), ref.OperationID)
}

// PlannedID is the ID of the workflow that carries the planned operations of a
// group.
func PlannedID(namespace, group string) string { return id("planned", namespace, group) }
