package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/api/auth"
	"slipway.dev/slipway/api/internal/memory"
	"slipway.dev/slipway/api/internal/updates"
	"slipway.dev/slipway/schema"
	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

func applicationError(message, errorType string) error {
	return temporal.NewNonRetryableApplicationError(message, errorType, nil)
}

const good = `{"configuration":{"name":"harbour"}}`

func TestTheContractHasTheRoutesAndNoOthers(t *testing.T) {
	contract, err := openapi3.NewLoader().LoadFromData(schema.OpenAPI)
	require.NoError(t, err)
	require.NoError(t, contract.Validate(context.Background()))
	var said, served []string
	for path, item := range contract.Paths.Map() {
		for method := range item.Operations() {
			said = append(said, method+" "+path)
		}
	}
	b := start(t, nil)
	require.NoError(t, chi.Walk(b.api.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		served = append(served, method+" "+route)
		return nil
	}))
	slices.Sort(said)
	slices.Sort(served)
	require.Equal(t, said, served)
}

func TestTheContractHasTheCodesAndNoOthers(t *testing.T) {
	contract, err := openapi3.NewLoader().LoadFromData(schema.OpenAPI)
	require.NoError(t, err)
	for _, value := range contract.Components.Schemas["Error"].Value.Properties["error"].Value.Enum {
		c := code(value.(string))
		require.Equal(t, c == codeInternalError, c.status() == http.StatusInternalServerError, c)
	}
	require.Len(t, contract.Components.Schemas["Error"].Value.Properties["error"].Value.Enum, 19)
}

func TestSubmit(t *testing.T) {
	b := start(t, nil)
	a := b.do("PUT", "/deployments/one", `{"configuration":{"size":1.0,"name":"harbour","applications":{"wiki":{"key":"","secretsSet":["x"]}}}}`)
	require.Equal(t, http.StatusAccepted, a.status)
	require.JSONEq(t, `{"deploymentId":"one","build":1,"evaluation":"evaluated","nodes":[{"name":"web","names":["www.example.org"]}]}`, a.body)
	require.Equal(t, "/deployments/one/builds/1", a.header.Get("Location"))
	require.Equal(t, "/nix/store/source", b.workflows.submits[0].Snapshot)
	require.Equal(t, `{"applications":{"wiki":{}},"name":"harbour","size":1.0}`, string(b.workflows.submits[0].Configuration))
	_, err := uuid.Parse(b.workflows.requests[0])
	require.NoError(t, err, "without a key, each submit is one of its own")

	a = b.do("PUT", "/deployments/one", good, "Idempotency-Key", "some key"[:4]+"-key!~")
	require.Equal(t, http.StatusAccepted, a.status)
	require.Equal(t, wire.HashRequest("some-key!~"), b.workflows.requests[1])
	require.Equal(t, http.StatusAccepted, b.do("PUT", "/deployments/one", good, "Content-Type", "application/json; charset=UTF-8").status)
	require.Equal(t, http.StatusAccepted, b.do("PUT", "/deployments/list", good).status, "a deployment may have this name")

	// Recorded, but its nodes cannot be read: not an error.
	b.workflows.set(func(w *workflows) { w.during = func(context.Context) { b.Fail(errors.New("away")) } })
	a = b.do("PUT", "/deployments/one", good)
	require.Equal(t, http.StatusAccepted, a.status)
	require.Contains(t, a.body, `"nodes":[]`)
}

