package secrets

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	temporalclient "go.temporal.io/sdk/client"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/kvstand"
	"slipway.dev/slipway/tests/stand"
)

// patience is how long a test waits for what should take a moment: the machine
// may be busy.
const patience = 2 * time.Minute

var server *kvstand.Stand

func TestMain(m *testing.M) {
	// The steps mostly wait, so more of them run at once than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	kvstand.Main(m, &server)
}

// site is a slipway with its secrets server, and all that was put into it.
type site struct {
	*stand.Stand
	mount    kvstand.Mount
	tokens   []string // for the server
	faults   *faults
	database *pgxpool.Pool
	temporal temporalclient.Client
	// What there was before.
	begin       time.Time
	storeBefore map[string]bool

	mu      sync.Mutex
	values  []string     // every secret that a step used
	answers bytes.Buffer // of the API
}

func newSite(t *testing.T) *site {
	s := &site{mount: server.Mount(t), begin: time.Now(), storeBefore: storePaths(t)}
	token, file := s.mount.Token(t)
	s.tokens = []string{token}
	proxy := server.Proxy(t, false)
	s.faults = newFaults(proxy)
	s.start(t, t, stand.Options{
		Source: filepath.Join(stand.Root(), "tests", "sources", "secrets"),
		Env: []string{
			"OPENBAO_ADDR=" + proxy.URL, "OPENBAO_TOKEN_FILE=" + file, "SLIPWAY_OPENBAO_MOUNT=" + s.mount.Path,
			"SLIPWAY_NIX_SLOTS=100", "SLIPWAY_DEPLOY_SLOTS=100", "SLIPWAY_DEPLOYER_GRACE=1s", "SLIPWAY_LOG_LEVEL=debug",
		},
	})
	return s
}

// start starts the stand, whose files are removed at the end of the whole.
func (s *site) start(t, whole *testing.T, o stand.Options) {
	var err error
	s.Stand, err = stand.New(o)
	require.NoError(t, err)
	whole.Cleanup(func() {
		if whole.Failed() {
			whole.Log(s.Logs())
		}
		require.NoError(whole, s.Close())
	})
	s.database, err = s.Database(t.Context())
	require.NoError(t, err)
	t.Cleanup(s.database.Close)
	s.temporal, err = s.TemporalClient()
	require.NoError(t, err)
	t.Cleanup(s.temporal.Close)
}

// secret makes a value. It has the deployment in it, by which the proxy knows
// whose it is when it is wrapped.
func (s *site) secret(id string) string {
	value := id + "." + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, value)
	return value
}

// members is a part of a JSON document.
type members map[string]any

// forum is a configuration with a forum; more members of test are added.
func forum(application members, more ...members) members {
	test := members{"applications": members{"forum": application}}
	for _, m := range more {
		for name, value := range m {
			test[name] = value
		}
	}
	return members{"test": test}
}

// mail is the member of a forum with its nested secret.
func mail(password any) members { return members{"smtp": members{"password": password}} }

// answer is what the API said.
type answer struct {
	Status int    `json:"-"`
	Body   string `json:"-"`
	// Build and Nodes are those of a submit.
	Build int64
	Nodes []deployment.Node
	// The error, where it is one.
	Error   string
	Message string
	Details []client.Detail
}

func (a answer) names() []string {
	var names []string
	for _, node := range a.Nodes {
		names = append(names, node.Names...)
	}
	return names
}

// call sends a request to the API at a URL. It fails no test, so that it can
// run beside one.
func (s *site) call(url, method, path, key string, body any) (answer, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return answer{}, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url+path, bytes.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+s.Token(issuer.Claims{}))
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if text, err = io.ReadAll(response.Body); err != nil {
		return answer{}, err
	}
	s.mu.Lock()
	fmt.Fprintf(&s.answers, "%s %s: %v\n%s\n", method, path, response.Header, text)
	s.mu.Unlock()
	a := answer{Status: response.StatusCode, Body: string(text)}
	if method == http.MethodGet && a.Status == http.StatusOK {
		return a, nil // whose members are others
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%s: %w", text, err)
	}
	return a, nil
}

func (s *site) do(t *testing.T, method, path, key string, body any) answer {
	t.Helper()
	a, err := s.call(s.URL, method, path, key, body)
	require.NoError(t, err)
	return a
}

// put submits; the key finds its workflow.
func (s *site) put(t *testing.T, id, key string, configuration members) answer {
	t.Helper()
	return s.do(t, http.MethodPut, "/deployments/"+id, key, members{"configuration": configuration})
}

// submit is a put that is accepted: at the latest when the machine, which may be
// busy, has the time.
func (s *site) submit(t *testing.T, id, key string, configuration members) (a answer) {
	t.Helper()
	await(t, func() error {
		if a = s.put(t, id, key, configuration); a.Status == http.StatusServiceUnavailable {
			return errors.New(a.Message)
		}
		return nil
	})
	require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	return a
}

// destroy begins a destroy, as submit does.
func (s *site) destroy(t *testing.T, id string) (a answer) {
	t.Helper()
	await(t, func() error {
		if a = s.do(t, http.MethodDelete, "/deployments/"+id, "", nil); a.Status == http.StatusServiceUnavailable {
			return errors.New(a.Message)
		}
		return nil
	})
	require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	return a
}

