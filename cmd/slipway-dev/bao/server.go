package bao

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/openbao/openbao/api/v2"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/supervise"
)

// Options says what to run.
type Options struct {
	// Folder holds everything of this server; it is made where it is absent.
	Folder string
	// Program is the server's (Find).
	Program string
	// Listen is what it listens on, on ports.Host.
	Listen ports.Use
	// Output receives its log.
	Output *os.File
}

// Limits of the steps.
const (
	startTime = time.Minute
	// stopTime is how long it has to end by itself.
	stopTime = 8 * time.Second
	// crashTime is how long what an earlier run left may hold its port.
	crashTime = 5 * time.Second
	// requestTime is how long one request to it may take.
	requestTime = 10 * time.Second
)

// Find is the program of a server: the one that is given, or else bao on the
// PATH, or else built (make kvserver builds it). It is an error where there is
// none.
func Find(given, built string) (string, error) {
	if given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return "", fmt.Errorf("the server program for secrets: %w", err)
		}
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath("bao"); err == nil {
		return filepath.Abs(path)
	}
	if _, err := os.Stat(built); err != nil {
		return "", fmt.Errorf("there is no server for secrets: install OpenBao (bao), set BAO_BIN, or run `make kvserver` (%w)", err)
	}
	return filepath.Abs(built)
}

// keys are what the server made when it was initialised.
type keys struct {
	Unseal string `json:"unseal"`
	Root   string `json:"root"`
}

// Server is a running server.
type Server struct {
	options Options
	folder  string
	keys    keys
	client  *api.Client
	unlock  func()

	mu      sync.Mutex
	process *supervise.Process
}

