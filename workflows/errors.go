package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/wire"
)

// passedOn reports whether the type of an application error is for the caller
// of an update.
func passedOn(errorType string) bool {
	switch errorType {
	case wire.ErrorIdempotencyConflict, wire.ErrorUnknownDeployment, wire.ErrorAlreadyExists, wire.ErrorSubmitInProgress, wire.ErrorSecretsSpent:
		return true
	default:
		return false
	}
}

// forCaller is the answer to the caller of an update when a step failed: the
// application error of the step where its type is the caller's business, else
// wire.ErrorUnavailable.
func forCaller(err error) error {
	if application, ok := errors.AsType[*temporal.ApplicationError](err); ok && passedOn(application.Type()) {
		return temporal.NewNonRetryableApplicationError(application.Message(), application.Type(), nil)
	}
	return temporal.NewNonRetryableApplicationError(reason(err), wire.ErrorUnavailable, err)
}

// beforeRecord is forCaller for a step of a submit before its record: nothing is
// recorded then.
func beforeRecord(err error) error {
	if answer := forCaller(err); !isOfType(answer, wire.ErrorUnavailable) {
		return answer
	}
	return temporal.NewNonRetryableApplicationError(reason(err), wire.ErrorNothingRecorded, err)
}

func isOfType(err error, errorType string) bool {
	application, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && application.Type() == errorType
}

// reason is what the error of a step or of an update says to a person, without
// what Temporal wraps around it.
func reason(err error) string {
	if application, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return application.Message()
	}
	if step, ok := errors.AsType[*temporal.ActivityError](err); ok {
		return step.Unwrap().Error()
	}
	return err.Error()
}
