package coordination

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// served is the API over TLS, as a client meets it.
func served(t *testing.T, w *world) *httptest.Server {
	server := httptest.NewUnstartedServer(w.handler)
	server.Config = Server(w.handler, nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestServerLimits(t *testing.T) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	server := Server(http.NotFoundHandler(), config)
	require.Same(t, config, server.TLSConfig)
	for _, limit := range []time.Duration{server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout, server.IdleTimeout} {
		require.Positive(t, limit)
	}
	require.Greater(t, server.WriteTimeout, timeout, "the answer of a request that took all its time is still written")
}

func TestServedTokens(t *testing.T) {
	w := newWorld(t)
	longest := strings.Repeat("t", 16384)
	w.users[longest] = w.users[deploy]
	server := served(t, w)
	for length, want := range map[int]int{16384: 200, 16385: 401, 30000: 401, 100000: 431} {
		r, err := http.NewRequest(http.MethodGet, server.URL+group, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("t", length))
		answer, err := server.Client().Do(r)
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, want, answer.StatusCode, length)
	}
}

// raw sends a request as it stands and returns the whole answer.
func raw(t *testing.T, server *httptest.Server, request string) string {
	connection, err := tls.Dial("tcp", server.Listener.Addr().String(), server.Client().Transport.(*http.Transport).TLSClientConfig)
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	require.NoError(t, connection.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(connection, request)
	require.NoError(t, err)
	answer, err := io.ReadAll(connection)
	require.NoError(t, err)
	return string(answer)
}

// What clients that clean their paths cannot send.
func TestServedPaths(t *testing.T) {
	w := newWorld(t)
	server := served(t, w)
	for path, want := range map[string]string{
		group:                                 "200 OK",
		"https://bloodraven.example" + group:  "200 OK",
		"/" + group:                           "404 Not Found",
		group + "/":                           "404 Not Found",
		"/deploy/v1/groups/../groups/orders":  "404 Not Found",
		"/deploy/v1/./groups/orders":          "404 Not Found",
		"/deploy/v1/groups%2forders":          "404 Not Found",
		"/deploy/v1/groups/orders%2F":         "404 Not Found",
		"/DEPLOY/V1/GROUPS/ORDERS":            "404 Not Found",
		"/deploy/v1/groups/orders;a=b":        "404 Not Found",
		grants + "/migration/a%2Fb":           "405 Method Not Allowed",
		grants + "/migration/a/b":             "404 Not Found",
		"/deploy/v1/groups/orders?a=/../../b": "200 OK",
		"/deploy/v1/groups/orders%zz":         "400 Bad Request", // of net/http: that is no request
	} {
		answer := raw(t, server, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer "+deploy+"\r\n\r\n")
		require.True(t, strings.HasPrefix(answer, "HTTP/1.1 "+want), "%s: %s", path, answer)
	}
}

// A client that does not send its body takes no longer than a request may.
func TestServedSlowBody(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
		defer cancel()
		w.handler.ServeHTTP(rw, r.WithContext(ctx))
	}))
	t.Cleanup(server.Close)
	for _, call := range []string{"POST " + grants, "PUT " + migration} {
		answer := raw(t, server, call+" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+deploy+"\r\nContent-Length: 90\r\n\r\n{")
		require.Contains(t, answer, "400 Bad Request")
		require.Contains(t, answer, `{"error":"invalid_request"}`)
	}
}

func TestServedRelease(t *testing.T) {
	w := newWorld(t)
	token := w.granted(grantMigration)
	answer := raw(t, served(t, w), fmt.Sprintf("DELETE %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: bearer  %s\r\nX-Lease-Token: %s\r\n\r\n", migration, deploy, token))
	head, body, _ := strings.Cut(answer, "\r\n\r\n")
	require.Contains(t, head, "204 No Content")
	require.Contains(t, head, "Cache-Control: no-store")
	require.Empty(t, body)
}
