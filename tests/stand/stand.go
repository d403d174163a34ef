package stand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	temporalclient "go.temporal.io/sdk/client"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/cmd/slipway-dev/postgres"
	"slipway.dev/slipway/cmd/slipway-dev/supervise"
	"slipway.dev/slipway/tests/kubestand"
)

// The pieces of a stand. Second is another worker with a state folder of its
// own, as on another machine; only Start(Second) starts it.
const (
	Postgres = "postgres"
	Temporal = "temporal"
	API      = "api"
	Worker   = "worker"
	Second   = "worker2"
)

// OtherAPI is another replica of the API, as on another machine. Only
// Start(OtherAPI) starts it.
const OtherAPI = "api2"

// startLimit is how long a piece may take until it can be used.
const startLimit = 60 * time.Second

// Options say what a stand runs.
type Options struct {
	// Source is the folder of the module source; empty is tests/sources/controlled.
	Source string
	// Env is what api and worker get beside what the stand sets, as
	// NAME=value.
	Env []string
	// EnvOf is what one piece of them gets beside that.
	EnvOf map[string][]string
	// NotReady: do not wait until the service is ready.
	NotReady bool
	// Kube is the Kubernetes API server; where there is one, the deployment
	// coordination API is served.
	Kube *kubestand.Stand
	// Pods are the pods that replicas of the API believe to be, by piece.
	Pods map[string]string
}

// Stand is a running slipway.
type Stand struct {
	// Dir is the folder of its state and logs.
	Dir string
	// Record is where the deployer of the controlled source writes.
	Record string
	// URL is the deployments API, Health the one of the API's /readyz, and
	// WorkerHealth that of the worker.
	URL, Health, WorkerHealth string
	// DatabaseURL, TemporalAddress and UIAddress are what slipway is run with.
	DatabaseURL, TemporalAddress string
	Issuer                       *issuer.Issuer

	options Options
	ports   map[string]int
	mu      sync.Mutex
	running map[string]*supervise.Process
	logs    map[string]*os.File
}

// Root is the folder of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Bin is the path of a built program.
func Bin(name string) string { return filepath.Join(Root(), "bin", name) }

// New starts a stand in a temporary folder. Close it.
func New(o Options) (*Stand, error) {
	for _, program := range []string{"slipway", "slipway-dev"} {
		if _, err := os.Stat(Bin(program)); err != nil {
			return nil, fmt.Errorf("%s is not built: run `make build`", program)
		}
	}
	dir, err := os.MkdirTemp("", "slipway-stand-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user
		return nil, err
	}
	if o.Source == "" {
		o.Source = filepath.Join(Root(), "tests", "sources", "controlled")
	}
	s := &Stand{
		Dir: dir, Record: filepath.Join(dir, "record"), options: o,
		ports: map[string]int{}, running: map[string]*supervise.Process{}, logs: map[string]*os.File{},
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, fmt.Errorf("%s", s.Logs()), s.Close())
	}
	return s, nil
}

func (s *Stand) start() error {
	for _, folder := range []string{s.Record, filepath.Join(s.Dir, "logs")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	ports, err := freePorts(Postgres, Temporal, "api", "metrics", "health", "workerMetrics", "workerHealth", "worker2Metrics", "worker2Health",
		"apiLease", "api2", "api2Metrics", "api2Health", "api2Lease")
	if err != nil {
		return err
	}
	s.ports = ports
	s.URL = fmt.Sprintf("http://127.0.0.1:%d", ports["api"])
	s.Health = fmt.Sprintf("http://127.0.0.1:%d/readyz", ports["health"])
	s.WorkerHealth = fmt.Sprintf("http://127.0.0.1:%d/readyz", ports["workerHealth"])
	s.TemporalAddress = fmt.Sprintf("127.0.0.1:%d", ports[Temporal])
	if s.Issuer, err = issuer.Open(filepath.Join(s.Dir, "issuer")); err != nil {
		return err
	}
	for _, piece := range []string{Postgres, Temporal} {
		if err := s.Start(piece); err != nil {
			return err
		}
	}
	for _, command := range []string{"migrate", "temporal-setup"} {
		cmd := exec.Command(Bin("slipway"), command)
		cmd.Env = s.env(API)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("slipway %s: %w: %s", command, err, out)
		}
	}
	for _, piece := range []string{Worker, API} {
		if err := s.Start(piece); err != nil {
			return err
		}
	}
	if s.options.NotReady {
		return nil
	}
	return s.Ready()
}

// Ready waits until the service is ready.
func (s *Stand) Ready() error {
	return errors.Join(s.await(Worker, func() error { return probe(s.WorkerHealth) }), s.await(API, func() error { return probe(s.Health) }))
}

