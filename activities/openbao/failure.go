package openbao

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/openbao/openbao/api/v2"
)

// ErrWrapSpent is that a response-wrapping token was used already, has expired
// or never was one. The values are gone: the client submits again.
var ErrWrapSpent = errors.New("the secrets on their way to OpenBao were taken already or waited too long")

// Reason is why OpenBao did not do what it was asked.
type Reason string

// The reasons.
const (
	ReasonUnreachable Reason = "unreachable"  // no connection, or it broke
	ReasonTimeout     Reason = "timeout"      // no answer in time
	ReasonTLS         Reason = "tls"          // no TLS connection that is to be trusted
	ReasonSealed      Reason = "sealed"       // sealed, or not initialised
	ReasonLogin       Reason = "login"        // no valid token, and none to be had
	ReasonForbidden   Reason = "forbidden"    // a valid token without the right
	ReasonMount       Reason = "mount"        // no KV v2 engine at the mount
	ReasonRateLimited Reason = "rate_limited" // a quota of the server
	ReasonConflict    Reason = "conflict"     // somebody else wrote meanwhile
	ReasonEntry       Reason = "entry"        // an entry is not one of slipway
	ReasonRefused     Reason = "refused"      // any other 4xx
	ReasonServer      Reason = "server"       // any other 5xx
)

// UnavailableError is that OpenBao is away, sealed, or refuses: for the caller
// of the API a 503 without details.
type UnavailableError struct {
	Reason Reason
	// Message says what was tried, why it failed and what an operator can do. It
	// holds no secret value, token or other credential.
	Message string
}

// Error ends in the reason, which is what docs/secrets.md explains.
func (e *UnavailableError) Error() string { return e.Message + " (" + string(e.Reason) + ")" }

func unavailable(reason Reason, format string, args ...any) error {
	return &UnavailableError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// notUnderstood is that what answers is no OpenBao, or another one.
func notUnderstood(what string) error {
	return unavailable(ReasonServer, "%s: the answer of OpenBao is not understood; check that OPENBAO_ADDR is one", what)
}

// failure makes an error of a request an *UnavailableError. ctx is the caller's:
// that it gave up is not the fault of OpenBao. secret is that the request had a
// value or a credential, which the server may say back.
func (c *Client) failure(ctx context.Context, what string, err error, secret bool) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	var known *UnavailableError
	if errors.As(err, &known) {
		return err
	}
	var answer *api.ResponseError
	if !errors.As(err, &answer) {
		return c.noAnswer(what, err, secret)
	}
	var said, says string
	if !answer.RawError {
		said = strings.Join(answer.Errors, "; ")
	}
	if said != "" && !secret {
		says = " (" + shorten(said) + ")"
	}
	e := func(reason Reason, advice string) error {
		return unavailable(reason, "%s: OpenBao answers %d%s: %s", what, answer.StatusCode, says, advice)
	}
	switch status := answer.StatusCode; {
	case isNoRoute(err):
		return e(ReasonMount, fmt.Sprintf("there is no KV v2 engine at %s/; check SLIPWAY_OPENBAO_MOUNT", c.options.Mount))
	case status == http.StatusForbidden:
		return e(ReasonForbidden, fmt.Sprintf("the token is valid, and its policy does not allow this; compare it with docs/secrets.md, with the mount %s and the folder %s", c.options.Mount, c.options.Root))
	case status == http.StatusTooManyRequests:
		return e(ReasonRateLimited, "a quota of the server is used up")
	case status == http.StatusServiceUnavailable && strings.Contains(said, "sealed"):
		return e(ReasonSealed, "it is sealed; unseal it")
	case status >= http.StatusInternalServerError:
		return e(ReasonServer, "look at its log")
	default:
		return e(ReasonRefused, "it refuses the request")
	}
}

// noAnswer is a request that got none.
func (c *Client) noAnswer(what string, err error, secret bool) error {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		timeout     net.Error
	)
	says := ": " + shorten(err.Error())
	if secret {
		says = ""
	}
	switch {
	case errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &authority), errors.As(err, &host),
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return unavailable(ReasonTLS, "%s: no trusted TLS connection to %s%s; check OPENBAO_ADDR and the CA file", what, c.options.Address, says)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return unavailable(ReasonTimeout, "%s: OpenBao at %s gave no answer within %s", what, c.options.Address, c.options.Timeout)
	default:
		return unavailable(ReasonUnreachable, "%s: OpenBao at %s cannot be reached%s", what, c.options.Address, says)
	}
}

// isNoRoute reports whether nothing serves a path: no engine is mounted there,
// or it is one that has no such endpoint.
func isNoRoute(err error) bool {
	var answer *api.ResponseError
	if !errors.As(err, &answer) || answer.RawError {
		return false
	}
	said := strings.Join(answer.Errors, " ")
	return answer.StatusCode == http.StatusMethodNotAllowed ||
		answer.StatusCode == http.StatusNotFound && (strings.Contains(said, "no handler for route") || strings.Contains(said, "unsupported path") ||
			strings.Contains(said, invalidPath)) ||
		answer.StatusCode == http.StatusBadRequest && strings.Contains(said, "unsupported operation")
}

// invalidPath is in the warning of the KV v2 engine about a path that it does
// not have.
const invalidPath = "Invalid path for a versioned K/V secrets engine"

// isAbsent reports whether a path is served and has nothing.
func isAbsent(err error) bool {
	var answer *api.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound && !answer.RawError && len(answer.Errors) == 0
}

func hasStatus(err error, status int) bool {
	var answer *api.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == status
}

// says reports whether the server refused with a text.
func says(err error, status int, text string) bool {
	var answer *api.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == status && strings.Contains(strings.Join(answer.Errors, " "), text)
}

// shorten keeps a message of the server to one line.
func shorten(text string) string {
	const longest = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
