package api

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"slipway.dev/slipway/api/auth"
	"slipway.dev/slipway/api/internal/memory"
	"slipway.dev/slipway/schema"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

const (
	testIssuer   = "https://issuer.example"
	testAudience = "slipway"
	both         = auth.ScopeRead + " " + auth.ScopeWrite
	// patience is how long a test waits for what must come.
	patience = 20 * time.Second
)

// testSchema takes a name, and a key that is a secret.
const testSchema = `{
	"type": "object", "additionalProperties": false, "required": ["name"],
	"properties": {
		"name": {"type": "string", "pattern": "^[a-z]+$"},
		"size": {"type": "integer", "maximum": 3},
		"applications": {"type": "object", "properties": {"wiki": {
			"type": "object", "additionalProperties": false, "properties": {
				"key": {"type": "string", "writeOnly": true, "format": "password"},
				"secretsSet": {"type": "array", "readOnly": true}
			}
		}}}
	}
}`

// workflows does to a memory store what workflows do, or what a test says.
type workflows struct {
	store *memory.Store

	mu       sync.Mutex
	submits  []wire.SubmitRequest
	requests []string
	previews []wire.PreviewInput
	imports  []wire.ImportRequest
	commits  []wire.CommitRequest
	// The workflows that secrets were brought to.
	committed []string
	// Whether it was told that no secrets come.
	givenUp  bool
	destroys []wire.DestroyInput
	// Whether a submit is ready for its secrets before it is recorded.
	ready bool
	// Whether a callback comes too late.
	late bool
	// What a call returns instead of doing it.
	err error
	// What an evaluation gives.
	evaluated wire.Evaluated
	// Called in a call, before it does anything.
	during func(context.Context)
}

func (w *workflows) call(ctx context.Context) error {
	w.mu.Lock()
	err, during := w.err, w.during
	w.mu.Unlock()
	if during != nil {
		during(ctx)
	}
	return err
}

func (w *workflows) set(change func(*workflows)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// called is how often something was asked of it.
func (w *workflows) called() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests) + len(w.previews)
}

func (w *workflows) Submit(ctx context.Context, id, request string, submit wire.SubmitRequest) (wire.SubmitAnswer, error) {
	w.mu.Lock()
	w.submits, w.requests = append(w.submits, submit), append(w.requests, request)
	w.mu.Unlock()
	if err := w.call(ctx); err != nil {
		return wire.SubmitAnswer{}, err
	}
	w.mu.Lock()
	ready := w.ready
	w.mu.Unlock()
	if ready {
		return wire.SubmitAnswer{Ready: true}, nil
	}
	return w.record(id, submit)
}

func (w *workflows) record(id string, submit wire.SubmitRequest) (wire.SubmitAnswer, error) {
	n := w.store.Record(id, deployment.ActionDeploy, string(submit.Configuration))
	return wire.SubmitAnswer{Build: n, Evaluation: deployment.EvaluationEvaluated}, nil
}

func (w *workflows) Import(ctx context.Context, id, request string, imported wire.ImportRequest) (wire.SubmitAnswer, error) {
	w.mu.Lock()
	w.imports = append(w.imports, imported)
	w.mu.Unlock()
	if imported.Deploy {
		return w.Submit(ctx, id, request, imported.SubmitRequest)
	}
	return wire.SubmitAnswer{Evaluation: deployment.EvaluationEvaluated}, w.call(ctx)
}

func (w *workflows) Commit(ctx context.Context, workflowID string, commit wire.CommitRequest) (wire.SubmitAnswer, error) {
	w.mu.Lock()
	w.commits, w.committed = append(w.commits, commit), append(w.committed, workflowID)
	last := w.submits[len(w.submits)-1]
	w.mu.Unlock()
	if ctx.Err() != nil {
		return wire.SubmitAnswer{}, ctx.Err()
	}
	w.mu.Lock()
	w.givenUp = w.givenUp || commit.Wrapped == ""
	w.mu.Unlock()
	if commit.Wrapped == "" {
		return wire.SubmitAnswer{}, applicationError("given up", wire.ErrorNothingRecorded)
	}
	if err := w.call(ctx); err != nil {
		return wire.SubmitAnswer{}, err
	}
	return w.record(strings.Split(workflowID, "/")[1], last)
}

