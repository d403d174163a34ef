package leaseclient

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"slipway.dev/slipway/schema/lease"
)

// Code is the member "error" of a refusal.
type Code string

// The codes of the contract, with their statuses in docs/lease-api.md. An
// answer that is not the API's own, such as that of a proxy, has none.
const (
	CodeInvalidRequest   Code = "invalid_request"    // 400
	CodeUnauthorized     Code = "unauthorized"       // 401
	CodeForbidden        Code = "forbidden"          // 403
	CodeTokenMismatch    Code = "token_mismatch"     // 403
	CodeNotFound         Code = "not_found"          // 404
	CodeMethodNotAllowed Code = "method_not_allowed" // 405
	CodeHeld             Code = "held"               // 409
	CodeRevoked          Code = "revoked"            // 409
	CodeRequestTooLarge  Code = "request_too_large"  // 413
	CodeUnstable         Code = "unstable"           // 423
	CodeNotLeader        Code = "not_leader"         // 503
	CodeUnavailable      Code = "unavailable"        // 503
)

// Holder is who has a lease that was asked for.
type Holder struct {
	OperationID string    `json:"operationId"`
	Instance    string    `json:"instance"`
	ExpiresAt   time.Time `json:"expiresAt"`
}

// Error is an answer of the API that refuses.
type Error struct {
	// Status is that of HTTP.
	Status int
	Code   Code
	// Reason of a 423 (why the group is unstable) or of a revocation.
	Reason string
	// Holder is set for CodeHeld.
	Holder *Holder
	// TopologyGeneration is the group's, for CodeRevoked.
	TopologyGeneration int64
	// RetryAfter is how long the API asks to wait; 0 when it does not ask.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Status, e.Code)
	if e.Code == "" {
		text = fmt.Sprintf("an answer that is not the API's own: %d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.Holder != nil {
		text += fmt.Sprintf(": operation %q of %s until %s", e.Holder.OperationID, e.Holder.Instance, e.Holder.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return text
}

// Away: another try may succeed without anybody doing anything.
func (e *Error) Away() bool {
	return e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout
}

// ConnectionError is a call that got no whole answer: it may have been carried
// out.
type ConnectionError struct {
	// URL is that of the API.
	URL string
	Err error
}

func (e *ConnectionError) Error() string { return fmt.Sprintf("no answer from %s: %v", e.URL, e.Err) }

func (e *ConnectionError) Unwrap() error { return e.Err }

// Cause is why authority was lost.
type Cause string

// The causes of a LostError.
const (
	// CauseRevoked: 409, for ever; LostError.Err has the reason.
	CauseRevoked Cause = "revoked"
	// CauseGone: 404, the lease expired or was released.
	CauseGone Cause = "gone"
	// CauseTaken: 403, the lease has another token or another holder, or the
	// caller is not declared any more.
	CauseTaken Cause = "taken"
	// CauseGeneration: the topology generation is not that of the grant.
	CauseGeneration Cause = "generation"
	// CauseDeadline: no renewal was confirmed in time.
	CauseDeadline Cause = "deadline"
)

// LostError says that authority has ended before the work did.
type LostError struct {
	Kind  lease.Kind
	Cause Cause
	// Err is the answer, or why the last renewals were not confirmed; nil where
	// nothing is known.
	Err error
}

func (e *LostError) Error() string {
	text := map[Cause]string{
		CauseRevoked:    "was revoked",
		CauseGone:       "is not held any more",
		CauseTaken:      "is not ours any more",
		CauseGeneration: "is of another topology: the primary moved",
		CauseDeadline:   "could not be renewed in time",
	}[e.Cause]
	text = fmt.Sprintf("the %s lease %s", e.Kind, text)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

func (e *LostError) Unwrap() error { return e.Err }

// lossOf is the cause that the answer to a renewal is; "" for one that leaves
// the lease as it is.
func lossOf(err error) Cause {
	refused, ok := errors.AsType[*Error](err)
	if !ok {
		return ""
	}
	switch refused.Status {
	case http.StatusNotFound:
		return CauseGone
	case http.StatusConflict:
		return CauseRevoked
	case http.StatusForbidden:
		return CauseTaken
	}
	return ""
}
