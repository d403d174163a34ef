package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/origin"
)

const (
	panel = "https://panel.example"
	other = "https://other.example:8443"
	webUI = "https://temporal.example"
)

func startForPanels(t *testing.T) *bundle {
	t.Helper()
	return start(t, func(c *Config) {
		var err error
		c.Origins, err = origin.ParseList(panel + "," + other)
		require.NoError(t, err)
		c.CodecOrigins, err = origin.ParseList(webUI)
		require.NoError(t, err)
	})
}

// allowed is what CORS lets a page of an origin do with an answer.
func allowed(a answer) map[string]string {
	said := map[string]string{}
	for name, values := range a.header {
		if strings.HasPrefix(name, "Access-Control-") {
			said[name] = strings.Join(values, "|")
		}
	}
	return said
}

func TestPreflightsOfEveryCall(t *testing.T) {
	b := startForPanels(t)
	headers := "authorization,authorization-extras,cache-control,content-type,idempotency-key,if-none-match,last-event-id," +
		"x-callback-token,x-callback-url,x-namespace"
	calls := 0
	require.NoError(t, chi.Walk(b.api.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		calls++
		path := strings.NewReplacer("{id}", "one", "{n}", "1", "{asset}", "x").Replace(route)
		preflight := func(from string) answer {
			return b.do(http.MethodOptions, path, "", "Authorization", "", "Origin", from,
				"Access-Control-Request-Method", method, "Access-Control-Request-Headers", headers)
		}
		for _, from := range []string{panel, other} {
			a := preflight(from)
			require.Equal(t, http.StatusOK, a.status)
			said := allowed(a)
			require.Equal(t, from, said["Access-Control-Allow-Origin"], "%s %s", method, route)
			require.Equal(t, method, said["Access-Control-Allow-Methods"])
			require.Equal(t, headers, strings.ToLower(strings.ReplaceAll(said["Access-Control-Allow-Headers"], " ", "")))
			require.Equal(t, "600", said["Access-Control-Max-Age"])
			require.NotContains(t, said, "Access-Control-Allow-Credentials")
			require.Contains(t, strings.Join(a.header.Values("Vary"), ","), "Origin")
		}
		for _, from := range strangers {
			require.Empty(t, allowed(preflight(from)), from)
		}
		require.Equal(t, strings.HasPrefix(route, "/codec/"), len(allowed(preflight(webUI))) > 0, "the Web UI of Temporal at %s", route)
		return nil
	}))
	require.Greater(t, calls, 10)
	require.Empty(t, b.workflows.requests)

	for name, header := range map[string][2]string{
		"another method": {"Access-Control-Request-Method", "PATCH"}, "another header": {"Access-Control-Request-Headers", "cookie"},
	} {
		preflight := []string{"Origin", panel, "Access-Control-Request-Method", "GET"}
		require.Empty(t, allowed(b.do(http.MethodOptions, "/deployments/one", "", append(preflight, header[0], header[1])...)), name)
	}
}

var strangers = []string{
	"null", "https://evil.example", "http://panel.example", "https://panel.example:443", "https://panel.example:8443", "https://other.example",
	"https://panel.example.evil.example", "https://PANEL.example", "https://panel.example.", "https://panel.example/", "*", "https://user@panel.example",
}

func TestAnswersForPages(t *testing.T) {
	b := startForPanels(t)
	b.Record("one", "deploy", `{"name":"harbour"}`)
	check := func(want int, method, path, body string, header ...string) {
		t.Helper()
		for _, from := range append([]string{panel, other}, strangers...) {
			a := b.do(method, path, body, append([]string{"Origin", from}, header...)...)
			require.Equal(t, want, a.status, a.body)
			require.Contains(t, a.header.Values("Vary"), "Origin")
			said := allowed(a)
			if from != panel && from != other {
				require.Empty(t, said, from)
				continue
			}
			require.Equal(t, from, said["Access-Control-Allow-Origin"])
			require.NotContains(t, said, "Access-Control-Allow-Credentials")
			for _, name := range []string{"X-Request-Id", "Etag", "Retry-After", "Content-Disposition", "Allow", "Location"} {
				require.Contains(t, strings.Split(said["Access-Control-Expose-Headers"], ", "), name)
			}
		}
		a := b.do(method, path, body, header...)
		require.Empty(t, allowed(a), "not a page")
		require.Contains(t, a.header.Values("Vary"), "Origin", "whose answer a cache must not give to one")
	}
	check(http.StatusOK, "GET", "/deployments/one", "")
	check(http.StatusOK, "GET", "/openapi.yaml", "")
	check(http.StatusUnauthorized, "GET", "/deployments/one", "", "Authorization", "")
	check(http.StatusForbidden, "GET", "/deployments/one", "", "Authorization", "Bearer "+b.token("", nil))
	check(http.StatusNotFound, "GET", "/deployments/two", "")
	check(http.StatusNotFound, "GET", "/nothing", "")
	check(http.StatusMethodNotAllowed, "DELETE", "/deployments", "")
	check(http.StatusBadRequest, "PUT", "/deployments/one", "{}")
	check(http.StatusUnsupportedMediaType, "PUT", "/deployments/one", "{}", "Content-Type", "text/plain")
	b.Fail(errors.New("away"))
	check(http.StatusServiceUnavailable, "GET", "/deployments/one", "")
}

func TestNoPageMayCallWithoutOrigins(t *testing.T) {
	b := start(t, nil)
	for _, from := range append([]string{panel}, strangers...) {
		require.Empty(t, allowed(b.do("GET", "/openapi.yaml", "", "Origin", from)))
		require.Empty(t, allowed(b.do("OPTIONS", "/openapi.yaml", "", "Origin", from, "Access-Control-Request-Method", "GET")))
	}
}
