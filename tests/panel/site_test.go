package panel

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/cmd/slipway-dev/panel"
	"slipway.dev/slipway/tests/stand"
)

// patience is how long a test waits for what should take a moment: the machine
// may be busy.
const patience = 2 * time.Minute

// site is a slipway with three front-ends: two that it trusts, and one whose
// tokens it takes but whose origin it does not allow.
type site struct {
	*stand.Stand
	browser           *chromium
	one, other, third *front
	// line is between the pages of the other front-end and slipway.
	line *line
}

func newSite(t *testing.T) *site {
	mount := server.Mount(t)
	_, token := mount.Token(t)
	_, nodes := mount.NodesToken(t)
	s := &site{}
	var issuers []string
	for _, f := range []**front{&s.one, &s.other, &s.third} {
		*f = newFront(t)
		issuers = append(issuers, fmt.Sprintf(`{"issuer":%q,"audience":%q}`, (*f).URL, issuer.DefaultAudience))
	}
	var err error
	s.Stand, err = stand.New(stand.Options{Source: source(t), Env: []string{
		"SLIPWAY_TRUSTED_ISSUERS=[" + strings.Join(issuers, ",") + "]",
		"SLIPWAY_CORS_ORIGINS=" + s.one.URL + "," + s.other.URL,
		"OPENBAO_ADDR=" + server.URL(), "OPENBAO_TOKEN_FILE=" + token, "SLIPWAY_OPENBAO_MOUNT=" + mount.Path,
		"SLIPWAY_DEPLOYER_ENV=TEST_RECORD,DEPLOY_PROFILES,DEPLOY_RUNTIME,DEPLOY_OPENBAO_ADDR,DEPLOY_OPENBAO_TOKEN_FILE,DEPLOY_OPENBAO_MOUNT",
		"DEPLOY_RUNTIME=" + t.TempDir(), "DEPLOY_OPENBAO_ADDR=" + server.URL(), "DEPLOY_OPENBAO_TOKEN_FILE=" + nodes,
		"DEPLOY_OPENBAO_MOUNT=" + mount.Path,
		"SLIPWAY_NIX_SLOTS=100", "SLIPWAY_DEPLOY_SLOTS=100", "SLIPWAY_DEPLOYER_GRACE=1s",
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs())
		}
		require.NoError(t, s.Close())
	})
	s.line = newLine(t, s.URL)
	s.one.serve(t, s.URL)
	s.other.serve(t, s.line.URL)
	s.third.serve(t, s.URL)
	s.browser = newBrowser(t)
	return s
}

// source is the example module source with a gate before its deployer, at which
// a test can hold it or have it fail.
func source(t *testing.T) string {
	t.Helper()
	example, folder := filepath.Join(stand.Root(), "deploy", "source"), filepath.Join(t.TempDir(), "source")
	require.NoError(t, os.CopyFS(folder, os.DirFS(example)))
	deployer := filepath.Join(folder, "deployer")
	text, err := os.ReadFile(deployer)
	require.NoError(t, err)
	const gate = `#!/bin/sh
gate=$TEST_RECORD/$SLIPWAY_DEPLOYMENT_ID.$1
if [ -e "$gate" ]; then
	echo "waiting at the gate"
	while [ -e "$gate" ]; do sleep 0.05; done
fi
if [ -e "$gate.fails" ]; then
	echo "error: the provider does not answer" >&2
	exit 3
fi
`
	require.NoError(t, os.WriteFile(deployer, append([]byte(gate), text...), 0o755))
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	}))
	return folder
}

// mark is a file that the gate looks for.
func (s *site) mark(t *testing.T, id, action string) (remove func()) {
	t.Helper()
	path := filepath.Join(s.Record, id+"."+action)
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	return func() {
		t.Helper()
		require.NoError(t, os.Remove(path))
	}
}

// front is a front-end.
type front struct {
	URL      string
	Folder   string
	listener net.Listener

	mu   sync.Mutex
	lost map[string]bool // drafts whose callback does not arrive
	// foreign are the requests that pages of other origins made.
	foreign []string
}

// newFront listens, so that slipway can be told of its origin.
func newFront(t *testing.T) *front {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return &front{
		URL: "http://" + listener.Addr().String(), Folder: t.TempDir(), listener: listener, lost: map[string]bool{},
	}
}

func (f *front) serve(t *testing.T, api string) {
	t.Helper()
	p, err := panel.New(panel.Options{Folder: f.Folder, Origin: f.URL, API: api, Audience: issuer.DefaultAudience})
	require.NoError(t, err)
	handler := p.Handler()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, reconcile := strings.CutPrefix(r.URL.Path, "/reconcile/")
		f.mu.Lock()
		lost := reconcile && f.lost[id]
		f.mu.Unlock()
		if lost {
			http.Error(w, "lost", http.StatusBadGateway)
			return
		}
		answer := &answer{w, http.StatusOK}
		handler.ServeHTTP(answer, r)
		f.hear(r, answer.status)
	})}
	go func() { _ = server.Serve(f.listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// answer remembers the status.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// hear notes a request of a page of another origin, as in "POST /token:
// same-site, a cookie, 403".
func (f *front) hear(r *http.Request, status int) {
	site, cookie := r.Header.Get("Sec-Fetch-Site"), "no cookie"
	if site != "same-site" && site != "cross-site" {
		return
	}
	if len(r.Cookies()) > 0 {
		cookie = "a cookie"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foreign = append(f.foreign, fmt.Sprintf("%s %s: %s, %s, %d", r.Method, r.URL.Path, site, cookie, status))
}

// strangers are the requests that hear noted.
func (f *front) strangers() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.foreign)
}

// line is a proxy that a test can cut for what concerns its own deployment.
type line struct {
	URL   string
	proxy *httputil.ReverseProxy

	mu      sync.Mutex
	away    map[string]bool
	expired map[string]bool
	open    map[*http.Request]context.CancelFunc
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	l := &line{away: map[string]bool{}, expired: map[string]bool{}, open: map[*http.Request]context.CancelFunc{}}
	l.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			l.mu.Lock()
			defer l.mu.Unlock()
			if query := r.Out.URL.Query(); query.Has("ticket") && l.expired[deploymentOf(r.In)] {
				query.Set("ticket", "expired")
				r.Out.URL.RawQuery = query.Encode()
			}
		},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	l.URL = server.URL
	return l
}

func (l *line) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	l.mu.Lock()
	away := l.away[deploymentOf(r)]
	l.open[r] = cancel
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, r)
	}()
	if away {
		panic(http.ErrAbortHandler)
	}
	l.proxy.ServeHTTP(w, r)
}

func deploymentOf(r *http.Request) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/deployments/"), "/")
	return id
}

// cut ends every request about a deployment, and refuses others until back.
func (l *line) cut(id string) (back func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away[id] = true
	for r, cancel := range l.open {
		if deploymentOf(r) == id {
			cancel()
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.away, id)
	}
}

// expire has slipway refuse every ticket of a deployment, as after its hour.
func (l *line) expire(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expired[id] = true
}

// loseCallback has no callback for a draft arrive.
func (f *front) loseCallback(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost[id] = true
}

// has is whether the store of the front-end has a draft: its file, as it would
// be after a crash.
func (f *front) has(t *testing.T, id string) bool {
	t.Helper()
	return strings.Contains(f.stored(t), id)
}

func (f *front) stored(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.Folder, "panel.json"))
	require.NoError(t, err)
	return string(text)
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
		time.Sleep(30 * time.Millisecond)
	}
}
