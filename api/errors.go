package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"slipway.dev/slipway/api/internal/updates"
	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// code is the member error of an error answer.
type code string

// The codes of the contract ("Errors").
const (
	codeInvalidRequest       code = "invalid_request"
	codeInvalidDeploymentID  code = "invalid_deployment_id"
	codeInvalidConfiguration code = "invalid_configuration"
	codeEvaluationFailed     code = "evaluation_failed"
	codeUnauthorized         code = "unauthorized"
	codeForbidden            code = "forbidden"
	codeNotFound             code = "not_found"
	codeUnknownDeployment    code = "unknown_deployment"
	codeSBOMUnavailable      code = "sbom_unavailable"
	codeMethodNotAllowed     code = "method_not_allowed"
	codeIdempotencyConflict  code = "idempotency_conflict"
	codeBuildEnded           code = "build_ended"
	codeSubmitInProgress     code = "submit_in_progress"
	codeAlreadyExists        code = "already_exists"
	codeRequestTooLarge      code = "request_too_large"
	codeUnsupportedMediaType code = "unsupported_media_type"
	codeTooManyRequests      code = "too_many_requests"
	codeInternalError        code = "internal_error"
	codeServiceUnavailable   code = "service_unavailable"
)

// status is the table of codes and statuses.
func (c code) status() int {
	switch c {
	case codeInvalidRequest, codeInvalidDeploymentID, codeInvalidConfiguration, codeEvaluationFailed:
		return http.StatusBadRequest
	case codeUnauthorized:
		return http.StatusUnauthorized
	case codeForbidden:
		return http.StatusForbidden
	case codeNotFound, codeUnknownDeployment, codeSBOMUnavailable:
		return http.StatusNotFound
	case codeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case codeIdempotencyConflict, codeBuildEnded, codeSubmitInProgress, codeAlreadyExists:
		return http.StatusConflict
	case codeRequestTooLarge:
		return http.StatusRequestEntityTooLarge
	case codeUnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case codeTooManyRequests:
		return http.StatusTooManyRequests
	case codeServiceUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// codeOf is the table of the application errors that workflows return. The
// text of one whose code is neither 500 nor 503 is for the caller.
func codeOf(errorType string) code {
	switch errorType {
	case wire.ErrorInvalidConfiguration:
		return codeInvalidConfiguration
	case wire.ErrorEvaluationFailed:
		return codeEvaluationFailed
	case wire.ErrorIdempotencyConflict:
		return codeIdempotencyConflict
	case wire.ErrorUnknownDeployment:
		return codeUnknownDeployment
	case wire.ErrorAlreadyExists:
		return codeAlreadyExists
	case wire.ErrorSubmitInProgress:
		return codeSubmitInProgress
	case wire.ErrorUnavailable, wire.ErrorNothingRecorded, wire.ErrorNoSlot, wire.ErrorSourceFailed, wire.ErrorFenceHeld,
		wire.ErrorSecretsSpent, updates.ErrorWorkflowEnded:
		return codeServiceUnavailable
	default:
		return codeInternalError
	}
}

// failure is an error for the caller.
type failure struct {
	code    code
	message string
	details []detail
	// retryAfter is when another try is worth it.
	retryAfter time.Duration
	// challenge is the WWW-Authenticate of a 401 or 403.
	challenge string
	// cause is logged and not told.
	cause error
}

func (f *failure) Error() string {
	if f.cause != nil {
		return string(f.code) + ": " + f.message + ": " + f.cause.Error()
	}
	return string(f.code) + ": " + f.message
}

func (f *failure) Unwrap() error { return f.cause }

func refuse(c code, format string, args ...any) *failure {
	return &failure{code: c, message: fmt.Sprintf(format, args...)}
}

const noSlot = "as many configurations are evaluated as may be at once; try again later"

// soon is when a 503 is worth another try if nothing says better.
const soon = 5 * time.Second

// fromStore is the failure of a Reader.
func fromStore(err error) error {
	var none deployment.NoSBOM
	if errors.As(err, &none) {
		return refuse(codeSBOMUnavailable, "%s", none.Reason)
	}
	if errors.Is(err, deployment.ErrUnknown) {
		return &failure{code: codeNotFound, message: "there is no such deployment or build"}
	}
	return &failure{code: codeServiceUnavailable, message: "the store of slipway does not answer; try again later",
		retryAfter: soon, cause: err}
}

// fromWorkflow is the failure of a Workflows; advice is what the caller should
// do when Temporal or a worker is away.
func fromWorkflow(err error, advice string) error {
	var ours *failure
	if errors.As(err, &ours) {
		return ours // of a step on the way
	}
	f := &failure{code: codeServiceUnavailable}
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		f.code, f.message = codeOf(application.Type()), application.Message()
	}
	switch f.code {
	case codeInvalidConfiguration, codeEvaluationFailed:
		if !application.HasDetails() {
			break
		}
		var nodes []wire.NodeProblem
		if err := application.Details(&nodes); err != nil {
			return fmt.Errorf("workflow: %w", err)
		}
		for _, problem := range nodes {
			f.details = append(f.details, detail{configuration.Problem{Message: problem.Message}, problem.Node})
		}
	case codeServiceUnavailable:
		f.message, f.retryAfter, f.cause = advice, soon, err
		if application == nil {
			break
		}
		switch application.Type() { // what is known, whoever asks
		case wire.ErrorNoSlot:
			f.message = noSlot
		case wire.ErrorNothingRecorded, wire.ErrorSecretsSpent:
			f.message = "slipway could not finish this now, and nothing was recorded; send it again later"
		}
	case codeSubmitInProgress:
		f.retryAfter = soon
	case codeInternalError:
		return fmt.Errorf("workflow: %w", err)
	}
	return f
}

// errorBody is the body of an error answer.
type errorBody struct {
	Error     code     `json:"error"`
	Message   string   `json:"message"`
	Details   []detail `json:"details,omitempty"`
	RequestID string   `json:"requestId"`
}

// detail is a problem of a configuration, or of the configuration as a whole
// with the system of a node.
type detail struct {
	configuration.Problem
	Node string `json:"node,omitempty"`
}

func detailsOf(problems []configuration.Problem) []detail {
	out := make([]detail, len(problems))
	for i, problem := range problems {
		out[i].Problem = problem
	}
	return out
}

// fail answers an error. Nothing of the answer may be written yet; where it
// is, the connection is broken off.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	var f *failure
	known := errors.As(err, &f)
	switch {
	case known && f.cause == nil:
	case x.clientGone(r):
		// What went wrong did so because nobody waits any more.
		x.status = statusClientGone
		panic(http.ErrAbortHandler)
	case !known:
		f = &failure{code: codeInternalError, message: "something went wrong in slipway; its log has the request ID", cause: err}
	}
	if f.cause != nil {
		level := zap.WarnLevel
		if f.code == codeInternalError {
			level = zap.ErrorLevel
		}
		a.Log.Log(level, "a request failed", zap.String("requestId", x.id), zap.String("code", string(f.code)), zap.Error(f.cause))
	}
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(f.retryAfter/time.Second)))
	}
	if f.challenge != "" {
		w.Header().Set("WWW-Authenticate", f.challenge)
	}
	body, err := json.Marshal(errorBody{f.code, f.message, f.details, x.id})
	if err != nil { // strings only
		panic(err)
	}
	w.Header().Del("Location")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.code.status())
	_, _ = w.Write(body)
}
