package deployments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/deployment"
)

// The exit codes; exitCodes tells the user.
const (
	exitNotRun      = 3
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
	var known *exit.Error
	if errors.As(err, &known) {
		return known
	}
	e := &exit.Error{Err: err}
	var refused *client.Error
	var broken *client.ConnectionError
	switch {
	// First: an interrupted retry also holds what it retried.
	case errors.Is(err, context.Canceled):
		e.Code, e.Text = exitInterrupted, "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		e.Code, e.Text = exit.Away, fmt.Sprintf("stopped after %s (--timeout)", limit)
	case errors.As(err, &refused):
		e.Code, e.Text = exit.Refused, describe(refused)
		if refused.Away() {
			e.Code = exit.Away
		}
	case errors.As(err, &broken):
		e.Code, e.Text = exit.Away, safe(broken.Error())
	default:
		e.Code, e.Text = exit.Failed, safe(err.Error())
	}
	var hinted *hintError
	if errors.As(err, &hinted) {
		e.Text += "\n" + hinted.hint
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
		return &exit.Error{Code: exit.Failed, Text: fmt.Sprintf("%s failed%s\nits log: slipway deployments logs %s -b %d", which, why, id, b.Number)}
	default:
		return &exit.Error{Code: exitNotRun, Text: fmt.Sprintf("%s was %s%s", which, cell(string(b.Status)), why)}
	}
}
