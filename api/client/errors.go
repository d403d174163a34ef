package client

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is an answer of the API that is not a success.
type Error struct {
	// Status is that of HTTP: 400.
	Status int
	// Code is for programs: "invalid_configuration". It is empty where the
	// answer is not the API's own, such as that of a proxy.
	Code string
	// Message is for a person.
	Message string
	// Details has every error of a configuration.
	Details []Detail
	// RequestID finds the request in the logs of the API.
	RequestID string
	// RetryAfter is how long the API asks to wait; 0 when it does not ask.
	RetryAfter time.Duration
}

// Detail is one error of a configuration.
type Detail struct {
	// Path is the JSON Pointer of what the message is about; the empty one is
	// the whole configuration.
	Path string `json:"path"`
	// Node is the node whose system does not evaluate, which only an import
	// finds out; empty for all other errors.
	Node    string `json:"node,omitempty"`
	Message string `json:"message"`
}

// About names what the error is about.
func (d Detail) About() string {
	switch {
	case d.Node != "":
		return "node " + d.Node
	case d.Path == "":
		return "the configuration"
	}
	return d.Path
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if e.Code != "" {
		fmt.Fprintf(&b, " (%d %s)", e.Status, e.Code)
	}
	for _, d := range e.Details {
		fmt.Fprintf(&b, "; %s: %s", d.About(), d.Message)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " [request %s]", e.RequestID)
	}
	return b.String()
}

// Away reports whether the API, or something that it needs, cannot answer at
// present: another try may succeed, and nothing is wrong with the request.
func (e *Error) Away() bool {
	return e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout
}

// ConnectionError is a call that got no whole answer.
type ConnectionError struct {
	// Base is the URL of the API.
	Base string
	Err  error
}

func (e *ConnectionError) Error() string { return fmt.Sprintf("no answer from %s: %v", e.Base, e.Err) }

func (e *ConnectionError) Unwrap() error { return e.Err }

// lasting reports whether the connection fails for a reason that time does not
// mend: a certificate that is not trusted, a host that does not exist.
func (e *ConnectionError) lasting() bool {
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	return errors.As(e.Err, &certificate) || errors.As(e.Err, &name) && name.IsNotFound
}

// maxErrorBytes is as much of an error's body as is read: every error of a
// configuration of 1 MiB has room.
const maxErrorBytes = 8 << 20

// readError makes an *Error of an answer. The token is taken out of whatever
// the answer says: a proxy may print the request that it refuses.
func readError(response *http.Response, token string) error {
	e := &Error{
		Status:     response.StatusCode,
		RequestID:  response.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(response.Header.Get("Retry-After"), time.Now()),
	}
	var body struct {
		Error     string   `json:"error"`
		Message   string   `json:"message"`
		Details   []Detail `json:"details"`
		RequestID string   `json:"requestId"`
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err == nil && isType(response, "application/json") && json.Unmarshal(data, &body) == nil && body.Error != "" {
		e.Code, e.Message, e.Details = body.Error, body.Message, body.Details
		if body.RequestID != "" {
			e.RequestID = body.RequestID
		}
	} else {
		e.Message = "an answer that is not the deployments API's own: " + response.Status
		if location := response.Header.Get("Location"); location != "" {
			e.Message += " to " + location
		}
	}
	redact := func(text string) string {
		if token == "" {
			return text
		}
		return strings.ReplaceAll(text, token, "[token]")
	}
	e.Code, e.Message, e.RequestID = redact(e.Code), redact(e.Message), redact(e.RequestID)
	for i, d := range e.Details {
		e.Details[i] = Detail{Path: redact(d.Path), Node: redact(d.Node), Message: redact(d.Message)}
	}
	return e
}

// retryAfter reads the header (RFC 9110, 10.2.3): seconds, or a date.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

func isType(response *http.Response, want string) bool {
	got, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return err == nil && got == want
}