// Start starts a server on a folder and returns when it is unsealed. The caller
// closes it.
func Start(ctx context.Context, options Options) (*Server, error) {
	s, err := open(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("bao: %w", err)
	}
	if err := s.StartProcess(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func open(ctx context.Context, options Options) (*Server, error) {
	folder, err := filepath.Abs(options.Folder)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(folder, "data"), 0o700); err != nil {
		return nil, err
	}
	unlock, err := supervise.Lock(folder)
	if err != nil {
		return nil, err
	}
	s := &Server{options: options, folder: folder, unlock: unlock}
	if s.client, err = newClient(s.URL()); err == nil {
		err = errors.Join(s.readKeys(), s.configure(), s.freePort(ctx))
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return s, nil
}

func newClient(url string) (*api.Client, error) {
	config := api.NewConfig()
	config.Address, config.MaxRetries, config.Timeout = url, 0, requestTime
	return api.NewClient(config)
}

func (s *Server) readKeys() error {
	text, err := os.ReadFile(s.File("init.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s.keys); err != nil {
		return fmt.Errorf("read %s: %w", s.File("init.json"), err)
	}
	return nil
}

// configure writes the configuration: strings of HCL are quoted as those of
// JSON are.
func (s *Server) configure() error {
	quote := func(text string) string {
		quoted, _ := json.Marshal(text) // a string cannot fail
		return string(quoted)
	}
	text := fmt.Sprintf(`disable_mlock = true
api_addr      = %s

storage "file" {
  path = %s
}

listener "tcp" {
  address     = %s
  tls_disable = true
}
`, quote(s.URL()), quote(s.File("data")), quote(ports.Address(s.options.Listen.Port)))
	return write(s.File("server.hcl"), text)
}

func (s *Server) freePort(ctx context.Context) error {
	deadline := time.Now().Add(crashTime)
	for {
		err := ports.Check([]ports.Use{s.options.Listen})
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// write writes a file, whole or not at all, for its owner only.
func write(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// File is the path of a file in the folder (see the package).
func (s *Server) File(name string) string { return filepath.Join(s.folder, name) }

// URL is where the server is reached.
func (s *Server) URL() string { return "http://" + ports.Address(s.options.Listen.Port) }

// Root is a new client that may do everything.
func (s *Server) Root() (*api.Client, error) {
	client, err := newClient(s.URL())
	if err != nil {
		return nil, err
	}
	client.SetToken(s.keys.Root)
	return client, nil
}

// StartProcess starts the server where it does not run, on the same port and
// data, and returns when it is unsealed.
func (s *Server) StartProcess(ctx context.Context) error {
	s.mu.Lock()
	running := s.process
	s.mu.Unlock()
	if running != nil && !running.Over() {
		return errors.New("bao: the server runs already")
	}
	process, err := supervise.Start(supervise.Spec{
		Name: "the secrets server", Path: s.options.Program, Args: []string{"server", "-config=" + s.File("server.hcl"), "-log-level=warn"},
		Dir: s.folder, Output: s.options.Output,
		Env: []string{"PATH=/usr/bin:/bin", "HOME=" + s.folder, "GODEBUG=x509negativeserial=1"},
	})
	if err != nil {
		return fmt.Errorf("bao: %w", err)
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%s is not ready after %s", process.Name, startTime))
	defer cancel()
	err = s.await(ctx, func(ctx context.Context) error {
		_, err := s.client.Sys().SealStatusWithContext(ctx)
		return err
	})
	if err == nil {
		err = s.initialise(ctx)
	}
	if err == nil {
		err = s.unseal(ctx)
	}
	if err != nil {
		return fmt.Errorf("bao: %w", err)
	}
	return nil
}

func (s *Server) initialise(ctx context.Context) error {
	status, err := s.client.Sys().SealStatusWithContext(ctx)
	if err != nil {
		return err
	}
	if status.Initialized {
		if s.keys.Unseal == "" {
			return fmt.Errorf("%s has data and no keys for them: remove the folder", s.folder)
		}
		return nil
	}
	made, err := s.client.Sys().InitWithContext(ctx, &api.InitRequest{SecretShares: 1, SecretThreshold: 1})
	if err != nil {
		return fmt.Errorf("initialise: %w", err)
	}
	s.keys = keys{Unseal: made.KeysB64[0], Root: made.RootToken}
	text, err := json.Marshal(s.keys)
	if err != nil {
		return err
	}
	return write(s.File("init.json"), string(text)+"\n")
}

// Seal seals the server: it goes on running and serves nothing.
func (s *Server) Seal(ctx context.Context) error {
	root, err := s.Root()
	if err != nil {
		return err
	}
	if err := root.Sys().SealWithContext(ctx); err != nil {
		return fmt.Errorf("bao: seal: %w", err)
	}
	return nil
}

// Unseal unseals the server and returns when it serves.
func (s *Server) Unseal(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("not unsealed after %s", startTime))
	defer cancel()
	if err := s.unseal(ctx); err != nil {
		return fmt.Errorf("bao: %w", err)
	}
	return nil
}

func (s *Server) unseal(ctx context.Context) error {
	if _, err := s.client.Sys().UnsealWithContext(ctx, s.keys.Unseal); err != nil {
		return fmt.Errorf("unseal: %w", err)
	}
	return s.await(ctx, func(ctx context.Context) error {
		health, err := s.client.Sys().HealthWithContext(ctx)
		if err == nil && (health.Sealed || health.Standby || !health.Initialized) {
			err = errors.New("it is sealed or on standby")
		}
		return err
	})
}

// await tries usable until it succeeds, ctx is done or the process ends.
func (s *Server) await(ctx context.Context, usable func(ctx context.Context) error) error {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	for {
		err := usable(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-process.Done():
			return fmt.Errorf("%s did not start: %w\n%s", process.Name, process.Ended(), process.Tail(20))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Kill kills the server, as `kill -9` does, and returns when it is gone. The
// data stay.
func (s *Server) Kill() {
	if process := s.running(); process != nil {
		process.Kill()
		<-process.Done()
	}
}

func (s *Server) running() *supervise.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// PID is the process ID of the server that was started last.
func (s *Server) PID() int { return s.running().PID }

// Close stops the server and unlocks the folder. The data stay.
func (s *Server) Close() {
	if process := s.running(); process != nil {
		process.Stop(stopTime)
	}
	s.unlock()
}

// wait returns nil when ctx is done, and an error when the server ends before.
func (s *Server) wait(ctx context.Context) error {
	process := s.running()
	select {
	case <-ctx.Done():
		return nil
	case <-process.Done():
		return fmt.Errorf("%s ended by itself: %w", process.Name, process.Ended())
	}
}
