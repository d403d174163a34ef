package client

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

// start serves the handler and makes a client of it that waits only
// milliseconds between tries.
func start(t *testing.T, handler http.HandlerFunc, o Options) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return impatient(t, server.URL, o)
}

func impatient(t *testing.T, base string, o Options) *Client {
	t.Helper()
	c, err := New(base, func() (string, error) { return "the-token", nil }, o)
	require.NoError(t, err)
	c.firstPause, c.maxPause = time.Millisecond, 10*time.Millisecond
	return c
}

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestRequestsAreThoseOfTheContract(t *testing.T) {
	ref := deployment.Ref{Deployment: "example", Build: 7}
	many := make([]string, 101)
	for i := range many {
		many[i] = "d"
	}
	for _, test := range []struct {
		call   func(*Client) error
		want   string
		body   string
		answer string
	}{
		{func(c *Client) error { _, err := c.Get(t.Context(), "example"); return err }, "GET /deployments/example", "", `{}`},
		{func(c *Client) error { _, err := c.List(t.Context(), []string{"a", "b"}); return err }, "GET /deployments?id=a&id=b", "", `{}`},
		{func(c *Client) error { _, err := c.List(t.Context(), many); return err },
			"POST /deployments/list", `{"ids":["` + strings.Join(many, `","`) + `"]}`, `{}`},
		{func(c *Client) error { _, err := c.Builds(t.Context(), "example", 5, 9); return err }, "GET /deployments/example/builds?before=9&limit=5", "", `{}`},
		{func(c *Client) error { _, err := c.Builds(t.Context(), "example", 0, 0); return err }, "GET /deployments/example/builds", "", `{}`},
		{func(c *Client) error { _, err := c.Build(t.Context(), ref); return err }, "GET /deployments/example/builds/7", "", `{}`},
		{func(c *Client) error { _, err := c.Cancel(t.Context(), ref); return err }, "POST /deployments/example/builds/7/cancel", "", `{}`},
		{func(c *Client) error { _, err := c.Destroy(t.Context(), "example"); return err }, "DELETE /deployments/example", "", `{}`},
		{func(c *Client) error { _, err := c.SBOMs(t.Context(), "example"); return err }, "GET /sbom-list/example", "", `{}`},
		{func(c *Client) error { _, err := c.SBOMDiff(t.Context(), "example", ""); return err }, "GET /sbom-diff/example", "", `{}`},
		{func(c *Client) error { _, err := c.SBOMDiff(t.Context(), "example", "a b"); return err }, "GET /sbom-diff/example?node=a+b", "", `{}`},
		{func(c *Client) error {
			_, _, err := c.Components(t.Context(), deployment.ComponentQuery{PURL: "pkg:nix/a+b@1"}, 0)
			return err
		}, "GET /components?purl=pkg%3Anix%2Fa%2Bb%401", "", `{}`},
		{func(c *Client) error {
			_, _, err := c.Components(t.Context(), deployment.ComponentQuery{Name: "a", Version: "1"}, 7)
			return err
		}, "GET /components?limit=7&name=a&version=1", "", `{}`},
		{func(c *Client) error {
			_, err := c.Preview(t.Context(), "example", json.RawMessage(`{"a":1}`))
			return err
		}, "POST /deployments/example/preview", `{"configuration":{"a":1}}`, `{}`},
		{func(c *Client) error {
			_, err := c.Submit(t.Context(), "example", json.RawMessage(`{ "a": 1.0, "b": "<é>" }`), "")
			return err
		}, "PUT /deployments/example", `{"configuration":{ "a": 1.0, "b": "<é>" }}`, `{}`},
	} {
		t.Run(test.want, func(t *testing.T) {
			var asked, body string
			var header http.Header
			c := start(t, func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				asked, body, header = r.Method+" "+r.URL.RequestURI(), string(data), r.Header
				answerJSON(w, 200, test.answer)
			}, Options{UserAgent: "slipway/test"})
			require.NoError(t, test.call(c))
			require.Equal(t, test.want, asked)
			require.Equal(t, test.body, body)
			require.Equal(t, "Bearer the-token", header.Get("Authorization"))
			require.Equal(t, "slipway/test", header.Get("User-Agent"))
			if body != "" {
				require.Equal(t, "application/json", header.Get("Content-Type"))
			}
		})
	}
}

