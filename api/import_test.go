package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

const goodImport = `{"configuration":{"name":"harbour"},"deploy":false}`

func TestImport(t *testing.T) {
	b := start(t, nil)
	a := b.do("POST", "/deployments/one/import", good, "Idempotency-Key", "key")
	require.Equal(t, http.StatusAccepted, a.status, a.body)
	require.JSONEq(t, `{"deploymentId":"one","build":1,"evaluation":"evaluated","nodes":[{"name":"web","names":["www.example.org"]}]}`, a.body)
	require.Equal(t, "/deployments/one/builds/1", a.header.Get("Location"))
	require.Equal(t, []string{wire.HashRequest("key")}, b.workflows.requests)
	require.Equal(t, wire.ImportRequest{Deploy: true, SubmitRequest: wire.SubmitRequest{
		Snapshot: "/nix/store/source", Configuration: []byte(`{"name":"harbour"}`),
	}}, b.workflows.imports[0], "it deploys unless told not to")

	a = b.do("POST", "/deployments/two/import", goodImport)
	require.Equal(t, http.StatusCreated, a.status, a.body)
	require.JSONEq(t, `{"deploymentId":"two","build":null,"evaluation":"evaluated","nodes":[]}`, a.body)
	require.Equal(t, "/deployments/two", a.header.Get("Location"))
	require.False(t, b.workflows.imports[1].Deploy)
}

func TestImportRefusesBodies(t *testing.T) {
	b := start(t, nil)
	for body, want := range map[string]struct {
		status  int
		message string
	}{
		`{"configuration":{"name":"harbour"},"deploy":"yes"}`: {http.StatusBadRequest, `"deploy" is neither true nor false`},
		`{"configuration":{"name":"harbour"},"deploy":null}`:  {http.StatusBadRequest, `"deploy" is neither true nor false`},
		`{"configuration":{"name":"harbour"},"dry":true}`:     {http.StatusBadRequest, `it takes "configuration", "deploy" and no other`},
		`{"deploy":true}`:      {http.StatusBadRequest, `no member "configuration"`},
		`{"configuration":[]}`: {http.StatusBadRequest, `"configuration" is not an object`},
		`{"configuration":{"name":"UPPER"},"deploy":false}`:    {http.StatusBadRequest, "not valid"},
		`{"configuration":{"name":"a","deploy":1},"deploy":0}`: {http.StatusBadRequest, `"deploy" is neither`},
		`{"configuration":{"name":"a"},"configuration":{}}`:    {http.StatusBadRequest, "configuration"},
	} {
		a := b.do("POST", "/deployments/one/import", body)
		require.Equal(t, want.status, a.status, body)
		require.Contains(t, a.failure(t).Message, want.message, body)
	}
	a := b.do("POST", "/deployments/one/import", withKey)
	require.Contains(t, a.failure(t).Details[0].Message, "OPENBAO_ADDR is not set", "a secret that nobody can keep")
	require.Zero(t, b.workflows.called())
}

func TestImportHandsSecretsOver(t *testing.T) {
	s := &sealer{}
	b := start(t, func(c *Config) { c.Sealer = s })
	b.workflows.set(func(w *workflows) { w.ready = true })
	a := b.do("POST", "/deployments/one/import", withKey)
	require.Equal(t, http.StatusAccepted, a.status, a.body)
	require.Equal(t, []string{"key"}, b.workflows.imports[0].Secrets[0].Given)
	require.NotContains(t, string(b.workflows.imports[0].Configuration), "value-of-mine")
	require.Equal(t, "value-of-mine", s.wrapped[0][0].Value)
	require.Equal(t, []string{"import/one/" + b.workflows.requests[0]}, b.workflows.committed)
}

// deadlines is a client's connection, which notes when it has to have its answer.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.last = at
	return nil
}

func (d *deadlines) SetReadDeadline(time.Time) error { return nil }

// The systems of an import may take longer than anything else.
func TestAnswerOfAnImportMayComeLate(t *testing.T) {
	b := start(t, func(c *Config) { c.ImportTimeout = 70 * time.Minute })
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	request := b.request("POST", "/deployments/one/import", good)
	request.URL.Path = "/deployments/one/import"
	b.api.router.ServeHTTP(d, request)
	require.Equal(t, http.StatusAccepted, d.Code, d.Body.String())
	require.WithinDuration(t, time.Now().Add(71*time.Minute), d.last, time.Minute)
}

func TestImportRefusals(t *testing.T) {
	b := start(t, nil)
	refuse := func(err error) answer {
		b.workflows.set(func(w *workflows) { w.err = err })
		return b.do("POST", "/deployments/one/import", good)
	}
	a := refuse(applicationError("known", wire.ErrorAlreadyExists))
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, codeAlreadyExists, a.failure(t).Error)

	a = refuse(temporal.NewNonRetryableApplicationError("the systems of 2 nodes do not evaluate", wire.ErrorInvalidConfiguration, nil, []wire.NodeProblem{
		{Node: "db", Refusal: wire.Refusal{Type: wire.ErrorInvalidConfiguration, Message: "no disk"}},
		{Node: "web", Refusal: wire.Refusal{Type: wire.ErrorEvaluationFailed, Message: "too long"}},
	}))
	require.Equal(t, http.StatusBadRequest, a.status)
	failure := a.failure(t)
	require.Equal(t, codeInvalidConfiguration, failure.Error)
	require.Equal(t, "the systems of 2 nodes do not evaluate", failure.Message)
	require.Contains(t, a.body, `"details":[{"path":"","message":"no disk","node":"db"},{"path":"","message":"too long","node":"web"}]`)

	a = refuse(applicationError("secret-inside", wire.ErrorNoSlot))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotContains(t, a.body, "secret-inside")
	require.Contains(t, a.body, "as many configurations are evaluated as may be at once")
	b.SetSource(deployment.Source{Problem: "broken"})
	require.Equal(t, http.StatusServiceUnavailable, refuse(nil).status, "there is no schema")
	require.Equal(t, http.StatusForbidden, b.do("POST", "/deployments/one/import", good, "Authorization", "Bearer "+b.token("deployments:read", nil)).status)
}