func (w *workflows) Destroy(ctx context.Context, destroy wire.DestroyInput) (wire.DestroyAnswer, error) {
	id := destroy.Deployment
	w.mu.Lock()
	w.requests, w.destroys = append(w.requests, destroy.Request), append(w.destroys, destroy)
	w.mu.Unlock()
	if err := w.call(ctx); err != nil {
		return wire.DestroyAnswer{}, err
	}
	d, err := w.store.Deployment(ctx, id)
	switch {
	case errors.Is(err, deployment.ErrUnknown):
		return wire.DestroyAnswer{}, applicationError("unknown", wire.ErrorUnknownDeployment)
	case d.State == deployment.StateIdle:
		return wire.DestroyAnswer{Idle: true}, nil
	}
	w.mu.Lock()
	late := w.late
	w.mu.Unlock()
	return wire.DestroyAnswer{Build: w.store.Record(id, deployment.ActionDestroy, ""), Callback: destroy.Callback != "" && !late}, nil
}

func (w *workflows) Preview(ctx context.Context, preview wire.PreviewInput) (wire.Evaluated, error) {
	w.mu.Lock()
	w.previews = append(w.previews, preview)
	evaluated := w.evaluated
	w.mu.Unlock()
	return evaluated, w.call(ctx)
}

func (w *workflows) Cancel(ctx context.Context, workflowID string) (wire.CancelAnswer, error) {
	w.mu.Lock()
	w.requests = append(w.requests, workflowID)
	w.mu.Unlock()
	return wire.CancelAnswer{}, w.call(ctx)
}

// bundle is the API on a server, with what it needs.
type bundle struct {
	*memory.Store
	t         *testing.T
	api       *api
	url       string
	http      *http.Client
	workflows *workflows
	logged    *observer.ObservedLogs
	metrics   *prometheus.Registry
	key       *ecdsa.PrivateKey
	contract  routers.Router
	stop      context.CancelFunc // of the streams
}

func start(t *testing.T, tune func(*Config)) *bundle {
	t.Helper()
	store := memory.New()
	store.SetSource(deployment.Source{Snapshot: "/nix/store/source", Schema: json.RawMessage(testSchema)})
	core, logged := observer.New(zap.DebugLevel)
	b := &bundle{Store: store, t: t, logged: logged, metrics: prometheus.NewRegistry(),
		workflows: &workflows{store: store, evaluated: wire.Evaluated{Key: "evaluation"}}}

	var err error
	b.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: b.key.Public(), KeyID: "key"}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "jwks.json")
	require.NoError(t, os.WriteFile(path, keys, 0o600))
	verifier, err := auth.NewVerifier([]auth.Issuer{{Issuer: testIssuer, Audience: testAudience, JWKSFile: path}}, time.Now, zap.NewNop())
	require.NoError(t, err)

	config := Config{
		Reader: store, Listener: store, Callbacks: store, Workflows: b.workflows, Verifier: verifier,
		TicketKey: bytes.Repeat([]byte("k"), 32), Log: zap.New(core), Registerer: b.metrics,
	}
	if tune != nil {
		tune(&config)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.api, err = newAPI(ctx, config)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(b.api.router)
	server.Start()
	b.url, b.http = server.URL, http.DefaultClient
	t.Cleanup(func() {
		stop()
		server.Close()
	})

	contract, err := openapi3.NewLoader().LoadFromData(schema.OpenAPI)
	require.NoError(t, err)
	contract.Servers = nil
	b.contract, err = gorillamux.NewRouter(contract)
	require.NoError(t, err)
	return b
}

type claims map[string]any

