package deployments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
)

// The exit codes; exitCodes tells the user.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotRun      = 3
	exitRefused     = 4
	exitAway        = 5
	exitInterrupted = 130
)

const exitCodes = `Exit codes:
  0    done; with --follow: the build succeeded
  1    the build failed, or something unexpected happened
  2    the command was not used right
  3    the build was superseded or cancelled
  4    the API refused (each error of a configuration is on a line of its own)
  5    the API, or something that it needs, is away, or did not answer in time
  130  interrupted; a build that was submitted goes on`

// exitError is an error with its exit code and the text for the user.
type exitError struct {
	code int
	text string
	err  error
}

func (e *exitError) Error() string { return e.text }

func (e *exitError) Unwrap() error { return e.err }

// ExitCode is what the program exits with after the command returned err: 0
// for nil, and 1 for an error that is not the command's.
func ExitCode(err error) int {
	var known *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &known):
		return known.code
	default:
		return exitFailed
	}
}

func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, text: fmt.Sprintf(format, args...)}
}

// hintError adds what the user can do about an error.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }

// explain makes the error of a command one for the user.
func explain(err error, limit time.Duration) error {
	if err == nil {
		return nil
	}
	var known *exitError
	if errors.As(err, &known) {
		return known
	}
	e := &exitError{err: err}
	var refused *client.Error
	var broken *client.ConnectionError
	switch {
	// First: an interrupted retry also holds what it retried.
	case errors.Is(err, context.Canceled):
		e.code, e.text = exitInterrupted, "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		e.code, e.text = exitAway, fmt.Sprintf("stopped after %s (--timeout)", limit)
	case errors.As(err, &refused):
		e.code, e.text = exitRefused, describe(refused)
		if refused.Away() {
			e.code = exitAway
		}
	case errors.As(err, &broken):
		e.code, e.text = exitAway, safe(broken.Error())
	default:
		e.code, e.text = exitFailed, safe(err.Error())
	}
	var hinted *hintError
	if errors.As(err, &hinted) {
		e.text += "\n" + hinted.hint
	}
	return e
}

// describe writes an error of the API, with each of its details on a line.
func describe(e *client.Error) string {
	var b strings.Builder
	b.WriteString(safe(e.Message))
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", cell(e.Code))
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, "; try again in %s", e.RetryAfter)
	}
	for _, d := range e.Details {
		fmt.Fprintf(&b, "\n  %s: %s", cell(d.About()), cell(d.Message))
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, "\n  request %s", cell(e.RequestID))
	}
	return b.String()
}

// outcome is the error of a build that ended; nil for one that succeeded.
func outcome(id string, b deployment.Build) error {
	which := fmt.Sprintf("build %d of %s", b.Number, id)
	why := ""
	if b.Reason != "" {
		why = ": " + short(cell(b.Reason), 2*maxCell)
	}
	switch b.Status {
	case deployment.StatusSucceeded:
		return nil
	case deployment.StatusFailed:
		return &exitError{code: exitFailed, text: fmt.Sprintf("%s failed%s\nits log: slipway deployments logs %s -b %d", which, why, id, b.Number)}
	default:
		return &exitError{code: exitNotRun, text: fmt.Sprintf("%s was %s%s", which, cell(string(b.Status)), why)}
	}
}
