package leaseclient

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/lease"
)

// serve answers every request over TLS, and makes a client for it whose token
// file holds "first".
func serve(t *testing.T, handler http.HandlerFunc) (*Client, Options) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	folder := t.TempDir()
	o := Options{URL: server.URL, CAFile: filepath.Join(folder, "ca.crt"), TokenFile: filepath.Join(folder, "token"), UserAgent: "test"}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(o.CAFile, ca, 0o600))
	require.NoError(t, os.WriteFile(o.TokenFile, []byte("first\n"), 0o600))
	c, err := New(o)
	require.NoError(t, err)
	return c, o
}

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestRequestsAreThoseOfTheContract(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 5000, time.UTC)
	of := func(operation string) Lease { return Lease{"orders", lease.KindMigration, operation, "secret"} }
	for name, test := range map[string]struct {
		call   func(*Client) (any, error)
		want   string
		body   string
		status int
		answer string
		result any
	}{
		"observe": {func(c *Client) (any, error) { return c.Observe(t.Context(), "orders") },
			"GET /deploy/v1/groups/orders", "", 200, `{"group":"orders","topologyGeneration":17,"more":1}`,
			lease.Observation{Group: "orders", TopologyGeneration: 17}},
		"grant": {func(c *Client) (any, error) {
			return c.Grant(t.Context(), "orders", Request{lease.KindHold, "op", "orders-app", 30})
		}, "POST /deploy/v1/groups/orders/leases", `{"kind":"failover-hold","operationId":"op","instance":"orders-app","ttlSeconds":30}`,
			201, `{"token":"secret","expiresAt":"2026-11-30T12:00:00.000005Z","topologyGeneration":17}`, Grant{"secret", at, 17, true}},
		"granted again": {func(c *Client) (any, error) { return c.Grant(t.Context(), "orders", Request{}) },
			"POST /deploy/v1/groups/orders/leases", `{"kind":"","operationId":"","instance":"","ttlSeconds":0}`,
			200, `{"token":"secret","expiresAt":"2026-11-30T12:00:00.000005Z","topologyGeneration":17}`, Grant{"secret", at, 17, false}},
		"renew": {func(c *Client) (any, error) { return c.Renew(t.Context(), of("a/b c"), 30) },
			"PUT /deploy/v1/groups/orders/leases/migration/a%2Fb%20c", `{"token":"secret","ttlSeconds":30}`,
			200, `{"expiresAt":"2026-11-30T12:00:00.000005Z","topologyGeneration":17}`, Renewal{at, 17}},
		"release": {func(c *Client) (any, error) { return nil, c.Release(t.Context(), of("..")) },
			"DELETE /deploy/v1/groups/orders/leases/migration/%2E%2E secret", "", 204, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var asked, body string
			c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.Method + " " + r.RequestURI
				if token := r.Header.Get("X-Lease-Token"); token != "" {
					asked += " " + token
				}
				text, _ := io.ReadAll(r.Body)
				body = string(text)
				if r.Header.Get("Authorization") != "Bearer first" || r.Header.Get("User-Agent") != "test" {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				reply(test.status, test.answer)(w, r)
			})
			result, err := test.call(c)
			require.NoError(t, err)
			require.Equal(t, test.result, result)
			require.Equal(t, test.want, asked)
			require.Equal(t, test.body, body)
		})
	}
}

func TestTheTokenAndThePathAreReadAnew(t *testing.T) {
	var seen []string
	c, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization")+" "+r.URL.Path)
		reply(200, `{}`)(w, r)
	})
	_, err := c.Observe(t.Context(), "orders")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(o.TokenFile, []byte("second"), 0o600))
	_, err = c.Observe(t.Context(), "orders")
	require.NoError(t, err)
	o.URL += "/elsewhere/deploy/v1/"
	c, err = New(o)
	require.NoError(t, err)
	_, err = c.Observe(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, []string{"Bearer first /deploy/v1/groups/orders", "Bearer second /deploy/v1/groups/orders", "Bearer second /elsewhere/deploy/v1/groups/orders"}, seen)

	for content, want := range map[string]string{"": "is empty", "two words": "does not hold one token"} {
		require.NoError(t, os.WriteFile(o.TokenFile, []byte(content), 0o600))
		_, err = c.Observe(t.Context(), "orders")
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.Remove(o.TokenFile))
	_, err = c.Observe(t.Context(), "orders")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Len(t, seen, 3, "nothing is sent without a token")
}