func TestAnswersAreTyped(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "PUT /deployments/example":
			answerJSON(w, 202, `{"deploymentId":"example","build":4,"evaluation":"evaluated","nodes":[{"name":"web","names":["a.example.org"]}]}`)
		case "POST /deployments/example/preview":
			answerJSON(w, 200, `{"nodes":[],"disabledApplications":["wiki"],"secretsSet":{"forum":["key"]}}`)
		case "DELETE /deployments/example":
			answerJSON(w, 202, `{"deploymentId":"example","build":5,"callback":"none"}`)
		case "DELETE /deployments/resting":
			answerJSON(w, 200, `{"deploymentId":"resting","state":"idle"}`)
		case "GET /deployments":
			answerJSON(w, 200, `{"deployments":[{"deploymentId":"example","state":"active","since":"2026-01-02T03:04:05Z","live":4}]}`)
		case "GET /deployments/example/builds":
			answerJSON(w, 200, `{"builds":[{"number":5,"action":"destroy","status":"queued"},{"number":4,"action":"deploy","status":"succeeded"}]}`)
		}
	}, Options{})
	submitted, err := c.Submit(t.Context(), "example", json.RawMessage(`{}`), "key")
	require.NoError(t, err)
	require.Equal(t, Submitted{"example", 4, deployment.EvaluationEvaluated,
		[]deployment.Node{{Name: "web", Names: []string{"a.example.org"}}}}, submitted)
	previewed, err := c.Preview(t.Context(), "example", json.RawMessage(`{}`))
	require.NoError(t, err)
	require.Equal(t, []string{"wiki"}, previewed.DisabledApplications)
	require.Equal(t, map[string][]string{"forum": {"key"}}, previewed.SecretsSet)
	destroyed, err := c.Destroy(t.Context(), "example")
	require.NoError(t, err)
	require.Equal(t, Destroyed{DeploymentID: "example", Build: 5, Callback: "none"}, destroyed)
	destroyed, err = c.Destroy(t.Context(), "resting")
	require.NoError(t, err)
	require.Equal(t, Destroyed{DeploymentID: "resting", State: deployment.StateIdle}, destroyed)
	listed, err := c.List(t.Context(), []string{"example"})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, int64(4), *listed[0].Live)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), listed[0].Since)
	builds, err := c.Builds(t.Context(), "example", 0, 0)
	require.NoError(t, err)
	require.Equal(t, deployment.ActionDestroy, builds[0].Action)
	require.Equal(t, deployment.StatusSucceeded, builds[1].Status)
}

func TestAnIdentifierNeverNamesAnotherPath(t *testing.T) {
	c := start(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked %s", r.URL) }, Options{})
	for _, id := range []string{"", "..", "a/b", "A", "a%2fb", "list?id=a"} {
		_, err := c.Get(t.Context(), id)
		require.ErrorContains(t, err, "deployment identifier", id)
		require.ErrorContains(t, c.Follow(t.Context(), id, FollowOptions{}, nil), "deployment identifier")
	}
}

func TestNewRefusesWhatIsNoBaseURL(t *testing.T) {
	for base, want := range map[string]string{
		"":                            "must begin with http://",
		"slipway.example.org":         "must begin with http://",
		"ftp://slipway.example.org":   "must begin with http://",
		"https://":                    "have a host",
		"http://127.0.0.1:":           "have a host",
		"https://h/?a=b":              "no query",
		"https://user:pass@h":         "takes a token only",
		"https://user:pass@h ost/":    "is not a URL",
		"https://slipway.example.org": "",
		"http://127.0.0.1:8082/base/": "",
	} {
		_, err := New(base, nil, Options{})
		if want == "" {
			require.NoError(t, err, base)
			continue
		}
		require.ErrorContains(t, err, want, base)
		require.NotContains(t, err.Error(), "pass@")
	}
}

func TestABasePathIsKept(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerJSON(w, 200, `{"deploymentId":"`+strings.ReplaceAll(r.URL.Path, "/", "-")+`"}`)
	}))
	defer server.Close()
	d, err := impatient(t, server.URL+"/behind/", Options{}).Get(t.Context(), "example")
	require.NoError(t, err)
	require.Equal(t, "-behind-deployments-example", d.ID)
}