// Start starts a piece that does not run, and waits until it can be used (an
// API or worker: until it listens).
func (s *Stand) Start(piece string) error {
	log, err := supervise.OpenLog(filepath.Join(s.Dir, "logs", piece+".log"))
	if err != nil {
		return err
	}
	spec := supervise.Spec{Name: piece, Env: s.env(piece), Output: log, Dir: Root()}
	ready := filepath.Join(s.Dir, piece+".ready")
	var usable func() error
	switch piece {
	case Postgres:
		spec.Path = Bin("slipway-dev")
		spec.Args = []string{"postgres", "--data-dir", filepath.Join(s.Dir, "postgres"), "--port", strconv.Itoa(s.ports[Postgres]), "--url-file", ready}
	case Temporal:
		spec.Path = Bin("slipway-dev")
		spec.Args = []string{"temporal", "--db", filepath.Join(s.Dir, "temporal", "temporal.db"), "--port", strconv.Itoa(s.ports[Temporal]), "--no-ui", "--ready-file", ready}
	case API, OtherAPI:
		spec.Path, spec.Args = Bin("slipway"), []string{"api"}
		usable = func() error {
			if s.options.Kube != nil {
				return errors.Join(listens(s.ports[piece]), listens(s.ports[piece+"Lease"]))
			}
			return listens(s.ports[piece])
		}
	case Worker, Second:
		spec.Path, spec.Args = Bin("slipway"), []string{"worker"}
		usable = func() error { return listens(s.ports[piece+"Health"]) }
	}
	if usable == nil {
		_ = os.Remove(ready)
		usable = func() error {
			_, err := os.Stat(ready)
			return err
		}
	}
	process, err := supervise.Start(spec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.running[piece], s.logs[piece] = process, log
	s.mu.Unlock()
	if err := s.await(piece, usable); err != nil {
		return err
	}
	if piece == Postgres && s.DatabaseURL == "" {
		url, err := os.ReadFile(ready)
		if err != nil {
			return err
		}
		s.DatabaseURL = strings.TrimSpace(string(url))
	}
	return nil
}

// Process is a piece that runs, or nil.
func (s *Stand) Process(piece string) *supervise.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[piece]
}

func (s *Stand) take(piece string) (*supervise.Process, *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, log := s.running[piece], s.logs[piece]
	delete(s.running, piece)
	return p, log
}

// Kill kills the process of a piece, and only that, as `kill -9` does.
func (s *Stand) Kill(piece string) error {
	p, log := s.take(piece)
	if p == nil {
		return fmt.Errorf("%s does not run", piece)
	}
	defer func() { _ = log.Close() }()
	process, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	if err := process.Kill(); err != nil {
		return err
	}
	<-p.Done()
	return nil
}

// Signal sends a signal to the process of a piece, and only that: SIGSTOP
// freezes it, SIGCONT lets it go on.
func (s *Stand) Signal(piece string, signal syscall.Signal) error {
	p := s.Process(piece)
	if p == nil {
		return fmt.Errorf("%s does not run", piece)
	}
	p.Signal(signal)
	return nil
}

// StateDir is the state folder of a worker.
func (s *Stand) StateDir(worker string) string {
	if worker == Second {
		return filepath.Join(s.Dir, "slipway2")
	}
	return filepath.Join(s.Dir, "slipway")
}

// Stop stops a piece as an operator would, with SIGTERM.
func (s *Stand) Stop(piece string) error {
	p, log := s.take(piece)
	if p == nil {
		return nil
	}
	defer func() { _ = log.Close() }()
	if killed := p.Stop(startLimit); killed {
		return fmt.Errorf("%s did not stop within %s of SIGTERM", piece, startLimit)
	}
	return nil
}

// Restart kills a piece and starts it again.
func (s *Stand) Restart(piece string) error {
	return errors.Join(s.Kill(piece), s.Start(piece))
}

// Close ends everything and removes the folder.
func (s *Stand) Close() error {
	var errs []error
	for _, piece := range []string{API, OtherAPI, Worker, Second, Temporal, Postgres} {
		if p, log := s.take(piece); p != nil {
			p.Stop(10 * time.Second)
			errs = append(errs, log.Close())
		}
	}
	errs = append(errs, postgres.Remove(context.Background(), filepath.Join(s.Dir, "postgres")), os.RemoveAll(s.Dir))
	return errors.Join(errs...)
}

// Logs is the end of every log, for a test that failed.
func (s *Stand) Logs() string {
	var b strings.Builder
	for _, piece := range []string{Postgres, Temporal, API, OtherAPI, Worker, Second} {
		text, _ := os.ReadFile(filepath.Join(s.Dir, "logs", piece+".log"))
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		fmt.Fprintf(&b, "== %s\n%s\n", piece, bytes.Join(lines[max(0, len(lines)-40):], []byte("\n")))
	}
	return b.String()
}

