package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"slipway.dev/slipway/api/auth"
	"slipway.dev/slipway/schema/deployment"
)

// caller is who makes a request, and for which deployment if its route has
// one.
type caller struct {
	grant      auth.Grant
	deployment string
	// until is when a stream must end.
	until time.Time
}

// access finds the caller of a request, or refuses it.
type access func(r *http.Request) (caller, error)

// handler answers a request, or returns an error and has written nothing.
type handler func(w http.ResponseWriter, r *http.Request, c caller) error

// handle is what every route is that is not a page: who may, a time limit (0
// for none), the handler, and the answer to an error.
func (a *api) handle(access access, limit time.Duration, h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := access(r)
		if err == nil {
			limited := r
			if limit > 0 {
				ctx, cancel := context.WithTimeout(r.Context(), limit)
				defer cancel()
				limited = r.WithContext(ctx)
				// And a minute for the client to take the answer.
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + time.Minute))
			}
			err = h(w, limited, c)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// anybody is the access to what is public. A token is not looked at.
func anybody(*http.Request) (caller, error) { return caller{}, nil }

// token is the access by a bearer token with a scope.
func (a *api) token(scope string) access {
	return func(r *http.Request) (caller, error) {
		token, err := bearer(r)
		if err != nil {
			return caller{}, err
		}
		grant, err := a.Verifier.Verify(r.Context(), token)
		if errors.Is(err, auth.ErrKeysAway) {
			return caller{}, &failure{code: codeServiceUnavailable, message: "the issuer of the token does not answer; try again later",
				retryAfter: soon, cause: err}
		}
		if err != nil {
			return caller{}, unauthorized(err.Error())
		}
		exchangeOf(r).subject = grant.Subject
		if !grant.Has(scope) {
			f := refuse(codeForbidden, "the token has not the scope %s", scope)
			f.challenge = `Bearer realm="slipway", error="insufficient_scope", scope="` + scope + `"`
			return caller{}, f
		}
		c := caller{grant: grant, until: grant.Expires}
		if c.deployment, err = deploymentOf(r); err != nil {
			return caller{}, err
		}
		if c.deployment != "" && !grant.Covers(c.deployment) {
			return caller{}, refuse(codeForbidden, "the token is not for this deployment")
		}
		return c, nil
	}
}

// tokenOrTicket is the access to the channel, which a browser can open without
// a header.
func (a *api) tokenOrTicket(r *http.Request) (caller, error) {
	tickets := r.URL.Query()["ticket"]
	if len(tickets) == 0 || len(r.Header.Values("Authorization")) > 0 {
		return a.token(auth.ScopeRead)(r)
	}
	if len(tickets) > 1 {
		return caller{}, unauthorized("there is more than one ticket")
	}
	until, err := a.tickets.Check(tickets[0], chi.URLParam(r, "id"), a.Now())
	if err != nil {
		return caller{}, unauthorized(err.Error())
	}
	id, err := deploymentOf(r)
	return caller{deployment: id, until: until}, err
}

// bearer reads the token of a request (RFC 6750, 2.1).
func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", &failure{code: codeUnauthorized, message: "there is no bearer token", challenge: `Bearer realm="slipway"`}
	}
	if len(values) > 1 {
		return "", unauthorized("there is more than one Authorization header")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.Trim(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", unauthorized("the Authorization header is not Bearer with a token")
	}
	return token, nil
}

func unauthorized(message string) *failure {
	return &failure{code: codeUnauthorized, message: message,
		challenge: `Bearer realm="slipway", error="invalid_token", error_description="` + message + `"`}
}

// deploymentOf is the identifier in the path; empty where the route has none.
// The path is matched as it was sent, so an identifier with percent-encoding
// comes as that, and is refused.
func deploymentOf(r *http.Request) (string, error) {
	if !strings.Contains(chi.RouteContext(r.Context()).RoutePattern(), "{id}") {
		return "", nil
	}
	id := chi.URLParam(r, "id")
	if err := deployment.CheckID(id); err != nil {
		return "", refuse(codeInvalidDeploymentID, "%s", err)
	}
	return id, nil
}

func (a *api) notFound(w http.ResponseWriter, r *http.Request) {
	a.fail(w, r, refuse(codeNotFound, "the API has no such path; /docs lists those that it has"))
}

func (a *api) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		if a.router.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
			if method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	if len(allowed) == 0 { // a method that the router does not know, too
		a.notFound(w, r)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	a.fail(w, r, refuse(codeMethodNotAllowed, "this path takes %s", strings.Join(allowed, ", ")))
}