func TestErrorsAreTyped(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("X-Request-Id", "from-header")
		answerJSON(w, 400, `{"error":"invalid_configuration","message":"the configuration is not valid","requestId":"r-1",
			"details":[{"path":"/domain","message":"is required"},{"path":"/applications/forum","message":"has a member too many"}]}`)
	}, Options{})
	_, err := c.Preview(t.Context(), "example", json.RawMessage(`{}`))
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, &Error{Status: 400, Code: "invalid_configuration", Message: "the configuration is not valid", RequestID: "r-1", RetryAfter: 7 * time.Second,
		Details: []Detail{{Path: "/domain", Message: "is required"}, {Path: "/applications/forum", Message: "has a member too many"}}}, refused)
	require.False(t, refused.Away())
	require.Equal(t, "the configuration is not valid (400 invalid_configuration); /domain: is required; /applications/forum: has a member too many [request r-1]", err.Error())
}

func TestAnErrorThatIsNotTheAPIsOwn(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "from-header")
		w.WriteHeader(502)
		_, _ = io.WriteString(w, "<html>you sent "+r.Header.Get("Authorization"))
	}, Options{Patience: -1})
	_, err := c.Get(t.Context(), "example")
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 502, refused.Status)
	require.Equal(t, "from-header", refused.RequestID)
	require.True(t, refused.Away())
	require.Contains(t, err.Error(), "not the deployments API's own: 502 Bad Gateway")
}

func TestATokenDoesNotComeBackInAnError(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		bad := r.Header.Get("Authorization")
		body, _ := json.Marshal(map[string]any{"error": "unauthorized", "message": "bad header " + bad, "requestId": bad,
			"details": []Detail{{Path: bad, Message: bad}}})
		answerJSON(w, 401, string(body))
	}, Options{})
	_, err := c.Get(t.Context(), "example")
	require.ErrorContains(t, err, "bad header Bearer [token]")
	require.NotContains(t, err.Error(), "the-token")

	broken, err := New("http://127.0.0.1:1", func() (string, error) { return "the\ntoken", nil }, Options{})
	require.NoError(t, err)
	_, err = broken.Get(t.Context(), "example")
	require.ErrorContains(t, err, "characters that a token cannot have")
	require.NotContains(t, err.Error(), "the\ntoken")
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer other.Close()
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}, Options{})
	_, err := c.Get(t.Context(), "example")
	require.ErrorContains(t, err, "307 Temporary Redirect to "+other.URL)
}

func TestAnAnswerThatIsNotJSON(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/deployments/cut" {
			answerJSON(w, 200, `{"deploymentId":`)
			return
		}
		_, _ = io.WriteString(w, "<html>Welcome")
	}, Options{})
	_, err := c.Get(t.Context(), "example")
	require.ErrorContains(t, err, "the deployments API?")
	_, err = c.Get(t.Context(), "cut")
	require.ErrorContains(t, err, "not what the deployments API gives")
	_, err = c.Log(t.Context(), deployment.Ref{Deployment: "example", Build: 1}, 0, false)
	require.ErrorContains(t, err, "not text/plain", "a page is not a log")
}