func (s *Stand) env(piece string) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.Dir, "LANG=C.UTF-8"}
	if piece == Postgres || piece == Temporal {
		return env
	}
	metrics, health := s.ports["metrics"], s.ports["health"]
	if piece != API {
		metrics, health = s.ports[piece+"Metrics"], s.ports[piece+"Health"]
	}
	api := API
	if piece == OtherAPI {
		api = OtherAPI
	}
	env = append(env,
		"SLIPWAY_DATABASE_URL="+s.DatabaseURL,
		fmt.Sprintf("SLIPWAY_LISTEN=127.0.0.1:%d", s.ports[api]),
		fmt.Sprintf("SLIPWAY_METRICS_LISTEN=127.0.0.1:%d", metrics),
		fmt.Sprintf("SLIPWAY_HEALTH_LISTEN=127.0.0.1:%d", health),
		fmt.Sprintf(`SLIPWAY_TRUSTED_ISSUERS=[{"issuer":%q,"audience":%q,"jwksFile":%q}]`,
			issuer.DefaultIssuer, issuer.DefaultAudience, s.Issuer.JWKSFile),
		"SLIPWAY_SOURCE="+s.options.Source,
		"SLIPWAY_STATE_DIR="+s.StateDir(piece),
		// Evaluations give way to everything else: on a busy machine they take long.
		"SLIPWAY_NIX_TIMEOUT=10m",
		"SLIPWAY_DEPLOYER_ENV=TEST_RECORD,DEPLOY_PROFILES",
		"TEST_RECORD="+s.Record,
		"DEPLOY_PROFILES="+filepath.Join(s.Dir, "profiles"),
		"TEMPORAL_ADDRESS="+s.TemporalAddress,
		"SLIPWAY_DRAIN_TIMEOUT=0s", // clients connect without a load balancer
	)
	if k := s.options.Kube; k != nil && piece == api {
		env = append(env,
			"BLOODRAVEN_DEPLOY_API_ENABLED=true",
			fmt.Sprintf("BLOODRAVEN_ESCROW_TLS_ADDR=127.0.0.1:%d", s.ports[api+"Lease"]),
			"SLIPWAY_DEPLOY_TLS_CERT_FILE="+k.Kube.File("tls.crt"),
			"SLIPWAY_DEPLOY_TLS_KEY_FILE="+k.Kube.File("tls.key"),
			"SLIPWAY_NAMESPACE="+kube.Namespace,
			"KUBECONFIG="+k.Kubeconfig,
			"SLIPWAY_POD_NAME="+s.options.Pods[piece],
		)
	}
	return slices.Concat(env, s.options.Env, s.options.EnvOf[piece])
}

// LeaseURL is the deployment coordination API of a replica of the API.
func (s *Stand) LeaseURL(piece string) string {
	return fmt.Sprintf("https://127.0.0.1:%d/deploy/v1", s.ports[piece+"Lease"])
}

// Token signs a token. Empty claims get the defaults of slipway-dev and an
// hour.
func (s *Stand) Token(c issuer.Claims) string {
	if c.Issuer == "" {
		c.Issuer = issuer.DefaultIssuer
	}
	if c.Audience == "" {
		c.Audience = issuer.DefaultAudience
	}
	if c.Subject == "" {
		c.Subject = issuer.DefaultSubject
	}
	if c.Scope == "" {
		c.Scope = issuer.DefaultScope
	}
	if c.IssuedAt.IsZero() {
		c.IssuedAt = time.Now()
	}
	if c.Expires.IsZero() {
		c.Expires = time.Now().Add(time.Hour)
	}
	token, err := s.Issuer.Token(c)
	if err != nil {
		panic(err) // the key pair is ours
	}
	return token
}

// Client is a client of the API that may do everything.
func (s *Stand) Client() (*client.Client, error) {
	return client.New(s.URL, func() (string, error) { return s.Token(issuer.Claims{}), nil }, client.Options{})
}

// Do sends a request with a token that may do everything and reads the answer.
func (s *Stand) Do(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, body)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.Token(issuer.Claims{}))
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, text, err
}

// TemporalClient is a client of the stand's Temporal.
func (s *Stand) TemporalClient() (temporalclient.Client, error) {
	return temporalclient.Dial(temporalclient.Options{HostPort: s.TemporalAddress, Logger: quiet{}})
}

// Database connects to the stand's database.
func (s *Stand) Database(ctx context.Context) (*pgxpool.Pool, error) {
	return pgxpool.New(ctx, s.DatabaseURL)
}

// await waits until usable returns nil, or the piece ends.
func (s *Stand) await(piece string, usable func() error) error {
	deadline := time.Now().Add(startLimit)
	for {
		err := usable()
		if err == nil {
			return nil
		}
		process := s.Process(piece)
		if process == nil {
			return fmt.Errorf("%s does not run", piece)
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%s ended: %w\n%s", piece, process.Err(), process.Tail(20))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s cannot be used after %s: %w", piece, startLimit, err)
		}
	}
}

func probe(url string) error {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}

func listens(port int) error {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// freePorts asks the system for ports that nobody listens on, all at once so
// that they differ.
func freePorts(names ...string) (map[string]int, error) {
	ports := map[string]int{}
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports[name] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// quiet is a logger of the Temporal SDK that says nothing.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