func TestEveryStatusIsATypedError(t *testing.T) {
	expires := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for body, want := range map[string]Error{
		`400 {"error":"invalid_request"}`:    {Status: 400, Code: CodeInvalidRequest},
		`401 {"error":"unauthorized"}`:       {Status: 401, Code: CodeUnauthorized},
		`403 {"error":"forbidden"}`:          {Status: 403, Code: CodeForbidden},
		`403 {"error":"token_mismatch"}`:     {Status: 403, Code: CodeTokenMismatch},
		`404 {"error":"not_found"}`:          {Status: 404, Code: CodeNotFound},
		`405 {"error":"method_not_allowed"}`: {Status: 405, Code: CodeMethodNotAllowed},
		`409 {"error":"revoked","reason":"topology_changed","topologyGeneration":18}`:                         {Status: 409, Code: CodeRevoked, Reason: "topology_changed", TopologyGeneration: 18},
		`409 {"error":"held","holder":{"operationId":"o","instance":"i","expiresAt":"2026-11-30T12:00:00Z"}}`: {Status: 409, Code: CodeHeld, Holder: &Holder{"o", "i", expires}},
		`413 {"error":"request_too_large"}`:                                   {Status: 413, Code: CodeRequestTooLarge},
		`423 {"error":"unstable","reason":"NoPrimary","retryAfterSeconds":1}`: {Status: 423, Code: CodeUnstable, Reason: "NoPrimary", RetryAfter: time.Second},
		`503 {"error":"not_leader"}`:                                          {Status: 503, Code: CodeNotLeader},
		`503 {"error":"unavailable"}`:                                         {Status: 503, Code: CodeUnavailable},
		`502 <html>`:                                                          {Status: 502},
		`302 `:                                                                {Status: 302},
	} {
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			status := int(body[0]-'0')*100 + int(body[1]-'0')*10 + int(body[2]-'0')
			w.Header().Set("Location", "/elsewhere")
			reply(status, body[4:])(w, r)
		})
		_, err := c.Renew(t.Context(), Lease{Group: "orders", Kind: lease.KindHold, OperationID: "o", Token: "t"}, 30)
		refused, ok := errors.AsType[*Error](err)
		require.True(t, ok, "%s: %v", body, err)
		require.Equal(t, want, *refused)
		require.NotEmpty(t, refused.Error())
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	c, o := serve(t, reply(200, `<html>`))
	_, err := c.Observe(t.Context(), "orders")
	require.ErrorContains(t, err, "is not what the lease API gives")
	c, _ = serve(t, reply(201, `{}`))
	_, err = c.Grant(t.Context(), "orders", Request{})
	require.ErrorContains(t, err, "no token")

	// A server that never answers ends with the context, one whose certificate
	// is not signed by the CA at once.
	release := make(chan struct{})
	c, _ = serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = c.Observe(ctx, "orders")
	broken, ok := errors.AsType[*ConnectionError](err)
	require.True(t, ok, "%v", err)
	require.ErrorIs(t, broken, context.DeadlineExceeded)
	o.CAFile = ""
	c, err = New(o)
	require.NoError(t, err)
	_, err = c.Observe(t.Context(), "orders")
	require.ErrorContains(t, err, "certificate")
}

func TestOptionsAreChecked(t *testing.T) {
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, o := range map[string]Options{
		"begin with https":   {URL: "http://a", TokenFile: "t"},
		"has a host":         {URL: "https://user:hunter2@a", TokenFile: "t"},
		"is not a URL":       {URL: "https://user:hunter2@a b", TokenFile: "t"},
		"no token file":      {URL: "https://a"},
		"no such file":       {URL: "https://a", TokenFile: "t", CAFile: filepath.Join(folder, "none")},
		"has no certificate": {URL: "https://a", TokenFile: "t", CAFile: empty},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