func TestBadInput(t *testing.T) {
	b := start(t, nil)
	padded := func(n int) string {
		return `{"configuration":{"name":"a"}` + strings.Repeat(" ", n-len(`{"configuration":{"name":"a"}}`)) + "}"
	}
	for _, c := range []struct {
		name   string
		body   string
		header []string
		code   code
		says   string
	}{
		{"empty", " ", nil, codeInvalidRequest, "ends too early"},
		{"no body", "", []string{"Content-Type", "application/json"}, codeInvalidRequest, "ends too early"},
		{"not JSON", "nonsense", nil, codeInvalidRequest, "not JSON"},
		{"an array", `[{"configuration":{}}]`, nil, codeInvalidRequest, "not a JSON object"},
		{"null", `null`, nil, codeInvalidRequest, "not a JSON object"},
		{"a string", `"configuration"`, nil, codeInvalidRequest, "not a JSON object"},
		{"two documents", good + good, nil, codeInvalidRequest, "more than one"},
		{"cut off", good[:len(good)-1], nil, codeInvalidRequest, "ends too early"},
		{"duplicate keys", `{"configuration":{"name":"a","name":"b"}}`, nil, codeInvalidRequest, "/configuration/name: the key is there twice"},
		{"duplicate member", `{"configuration":{"name":"a"},"configuration":{"name":"b"}}`, nil, codeInvalidRequest, "twice"},
		{"10,000 levels", `{"configuration":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, nil, codeInvalidRequest, "nested deeper"},
		{"not UTF-8", "{\"configuration\":{\"name\":\"\xff\"}}", nil, codeInvalidRequest, "UTF-8"},
		{"another member", `{"configuration":{"name":"a"},"deploy":true}`, nil, codeInvalidRequest, `"deploy"`},
		{"a long member", `{"` + strings.Repeat("é", 500) + `":1}`, nil, codeInvalidRequest, "…"},
		{"no member", `{}`, nil, codeInvalidRequest, `no member "configuration"`},
		{"configuration an array", `{"configuration":[]}`, nil, codeInvalidRequest, "not an object"},
		{"configuration null", `{"configuration":null}`, nil, codeInvalidRequest, "not an object"},
		{"1 MiB and one byte", padded(configuration.MaxBytes + 1), nil, codeRequestTooLarge, "1048576"},
		{"10 MiB", padded(10 << 20), nil, codeRequestTooLarge, "1048576"},
		{"no media type", good, []string{"Content-Type", ""}, codeUnsupportedMediaType, "application/json"},
		{"text", good, []string{"Content-Type", "text/plain"}, codeUnsupportedMediaType, "application/json"},
		{"malformed type", good, []string{"Content-Type", "application/json; charset"}, codeUnsupportedMediaType, "application/json"},
		{"another charset", good, []string{"Content-Type", "application/json; charset=latin1"}, codeUnsupportedMediaType, "UTF-8"},
		{"a like type", good, []string{"Content-Type", "application/json5"}, codeUnsupportedMediaType, "application/json"},
		{"compressed", good, []string{"Content-Encoding", "gzip"}, codeUnsupportedMediaType, "compressed"},
		{"wrong configuration", `{"configuration":{"name":"A"}}`, nil, codeInvalidConfiguration, "not valid"},
	} {
		for _, route := range [][2]string{{"PUT", "/deployments/one"}, {"POST", "/deployments/one/preview"}} {
			a := b.do(route[0], route[1], c.body, c.header...)
			require.Equal(t, c.code, a.failure(t).Error, "%s: %s", c.name, a.body)
			require.Contains(t, a.failure(t).Message, c.says, c.name)
		}
	}
	for _, key := range []string{" a b", "é", strings.Repeat("k", 256), "tab\tkey"} {
		a := b.do("PUT", "/deployments/one", good, "Idempotency-Key", key)
		require.Equal(t, codeInvalidRequest, a.failure(t).Error, "%q", key)
	}
	request := b.request("PUT", "/deployments/one", good)
	request.Header["Idempotency-Key"] = []string{"a", "a"}
	require.Equal(t, codeInvalidRequest, b.send(request).failure(t).Error)
	request.Header["Idempotency-Key"] = []string{""}
	request.Body, _ = request.GetBody()
	require.Equal(t, codeInvalidRequest, b.send(request).failure(t).Error)

	require.Zero(t, b.workflows.called(), "nothing was asked of a workflow")
	require.Equal(t, http.StatusNotFound, b.do("GET", "/deployments/one", "").status, "nothing was stored")

	chunked := b.request("PUT", "/deployments/one", padded(configuration.MaxBytes+1))
	chunked.ContentLength = -1
	require.Equal(t, codeRequestTooLarge, b.send(chunked).failure(t).Error)
	require.Zero(t, b.workflows.called())
	require.Equal(t, http.StatusAccepted, b.do("PUT", "/deployments/one", padded(configuration.MaxBytes)).status, "1 MiB is allowed")
}

func TestEveryErrorOfTheSchemaAtOnce(t *testing.T) {
	b := start(t, nil)
	a := b.do("PUT", "/deployments/one", `{"configuration":{"size":4,"other":"value-of-mine","applications":{"wiki":{"key":"secret-of-mine","more":1}}}}`)
	failure := a.failure(t)
	require.Equal(t, codeInvalidConfiguration, failure.Error)
	var paths []string
	for _, d := range failure.Details {
		paths = append(paths, d.Path)
	}
	require.ElementsMatch(t, []string{"/applications/wiki/key", "/applications/wiki/more", "/name", "/other", "/size"}, paths)
	require.Contains(t, a.body, "OPENBAO_ADDR")
	require.NotContains(t, a.body, "of-mine")
}

func TestPreview(t *testing.T) {
	b := start(t, func(c *Config) { c.Sealer = &sealer{} })
	b.SetNames("evaluation", deployment.Names{Nodes: []deployment.Node{{Name: "web", Names: []string{"www"}}}, DisabledApplications: []string{"forum"}})
	a := b.do("POST", "/deployments/one/preview", `{"configuration":{"name":"harbour","applications":{"wiki":{"key":"secret"}}}}`)
	require.Equal(t, http.StatusOK, a.status)
	require.JSONEq(t, `{"nodes":[{"name":"web","names":["www"]}],"disabledApplications":["forum"],"secretsSet":{"wiki":["key"]},"instances":[]}`, a.body)
	require.Equal(t, wire.PreviewInput{Deployment: "one", Snapshot: "/nix/store/source",
		Configuration: json.RawMessage(`{"applications":{"wiki":{"secretsSet":["key"]}},"name":"harbour"}`)}, b.workflows.previews[0])
	require.Equal(t, http.StatusNotFound, b.do("GET", "/deployments/one", "").status, "nothing was stored")

	b.SetNames("evaluation", deployment.Names{})
	require.JSONEq(t, `{"nodes":[],"disabledApplications":[],"secretsSet":{},"instances":[]}`, b.do("POST", "/deployments/one/preview", good).body)

	for _, c := range []struct {
		evaluated wire.Evaluated
		code      code
		says      string
	}{
		{wire.Evaluated{NoSlot: true}, codeServiceUnavailable, "at once"},
		{wire.Evaluated{Key: "gone"}, codeServiceUnavailable, "try again"},
		{wire.Evaluated{Refusal: &wire.Refusal{Type: wire.ErrorInvalidConfiguration, Message: "the module says no"}}, codeInvalidConfiguration, "the module says no"},
		{wire.Evaluated{Refusal: &wire.Refusal{Type: wire.ErrorEvaluationFailed, Message: "60 s"}}, codeEvaluationFailed, "60 s"},
	} {
		b.workflows.set(func(w *workflows) { w.evaluated = c.evaluated })
		failure := b.do("POST", "/deployments/one/preview", good).failure(t)
		require.Equal(t, c.code, failure.Error)
		require.Contains(t, failure.Message, c.says)
	}
}

func TestNoSourceYet(t *testing.T) {
	b := start(t, nil)
	for _, source := range []deployment.Source{
		{Problem: "/nix/store/secret-place is broken"},
		{Snapshot: "/nix/store/source", Schema: json.RawMessage(`{"type":"secret-place"}`)},
	} {
		b.SetSource(source)
		for _, a := range []answer{b.do("PUT", "/deployments/one", good), b.do("POST", "/deployments/one/preview", good)} {
			require.Equal(t, codeServiceUnavailable, a.failure(t).Error)
			require.NotContains(t, a.body, "secret-place")
		}
	}
	// A source that is broken now leaves the last snapshot that was not.
	b.SetSource(deployment.Source{Snapshot: "/nix/store/old", Schema: json.RawMessage(`{}`), Problem: "broken"})
	require.Equal(t, http.StatusAccepted, b.do("PUT", "/deployments/one", good).status)
	// And the schema is that of the source at each submit.
	b.SetSource(deployment.Source{Snapshot: "/nix/store/new", Schema: json.RawMessage(`false`)})
	require.Equal(t, codeInvalidConfiguration, b.do("PUT", "/deployments/one", good).failure(t).Error)
}

func TestErrorsOfWorkflows(t *testing.T) {
	b := start(t, nil)
	b.Record("one", deployment.ActionDeploy, `{}`)
	for _, c := range []struct {
		err  error
		code code
		says string
	}{
		{applicationError("the module says no", wire.ErrorInvalidConfiguration), codeInvalidConfiguration, "the module says no"},
		{applicationError("longer than 60 s", wire.ErrorEvaluationFailed), codeEvaluationFailed, "longer than 60 s"},
		{applicationError("another configuration", wire.ErrorIdempotencyConflict), codeIdempotencyConflict, "another configuration"},
		{applicationError("secret-inside", wire.ErrorUnavailable), codeServiceUnavailable, "again"},
		{applicationError("secret-inside", wire.ErrorNothingRecorded), codeServiceUnavailable, "again"},
		{applicationError("secret-inside", wire.ErrorNoSlot), codeServiceUnavailable, "again"},
		{applicationError("secret-inside", wire.ErrorSourceFailed), codeServiceUnavailable, "again"},
		{applicationError("secret-inside", wire.ErrorFenceHeld), codeServiceUnavailable, "again"},
		{applicationError("secret-inside", updates.ErrorWorkflowEnded), codeServiceUnavailable, "again"},
		{applicationError("secret-inside", "SomethingNew"), codeInternalError, "request ID"},
		{errors.New("connection refused at secret-inside"), codeServiceUnavailable, "again"},
		{context.DeadlineExceeded, codeServiceUnavailable, "again"},
	} {
		b.workflows.set(func(w *workflows) { w.err = c.err })
		a := b.do("PUT", "/deployments/one", good)
		require.Equal(t, c.code, a.failure(t).Error, "%v", c.err)
		require.Contains(t, a.failure(t).Message, c.says)
		require.NotContains(t, a.body, "secret-inside")
		if c.code == codeServiceUnavailable || c.code == codeInternalError {
			entries := b.logged.FilterMessage("a request failed").TakeAll()
			require.NotEmpty(t, entries)
			require.Equal(t, a.header.Get("X-Request-Id"), entries[len(entries)-1].ContextMap()["requestId"])
		}
		if c.code == codeServiceUnavailable {
			repeated := b.do("PUT", "/deployments/one", good, "Idempotency-Key", "key").failure(t).Message
			if strings.Contains(a.body, "may be recorded") {
				require.Contains(t, repeated, "the same Idempotency-Key")
			} else {
				require.Equal(t, a.failure(t).Message, repeated, "nothing was recorded, with a key or without")
			}
			require.Equal(t, c.code, b.do("POST", "/deployments/one/preview", good).failure(t).Error)
			require.Equal(t, c.code, b.do("DELETE", "/deployments/one", "").failure(t).Error)
			require.Equal(t, c.code, b.do("POST", "/deployments/one/builds/1/cancel", "").failure(t).Error)
		}
	}
}

func TestDestroy(t *testing.T) {
	b := start(t, nil)
	require.Equal(t, codeUnknownDeployment, b.do("DELETE", "/deployments/one", "").failure(t).Error)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	b.End("one", n, deployment.StatusSucceeded)
	a := b.do("DELETE", "/deployments/one", "")
	require.Equal(t, http.StatusAccepted, a.status)
	require.JSONEq(t, `{"deploymentId":"one","build":2,"callback":"none"}`, a.body)
	require.Equal(t, "/deployments/one/builds/2", a.header.Get("Location"))
	b.Start("one", 2)
	b.End("one", 2, deployment.StatusSucceeded)
	a = b.do("DELETE", "/deployments/one", "")
	require.Equal(t, http.StatusOK, a.status)
	require.JSONEq(t, `{"deploymentId":"one","state":"idle"}`, a.body)
}

func TestCancel(t *testing.T) {
	b := start(t, nil)
	cancel := func() answer { return b.do("POST", "/deployments/one/builds/1/cancel", "") }
	require.Equal(t, codeNotFound, cancel().failure(t).Error)
	n := b.Record("one", deployment.ActionDeploy, `{"name":"a"}`)
	require.Equal(t, codeNotFound, b.do("POST", "/deployments/one/builds/2/cancel", "").failure(t).Error)

	// Running: the deployer is asked, and the build goes on until it has.
	b.Start("one", n)
	a := cancel()
	require.Equal(t, http.StatusAccepted, a.status)
	require.Equal(t, []string{"deploy/one/1"}, b.workflows.requests)
	var build deployment.Build
	a.json(t, &build)
	require.Equal(t, deployment.StatusRunning, build.Status)
	require.Nil(t, build.Configuration)

	// The workflow is gone, and the row is not settled yet.
	b.workflows.set(func(w *workflows) { w.err = fmt.Errorf("cancel: %w", errWorkflowGone) })
	a = cancel()
	require.Equal(t, codeServiceUnavailable, a.failure(t).Error)
	require.Contains(t, a.failure(t).Message, "by itself")

	// It ends while it is asked: as cancelled, or otherwise.
	b.workflows.set(func(w *workflows) {
		w.during = func(context.Context) { b.End("one", n, deployment.StatusCancelled) }
	})
	a = cancel()
	require.Equal(t, http.StatusAccepted, a.status)
	a.json(t, &build)
	require.Equal(t, deployment.StatusCancelled, build.Status)
	b.workflows.set(func(w *workflows) { w.during = nil })
	require.Equal(t, http.StatusOK, cancel().status, "cancelled already")

	second := b.Record("one", deployment.ActionDeploy, `{}`)
	b.workflows.set(func(w *workflows) {
		w.during = func(context.Context) { b.End("one", second, deployment.StatusSucceeded) }
	})
	path := "/deployments/one/builds/2/cancel"
	require.Equal(t, codeBuildEnded, b.do("POST", path, "").failure(t).Error)
	asked := b.workflows.called()
	require.Equal(t, codeBuildEnded, b.do("POST", path, "").failure(t).Error)
	require.Equal(t, asked, b.workflows.called(), "a build that has ended is not asked for")
}

// tokens are what callers show, and whether one is a token at all, reads,
// writes, and is for the deployment one.
func tokens(b *bundle) []struct {
	name                    string
	header                  string
	valid, read, write, one bool
} {
	none := strings.Split(b.token(both, nil), ".")
	public, err := b.key.PublicKey.ECDH()
	require.NoError(b.t, err)
	all := claims{"iss": testIssuer, "aud": testAudience, "exp": 1 << 40, "scope": both}
	return []struct {
		name                    string
		header                  string
		valid, read, write, one bool
	}{
		{"none", "", false, false, false, false},
		{"no scheme", b.token(both, nil), false, false, false, false},
		{"basic", "Basic c29tZWJvZHk6c2VjcmV0", false, false, false, false},
		{"empty", "Bearer ", false, false, false, false},
		{"nonsense", "Bearer nonsense", false, false, false, false},
		{"long", "Bearer " + strings.Repeat("a", auth.MaxToken+1), false, false, false, false},
		{"expired", "Bearer " + b.token(both, claims{"exp": 1_700_000_000}), false, false, false, false},
		{"without end", "Bearer " + b.token(both, claims{"exp": nil}), false, false, false, false},
		{"another issuer", "Bearer " + b.token(both, claims{"iss": "https://else.example"}), false, false, false, false},
		{"another audience", "Bearer " + b.token(both, claims{"aud": "else"}), false, false, false, false},
		{"alg none", "Bearer eyJhbGciOiJub25lIn0." + none[1] + ".", false, false, false, false},
		{"HS256 with the public key", "Bearer " + signed(b.t, jose.HS256, public.Bytes(), all), false, false, false, false},
		{"malformed limit", "Bearer " + b.token(both, claims{"deployments": "one"}), false, false, false, false},
		{"no scope", "Bearer " + b.token("", nil), true, false, false, true},
		{"reads", "Bearer " + b.token(auth.ScopeRead, nil), true, true, false, true},
		{"writes", "Bearer " + b.token(auth.ScopeWrite, nil), true, false, true, true},
		{"both", "bearer " + b.token(both, nil), true, true, true, true},
		{"for one", "BEARER  " + b.token(both, claims{"deployments": []string{"one"}}), true, true, true, true},
		{"for another", "Bearer " + b.token(both, claims{"deployments": []string{"two"}}), true, true, true, false},
		{"for none", "Bearer " + b.token(both, claims{"deployments": []string{}}), true, true, true, false},
	}
}

func TestWhoMay(t *testing.T) {
	b := start(t, nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.SetNames("evaluation", deployment.Names{})
	b.SetSBOM("one", memory.SBOM{NodeSBOM: ready("web", n), Text: "{}", Diff: &deployment.SBOMDiff{Node: "web", Build: 1, Before: 1}})
	b.Start("one", n)
	b.End("one", n, deployment.StatusCancelled)
	for _, call := range []struct {
		method, path, body string
		writes, noID       bool
	}{
		{"GET", "/deployments?id=one", "", false, true},
		{"POST", "/deployments/list", `{"ids":["one"]}`, false, true},
		{"PUT", "/deployments/one", good, true, false},
		{"GET", "/deployments/one", "", false, false},
		{"HEAD", "/deployments/one", "", false, false},
		{"DELETE", "/deployments/one", "", true, false},
		{"POST", "/deployments/one/preview", good, true, false},
		{"GET", "/deployments/one/builds", "", false, false},
		{"GET", "/deployments/one/builds/1", "", false, false},
		{"GET", "/deployments/one/builds/1/log", "", false, false},
		{"POST", "/deployments/one/builds/1/cancel", "", true, false},
		{"HEAD", "/deployments/one/events", "", false, false},
		{"POST", "/deployments/one/events/ticket", "", false, false},
		{"GET", "/sbom-list/one", "", false, false},
		{"GET", "/sbom/one", "", false, false},
		{"HEAD", "/sbom/one?node=web", "", false, false},
		{"GET", "/sbom-diff/one", "", false, false},
	} {
		for _, token := range tokens(b) {
			name := call.method + " " + call.path + " " + token.name
			a := b.do(call.method, call.path, call.body, "Authorization", token.header)
			switch {
			case !token.valid:
				require.Equal(t, http.StatusUnauthorized, a.status, name)
				require.Contains(t, a.header.Get("WWW-Authenticate"), `Bearer realm="slipway"`, name)
			case call.writes && !token.write, !call.writes && !token.read:
				require.Equal(t, http.StatusForbidden, a.status, name)
				require.Contains(t, a.header.Get("WWW-Authenticate"), "insufficient_scope", name)
			case !token.one && !call.noID:
				require.Equal(t, http.StatusForbidden, a.status, name)
				// Nor does the token tell whether it exists.
				other := b.do(call.method, strings.Replace(call.path, "one", "unknown", 1), call.body, "Authorization", token.header)
				require.Equal(t, http.StatusForbidden, other.status, name)
				require.Equal(t, len(a.body), len(other.body), name)
			case !token.one:
				require.Equal(t, `{"deployments":[]}`, a.body, name)
			default:
				require.Less(t, a.status, 300, "%s: %s", name, a.body)
			}
		}
	}
	request := b.request("GET", "/deployments/one", "")
	request.Header["Authorization"] = append(request.Header["Authorization"], request.Header["Authorization"]...)
	require.Equal(t, codeUnauthorized, b.send(request).failure(t).Error)
}

func TestHostileIdentifiers(t *testing.T) {
	b := start(t, nil)
	b.Record("example", deployment.ActionDeploy, `{}`)
	ids := []string{
		strings.Repeat("a", 41), strings.Repeat("a", 5000), "Example", "EXAMPLE", "example.org", ".", "..", "...",
		"example-", "-example", "-", "ex%61mple", "%65xample", "example%2F", "%2e%2e", "..%2f..%2fetc%2fpasswd", "example%00",
		"%00", "example%20", "%20", "ex_ample", "ex+ample", "ex:ample", "ex@ample", "ex'ample", "ex;ample", "ex*ample", "ex~ample",
		"b%C3%BCcher", "%F0%9F%9A%A2", "%ff", "xn--b%C3%BC", "{id}", "%7Bid%7D", "example%3Fx", "example%23", "ex,ample", "$HOME", "(x)",
	}
	for _, id := range ids {
		for _, call := range [][3]string{
			{"PUT", "", good}, {"GET", "", ""}, {"DELETE", "", ""}, {"POST", "/preview", good}, {"GET", "/builds", ""},
			{"GET", "/builds/1", ""}, {"GET", "/builds/1/log", ""}, {"POST", "/builds/1/cancel", ""}, {"GET", "/events", ""},
			{"POST", "/events/ticket", ""},
		} {
			a := b.do(call[0], "/deployments/"+id+call[1], call[2])
			require.Equal(t, http.StatusBadRequest, a.status, "%s %s%s: %s", call[0], id, call[1], a.body)
			require.Equal(t, codeInvalidDeploymentID, a.failure(t).Error)
		}
		for _, path := range []string{"/sbom-list/", "/sbom/", "/sbom-diff/"} {
			require.Equal(t, codeInvalidDeploymentID, b.do("GET", path+id, "").failure(t).Error, path+id)
		}
		a := b.do("GET", "/deployments?id=example&id="+strings.NewReplacer("+", "%2B", ";", "%3B").Replace(id), "")
		if id == "ex%61mple" || id == "%65xample" {
			require.Equal(t, http.StatusOK, a.status, "in a query this is how it may be written")
			continue
		}
		require.Contains(t, []code{codeInvalidDeploymentID}, a.failure(t).Error, "%s: %s", id, a.body)
	}
	// Slashes make other paths.
	for _, path := range []string{"/deployments/", "/deployments//", "/deployments/a/b", "/deployments//builds/1/x", "//deployments/a", "/deployments/a//builds",
		"/deployments/../deployments/a/x", "/deployments/example/", "/deployments/example/builds/"} {
		a := b.do("GET", path, "")
		require.Contains(t, []code{codeNotFound, codeInvalidDeploymentID}, a.failure(t).Error, path)
	}
	require.Equal(t, http.StatusOK, b.do("GET", "/deployments/example", "").status)
	require.Equal(t, http.StatusNotFound, b.do("GET", "/deployments/"+strings.Repeat("a", 40), "").status)
	require.Zero(t, b.workflows.called())
	require.Empty(t, b.logged.FilterMessage("a request panicked").All())
}

func TestNoSuchPathOrMethod(t *testing.T) {
	b := start(t, nil)
	for _, path := range []string{"/", "/nonsense", "/deployments/one/nonsense", "/docs/nonsense", "/docs/..%2fapi.go", "/%00", "/metrics"} {
		a := b.do("GET", path, "", "Authorization", "")
		require.Equal(t, codeNotFound, a.failure(t).Error, path)
	}
	for _, c := range []struct{ method, path, allow string }{
		{"POST", "/deployments", "GET, HEAD"},
		{"PATCH", "/deployments/one", "GET, HEAD, PUT, DELETE"},
		{"POST", "/deployments/one", "GET, HEAD, PUT, DELETE"},
		{"OPTIONS", "/deployments/one", "GET, HEAD, PUT, DELETE"},
		{"PATCH", "/deployments/list", "GET, HEAD, PUT, POST, DELETE"},
		{"GET", "/deployments/one/preview", "POST"},
		{"HEAD", "/deployments/one/preview", "POST"},
		{"DELETE", "/deployments/one/builds/1", "GET, HEAD"},
		{"GET", "/deployments/one/events/ticket", "POST"},
		{"PUT", "/openapi.yaml", "GET, HEAD"},
		{"INVENTED", "/docs", "GET, HEAD"},
	} {
		a := b.do(c.method, c.path, "", "Authorization", "")
		require.Equal(t, http.StatusMethodNotAllowed, a.status, c.method+" "+c.path)
		require.Equal(t, c.allow, a.header.Get("Allow"), c.method+" "+c.path)
	}
	require.Equal(t, codeNotFound, b.do("INVENTED", "/nonsense", "").failure(t).Error)
	require.Equal(t, codeNotFound, b.do("GET", "/deployments/list", "").failure(t).Error, "a deployment of that name")
}