// token signs a token with a scope; changes replace its other claims, and nil
// removes one.
func (b *bundle) token(scope string, changes claims) string {
	b.t.Helper()
	all := claims{"iss": testIssuer, "aud": testAudience, "sub": "somebody", "exp": time.Now().Add(time.Hour).Unix(), "scope": scope}
	for name, value := range changes {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	return signed(b.t, jose.ES256, b.key, all)
}

func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, all claims) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	require.NoError(t, err)
	payload, err := json.Marshal(all)
	require.NoError(t, err)
	jws, err := signer.Sign(payload)
	require.NoError(t, err)
	token, err := jws.CompactSerialize()
	require.NoError(t, err)
	return token
}

type answer struct {
	status int
	header http.Header
	body   string
}

// json is a member of the body.
func (a answer) json(t *testing.T, value any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.body), value), a.body)
}

func (a answer) failure(t *testing.T) errorBody {
	t.Helper()
	var body errorBody
	a.json(t, &body)
	return body
}

// request makes one with a token for everything, and JSON.
func (b *bundle) request(method, path, body string, header ...string) *http.Request {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, method, b.url, strings.NewReader(body))
	require.NoError(b.t, err)
	// As it is, whatever a client library would make of it.
	path, query, _ := strings.Cut(path, "?")
	request.URL.Opaque, request.URL.RawQuery = "//"+request.URL.Host+path, query
	request.Header.Set("Authorization", "Bearer "+b.token(both, nil))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Del(header[i])
		if header[i+1] != "" {
			request.Header.Set(header[i], header[i+1])
		}
	}
	return request
}

func (b *bundle) do(method, path, body string, header ...string) answer {
	b.t.Helper()
	return b.send(b.request(method, path, body, header...))
}

// send holds what comes back against the contract.
func (b *bundle) send(request *http.Request) answer {
	b.t.Helper()
	response, err := b.http.Do(request)
	require.NoError(b.t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	require.NoError(b.t, response.Body.Close())
	a := answer{response.StatusCode, response.Header, string(body)}
	require.NotEmpty(b.t, a.header.Get("X-Request-Id"))
	if a.status >= 400 && request.Method != http.MethodHead {
		failure := a.failure(b.t)
		require.Equal(b.t, a.header.Get("X-Request-Id"), failure.RequestID)
		require.Equal(b.t, a.status, failure.Error.status())
		require.NotEmpty(b.t, failure.Message)
		again := a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests || failure.Error == codeSubmitInProgress
		require.Equal(b.t, again, a.header.Get("Retry-After") != "")
	}
	b.check(request, a)
	return a
}

// check validates an answer by the schema of its operation.
func (b *bundle) check(request *http.Request, a answer) {
	b.t.Helper()
	if request.Method == http.MethodHead {
		return // the answer to GET without its body
	}
	plain := request.Clone(context.Background())
	plain.URL.Path, _, _ = strings.Cut(strings.TrimPrefix(plain.URL.Opaque, "//"+plain.URL.Host), "?")
	plain.URL.Opaque = ""
	if decoded, err := url.PathUnescape(plain.URL.Path); err == nil {
		plain.URL.Path = decoded
	}
	plain.URL.Scheme, plain.URL.Host = "", ""
	if plain.URL.Path == "/deployments/list" && request.Method != http.MethodPost {
		plain.URL.Path = "/deployments/one" // then it is the name of a deployment
	}
	route, parameters, err := b.contract.FindRoute(plain)
	if err != nil { // no operation of the contract, so no answer of one either
		require.Contains(b.t, []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusBadRequest, http.StatusOK}, a.status)
		return
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: plain, PathParams: parameters, Route: route},
		Status:                 a.status,
		Header:                 a.header,
		Body:                   io.NopCloser(strings.NewReader(a.body)),
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true,
			ExcludeResponseBody:   a.header.Get("Content-Type") != "application/json",
		},
	})
	require.NoError(b.t, err, "%s %s: %d %s", request.Method, plain.URL, a.status, a.body)
}