func TestSubmitTriesAgainWithTheSameKey(t *testing.T) {
	var tries atomic.Int32
	var keys []string
	var troubles []error
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		switch tries.Add(1) {
		case 1: // breaks off before the answer
			connection, _, _ := w.(http.Hijacker).Hijack()
			_ = connection.Close()
		case 2: // breaks off inside the answer
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(202)
			_, _ = io.WriteString(w, `{"build":`)
		case 3:
			answerJSON(w, 503, `{"error":"service_unavailable","message":"PostgreSQL is away"}`)
		default:
			answerJSON(w, 202, `{"deploymentId":"example","build":9}`)
		}
	}, Options{Trouble: func(err error, _ time.Duration) { troubles = append(troubles, err) }})
	submitted, err := c.Submit(t.Context(), "example", json.RawMessage(`{}`), "")
	require.NoError(t, err)
	require.Equal(t, int64(9), submitted.Build)
	require.Len(t, keys, 4)
	_, err = uuid.Parse(keys[0])
	require.NoError(t, err)
	for _, key := range keys {
		require.Equal(t, keys[0], key)
	}
	require.Len(t, troubles, 4)
	var broken *ConnectionError
	var refused *Error
	require.ErrorAs(t, troubles[0], &broken)
	require.ErrorAs(t, troubles[1], &broken)
	require.ErrorAs(t, troubles[2], &refused)
	require.NoError(t, troubles[3], "the end of the trouble")
}

func TestSubmitHonoursRetryAfter(t *testing.T) {
	var first, second time.Time
	c := start(t, func(w http.ResponseWriter, _ *http.Request) {
		if first.IsZero() {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			answerJSON(w, 503, `{"error":"service_unavailable","message":"away"}`)
			return
		}
		second = time.Now()
		answerJSON(w, 202, `{"build":1}`)
	}, Options{})
	_, err := c.Submit(t.Context(), "example", json.RawMessage(`{}`), "k")
	require.NoError(t, err)
	require.GreaterOrEqual(t, second.Sub(first), 990*time.Millisecond)
}

func TestSubmitIsBoundedAndOnlyRepeatsWhatMayPass(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		header string
		tries  bool // more than one
	}{
		"refused":                        {400, "", false},
		"conflict":                       {409, "", false},
		"broken server":                  {500, "", false},
		"away":                           {503, "", true},
		"away for longer than we wait":   {503, "3600", false},
		"a gateway without a server yet": {502, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			c := start(t, func(w http.ResponseWriter, _ *http.Request) {
				tries.Add(1)
				if test.header != "" {
					w.Header().Set("Retry-After", test.header)
				}
				answerJSON(w, test.status, `{"error":"some_code","message":"m"}`)
			}, Options{Patience: 500 * time.Millisecond})
			_, err := c.Submit(t.Context(), "example", json.RawMessage(`{}`), "k")
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, test.status, refused.Status)
			require.Equal(t, test.tries, tries.Load() > 1)
		})
	}
}

func TestSubmitGivesUpOnAServerThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	base := "http://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	var troubles int
	c := impatient(t, base, Options{Patience: 500 * time.Millisecond, Trouble: func(error, time.Duration) { troubles++ }})
	_, err = c.Submit(t.Context(), "example", json.RawMessage(`{}`), "k")
	var broken *ConnectionError
	require.ErrorAs(t, err, &broken)
	require.ErrorContains(t, err, "no answer from "+base)
	require.Positive(t, troubles)
}

func TestSubmitDoesNotRepeatALastingFailure(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	c := impatient(t, server.URL, Options{Trouble: func(err error, _ time.Duration) { t.Errorf("tried again after %v", err) }})
	_, err := c.Submit(t.Context(), "example", json.RawMessage(`{}`), "k")
	require.ErrorContains(t, err, "certificate")
}

func TestSubmitStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := start(t, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 503, `{"error":"service_unavailable","message":"away"}`)
	}, Options{Trouble: func(error, time.Duration) { cancel() }})
	_, err := c.Submit(ctx, "example", json.RawMessage(`{}`), "k")
	require.ErrorIs(t, err, context.Canceled)
}

