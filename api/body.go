package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

// readBody reads a JSON object of at most configuration.MaxBytes that has one
// member.
func (a *api) readBody(w http.ResponseWriter, r *http.Request, member string) (any, error) {
	object, err := a.readObject(w, r, member)
	return object[member], err
}

// readObject reads a JSON object of at most configuration.MaxBytes that has the
// member, and none but the optional ones beside it.
func (a *api) readObject(w http.ResponseWriter, r *http.Request, member string, optional ...string) (map[string]any, error) {
	body, err := a.readJSON(w, r, configuration.MaxBytes)
	if err != nil {
		return nil, err
	}
	return decodeObject(body, member, optional...)
}

// readJSON reads a body of at most so many bytes that says to be JSON.
func (a *api) readJSON(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if values := r.Header.Values("Content-Type"); len(values) != 1 {
		return nil, refuse(codeUnsupportedMediaType, "the body must be application/json, and Content-Type must say so")
	} else if mediaType, parameters, err := mime.ParseMediaType(values[0]); err != nil || mediaType != "application/json" {
		return nil, refuse(codeUnsupportedMediaType, "the body must be application/json, and Content-Type must say so")
	} else if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return nil, refuse(codeUnsupportedMediaType, "the body must be UTF-8")
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, refuse(codeUnsupportedMediaType, "the body must not be compressed")
	}
	tooLarge := refuse(codeRequestTooLarge, "the body has more than %d bytes", most)
	if r.ContentLength > most {
		return nil, tooLarge
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.BodyTimeout)); err != nil {
		return nil, fmt.Errorf("limit the time of the body: %w", err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return nil, tooLarge
	case err != nil:
		return nil, &failure{code: codeInvalidRequest, message: "the body ended early, or came too slowly"}
	}
	// The server lifts the deadline when it has the whole body.
	return body, nil
}

func decodeObject(body []byte, member string, optional ...string) (map[string]any, error) {
	decoded, err := configuration.Decode(body)
	if err != nil {
		return nil, refuse(codeInvalidRequest, "%s", err)
	}
	object, ok := decoded.(map[string]any)
	if !ok {
		return nil, refuse(codeInvalidRequest, "the body is not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if name != member && !slices.Contains(optional, name) {
			takes := fmt.Sprintf("%q", member)
			for _, other := range optional {
				takes += fmt.Sprintf(", %q", other)
			}
			return nil, refuse(codeInvalidRequest, "the body has the member %s; it takes %s and no other", quoted(name), takes)
		}
	}
	if _, ok := object[member]; !ok {
		return nil, refuse(codeInvalidRequest, "the body has no member %q", member)
	}
	return object, nil
}

// quoted is a name of the caller's as a part of a message.
func quoted(name string) string {
	const longest = 60
	if len(name) > longest {
		name = strings.ToValidUTF8(name[:longest], "") + "…"
	}
	return strconv.Quote(name)
}

// respond answers JSON.
func respond(w http.ResponseWriter, status int, body []byte, err error) error {
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who has gone needs no answer
	return nil
}

func respondJSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	return respond(w, status, body, err)
}

// encodeDeployment writes a deployment as the API shows it.
func encodeDeployment(d deployment.Deployment) ([]byte, error) {
	if d.Nodes == nil {
		d.Nodes = []deployment.Node{}
	}
	for _, instances := range []*[]deployment.Instance{&d.Instances.Submitted, &d.Instances.Deployed} {
		if *instances == nil {
			*instances = []deployment.Instance{}
		}
	}
	return json.Marshal(d)
}

// wholeNumber reads a query parameter that is a number from least to most.
func wholeNumber(r *http.Request, name string, otherwise, least, most int64) (int64, error) {
	values, ok := r.URL.Query()[name]
	if !ok {
		return otherwise, nil
	}
	n, err := parseNumber(values[0])
	if len(values) > 1 || err != nil || n < least || n > most {
		return 0, refuse(codeInvalidRequest, "the parameter %s must be a whole number, once, from %d to %d", name, least, most)
	}
	return n, nil
}

// headerOnce reads a header of at most most bytes that may be there; empty where
// it is not.
func headerOnce(r *http.Request, name string, most int) (string, error) {
	values := r.Header.Values(name)
	if len(values) == 0 {
		return "", nil
	}
	invisible := func(c rune) bool { return c < '!' || c > '~' }
	if value := values[0]; len(values) > 1 || value == "" || len(value) > most || strings.ContainsFunc(value, invisible) {
		return "", refuse(codeInvalidRequest, "the header %s must be there once, with 1 to %d visible ASCII characters", name, most)
	}
	return values[0], nil
}

// flag reads a query parameter that is true or false, and false when absent.
func flag(r *http.Request, name string) (bool, error) {
	values, ok := r.URL.Query()[name]
	switch {
	case !ok, len(values) == 1 && values[0] == "false":
		return false, nil
	case len(values) == 1 && values[0] == "true":
		return true, nil
	default:
		return false, refuse(codeInvalidRequest, "the parameter %s must be true or false, once", name)
	}
}

// parseNumber reads a number that has one way to be written.
func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && strconv.FormatInt(n, 10) != text {
		err = strconv.ErrSyntax
	}
	return n, err
}
