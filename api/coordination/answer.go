package coordination

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// code is the member error of a refusal.
type code string

// The codes of the contract.
const (
	codeNotLeader        code = "not_leader"
	codeUnauthorized     code = "unauthorized"
	codeUnavailable      code = "unavailable"
	codeNotFound         code = "not_found"
	codeMethodNotAllowed code = "method_not_allowed"
	codeInvalidRequest   code = "invalid_request"
	codeRequestTooLarge  code = "request_too_large"
	codeForbidden        code = "forbidden"
	codeTokenMismatch    code = "token_mismatch"
	codeHeld             code = "held"
	codeRevoked          code = "revoked"
	codeUnstable         code = "unstable"
)

// status is the table of codes and statuses.
func (c code) status() int {
	switch c {
	case codeUnauthorized:
		return http.StatusUnauthorized
	case codeForbidden, codeTokenMismatch:
		return http.StatusForbidden
	case codeNotFound:
		return http.StatusNotFound
	case codeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case codeInvalidRequest:
		return http.StatusBadRequest
	case codeRequestTooLarge:
		return http.StatusRequestEntityTooLarge
	case codeHeld, codeRevoked:
		return http.StatusConflict
	case codeUnstable:
		return http.StatusLocked
	default:
		return http.StatusServiceUnavailable
	}
}

// notLeaderRetry is the Retry-After of codeNotLeader, in seconds: another one
// leads within about one, and load balancers know it soon after.
const notLeaderRetry = "2"

// statusClientGone is the status in log and metrics of a request whose client
// did not wait for the answer. It is never sent.
const statusClientGone = 499

// answer is one that does what was asked. A nil body is none.
type answer struct {
	status int
	body   any
}

// grantBody is the answer to a POST.
type grantBody struct {
	Kind               lease.Kind `json:"kind"`
	OperationID        string     `json:"operationId"`
	Token              string     `json:"token"`
	ExpiresAt          time.Time  `json:"expiresAt"`
	TopologyGeneration int64      `json:"topologyGeneration"`
}

// renewBody is the answer to a PUT.
type renewBody struct {
	ExpiresAt          time.Time `json:"expiresAt"`
	TopologyGeneration int64     `json:"topologyGeneration"`
}

// holderBody is what others may know of who holds a lease.
type holderBody struct {
	OperationID string    `json:"operationId"`
	Instance    string    `json:"instance"`
	ExpiresAt   time.Time `json:"expiresAt"`
}

// refusal is an answer that says no. As JSON it is the body.
type refusal struct {
	Code               code        `json:"error"`
	Holder             *holderBody `json:"holder,omitempty"`
	Reason             string      `json:"reason,omitempty"`
	TopologyGeneration *int64      `json:"topologyGeneration,omitempty"`
	RetryAfterSeconds  int         `json:"retryAfterSeconds,omitempty"`

	// allow is the header of a 405.
	allow string
	// why is for the debug log: bodies are exact.
	why string
}

func (r *refusal) Error() string { return string(r.Code) + ": " + r.why }

// refuse makes a refusal. why holds nothing that the caller sent.
func refuse(c code, why string) *refusal { return &refusal{Code: c, why: why} }

// refusalOf is the answer to a verdict that is neither a grant nor a renewal nor
// a release.
func refusalOf(v lease.Verdict) error {
	switch {
	case v.Kind == lease.VerdictHeld && v.Holder != nil:
		return &refusal{Code: codeHeld, Holder: &holderBody{v.Holder.OperationID, v.Holder.Instance, v.Holder.ExpiresAt}}
	case v.Kind == lease.VerdictRevoked:
		return &refusal{Code: codeRevoked, Reason: v.Reason, TopologyGeneration: &v.Generation}
	case v.Kind == lease.VerdictUnstable:
		return &refusal{Code: codeUnstable, Reason: v.Reason, RetryAfterSeconds: lease.RetryAfterSeconds}
	case v.Kind == lease.VerdictForbidden:
		return refuse(codeForbidden, "a hold is for the holder of the migration")
	case v.Kind == lease.VerdictTokenMismatch:
		return refuse(codeTokenMismatch, "the lease has another holder or another token")
	case v.Kind == lease.VerdictNotFound:
		return refuse(codeNotFound, "there is no such lease, or it is over")
	}
	return errors.New("no answer for the verdict " + string(v.Kind))
}

// write writes the answer, or that of an error, and returns its status.
func (h *Handler) write(w http.ResponseWriter, c *call, a answer, err error) int {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if err != nil {
		r := h.refusal(c, err)
		a = answer{r.Code.status(), r}
		if r.allow != "" {
			header.Set("Allow", r.allow)
		}
		switch r.Code {
		case codeUnauthorized:
			header.Set("WWW-Authenticate", "Bearer")
		case codeNotLeader:
			// The Service leads to the leader, and a connection that is kept does
			// not.
			header.Set("Connection", "close")
			header.Set("Retry-After", notLeaderRetry)
		}
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return a.status
	}
	text, err := json.Marshal(a.body)
	if err != nil { // texts, numbers and times within the years of a record
		panic(err)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(text) // who has gone needs no answer
	return a.status
}

// refusal of an error; the cause of one that is not the caller's is logged.
func (h *Handler) refusal(c *call, err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		h.Log.Debug("a request of the deploy api was refused", append(c.place(), zap.String("error", string(r.Code)), zap.String("why", r.why))...)
		return r
	}
	if application, ok := errors.AsType[*temporal.ApplicationError](err); ok && application.Type() == wire.ErrorNotLeader {
		return refuse(codeNotLeader, "")
	}
	h.Log.Warn("a request of the deploy api failed", append(c.place(), zap.Error(err))...)
	return refuse(codeUnavailable, "")
}