// deploy submits and waits until it is up and its workflow has ended.
func (s *site) deploy(t *testing.T, id, key string, configuration members) answer {
	t.Helper()
	a := s.submit(t, id, key, configuration)
	d := s.settled(t, id)
	require.Equal(t, deployment.StateActive, d.State, d.Reason)
	s.ended(t, id, key)
	return a
}

func (s *site) settled(t *testing.T, id string) deployment.Deployment {
	t.Helper()
	var d deployment.Deployment
	await(t, func() error {
		a := s.do(t, http.MethodGet, "/deployments/"+id, "", nil)
		if err := json.Unmarshal([]byte(a.Body), &d); err != nil {
			return err
		}
		if !d.State.Settled() {
			return fmt.Errorf("%s is %s: %s", id, d.State, d.Reason)
		}
		return nil
	})
	return d
}

// ended waits until the workflow of a submit has ended, with all that it does
// after its deploy.
func (s *site) ended(t *testing.T, id, key string) {
	s.closed(t, wire.SubmitID(id, wire.HashRequest(key)))
}

// hauledOut waits until the workflow of a destroy has ended.
func (s *site) hauledOut(t *testing.T, id string, build int64) {
	t.Helper()
	var workflow string
	require.NoError(t, s.database.QueryRow(t.Context(), `SELECT workflow_id FROM builds WHERE deployment_id = $1 AND number = $2`, id, build).Scan(&workflow))
	s.closed(t, workflow)
}

func (s *site) closed(t *testing.T, workflow string) {
	t.Helper()
	await(t, func() error {
		d, err := s.temporal.DescribeWorkflow(t.Context(), workflow, "")
		if err == nil && d.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			err = fmt.Errorf("%s runs", workflow)
		}
		return err
	})
}

// stored is the forum of the configuration of a build.
type stored struct {
	SecretsSet, SecretsClear []string
	Rest                     map[string]any `json:"-"`
}

func (s *site) stored(t *testing.T, id string, build int64) stored {
	t.Helper()
	var text string
	require.NoError(t, s.database.QueryRow(t.Context(), `SELECT configuration FROM builds WHERE deployment_id = $1 AND number = $2`, id, build).Scan(&text))
	var methods map[string]struct {
		Applications struct{ Forum json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &methods))
	require.Len(t, methods, 1)
	var found stored
	for _, c := range methods {
		require.NoError(t, json.Unmarshal(c.Applications.Forum, &found))
		require.NoError(t, json.Unmarshal(c.Applications.Forum, &found.Rest))
	}
	return found
}

// value is that of an entry of the forum; nil where there is none.
func (s *site) value(t *testing.T, id, field string) any {
	t.Helper()
	return s.mount.Get(t, id, "forum", field)["value"]
}

func (s *site) version(t *testing.T, id, field string) string {
	t.Helper()
	return fmt.Sprint(s.mount.Metadata(t, id, "forum", field)["current_version"])
}

// rows is how many builds and preparations of a deployment PostgreSQL has.
func (s *site) rows(t *testing.T, id string) (builds, preparing int) {
	t.Helper()
	require.NoError(t, s.database.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM builds WHERE deployment_id = $1), (SELECT count(*) FROM preparing WHERE deployment_id = $1)`,
		id).Scan(&builds, &preparing))
	return builds, preparing
}

// atGate waits until a deployer of a deployment is at its gate, and open lets
// it, and all later ones, go on.
func (s *site) atGate(t *testing.T, id, action string) {
	t.Helper()
	await(t, func() error {
		return os.Remove(filepath.Join(s.Record, id+"."+action)) // the next one makes it anew
	})
}

func (s *site) open(t *testing.T, id string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.Record, id+".open"), nil, 0o644))
}

// await polls until done returns nil.
func await(t *testing.T, done func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// faults are those of the proxy, by deployment, and what it saw.
type faults struct {
	mu   sync.Mutex
	all  kvstand.Fault
	of   map[string]kvstand.Fault
	seen []string
}

func newFaults(p *kvstand.Proxy) *faults {
	f := &faults{of: map[string]kvstand.Fault{}}
	p.Set(f.answer)
	return f
}

// answer finds the deployment of a request: in its path, or in the values that
// are wrapped.
func (f *faults) answer(w http.ResponseWriter, r *http.Request) bool {
	about := r.URL.Path
	if strings.HasSuffix(r.URL.Path, "/sys/wrapping/wrap") {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		about += " " + string(body)
	}
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+about)
	fault := f.all
	for id, one := range f.of {
		if isAbout(about, id) {
			fault = one
		}
	}
	f.mu.Unlock()
	return fault != nil && fault(w, r)
}

func isAbout(request, id string) bool {
	return strings.Contains(request, "/"+id+"/") || strings.Contains(request, `"`+id+".")
}

// set breaks the requests about a deployment; nil mends them.
func (f *faults) set(id string, fault kvstand.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[id] = fault
}

// setAll breaks all requests, which only a step that runs alone may do.
func (f *faults) setAll(fault kvstand.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = fault
}

// requests are those about a deployment.
func (f *faults) requests(id string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.seen), func(request string) bool { return !isAbout(request, id) })
}