func TestSubmitRefusesWhatItCannotSend(t *testing.T) {
	c := start(t, func(http.ResponseWriter, *http.Request) { t.Error("sent") }, Options{})
	_, err := c.Submit(t.Context(), "example", json.RawMessage(`{}}, "x": {`), "k")
	require.ErrorContains(t, err, "not JSON")
	_, err = c.Submit(t.Context(), "example", json.RawMessage(`{}`), "a\r\nb")
	require.ErrorContains(t, err, "visible ASCII")
}

func TestTheTokenIsAskedForEveryRequest(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		answerJSON(w, 200, `{}`)
	}))
	defer server.Close()
	tokens := []string{"one", "two", ""}
	c, err := New(server.URL, func() (string, error) {
		if len(tokens) == 0 {
			return "", errors.New("the file is gone")
		}
		token := tokens[0]
		tokens = tokens[1:]
		return token, nil
	}, Options{})
	require.NoError(t, err)
	for range 3 {
		_, err := c.Get(t.Context(), "example")
		require.NoError(t, err)
	}
	require.Equal(t, []string{"Bearer one", "Bearer two", ""}, seen)
	_, err = c.Get(t.Context(), "example")
	require.ErrorContains(t, err, "token: the file is gone")
}

func TestLog(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, r.URL.RequestURI())
	}, Options{})
	ref := deployment.Ref{Deployment: "example", Build: 2}
	for want, open := range map[string]func() (io.ReadCloser, error){
		"/deployments/example/builds/2/log":                     func() (io.ReadCloser, error) { return c.Log(t.Context(), ref, 0, false) },
		"/deployments/example/builds/2/log?follow=true&from=12": func() (io.ReadCloser, error) { return c.Log(t.Context(), ref, 12, true) },
	} {
		body, err := open()
		require.NoError(t, err)
		data, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		require.Equal(t, want, string(data))
	}
}

func TestSBOM(t *testing.T) {
	const document = "\ufeff{ \"n\": 1.0 }\n"
	right := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(document)))
	for _, c := range []struct {
		tag, length string
		fails       string
	}{
		{right, "", ""},
		{right, strconv.Itoa(len(document)), ""},
		{"W/" + right, "", ""},
		{right, strconv.Itoa(len(document) + 1), "unexpected EOF"},
		{`"` + strings.Repeat("0", 64) + `"`, "", "not the one that its ETag names"},
		{"", "", "not the one that its ETag names"},
	} {
		var asked string
		client := start(t, func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.RequestURI()
			w.Header().Set("Content-Type", "application/vnd.cyclonedx+json; version=1.6")
			w.Header().Set("ETag", c.tag)
			if c.length != "" {
				w.Header().Set("Content-Length", c.length)
			}
			_, _ = io.WriteString(w, document)
		}, Options{})
		body, err := client.SBOM(t.Context(), "example", "web")
		require.NoError(t, err)
		got, err := io.ReadAll(body)
		require.NoError(t, body.Close())
		require.Equal(t, "/sbom/example?node=web", asked)
		require.Equal(t, document, string(got))
		if c.fails == "" {
			require.NoError(t, err)
			continue
		}
		var broken *ConnectionError
		require.ErrorAs(t, err, &broken)
		require.ErrorContains(t, err, c.fails)
	}

	client := start(t, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 404, `{"error":"sbom_unavailable","message":"it does not build"}`)
	}, Options{})
	_, err := client.SBOM(t.Context(), "example", "")
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "sbom_unavailable", refused.Code)
	_, err = client.SBOM(t.Context(), "../x", "")
	require.Error(t, err)
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-3": 0, "soon": 0,
		"Fri, 02 Jan 2026 03:04:10 GMT": 5 * time.Second,
		"Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(header, now), header)
	}
}
