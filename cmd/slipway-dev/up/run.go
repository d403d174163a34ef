package up

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/supervise"
)

// Options says what to run.
type Options struct {
	// StateFolder holds everything (see the package).
	StateFolder string
	// Self is the program whose commands temporal, postgres, kube, bao and panel
	// are run.
	Self string
	// Slipway is the program slipway.
	Slipway string
	// TemporalConfig is the configuration file of Temporal.
	TemporalConfig string
	// Source is the module source: a folder, or what else SLIPWAY_SOURCE takes.
	Source string
	// Example is the file with the configuration to submit; empty submits none.
	Example string
	// The listeners.
	API, Metrics, Health, Temporal, UI, Postgres, Panel ports.Use
	// Kube is the Kubernetes API server, and with it the lease API; nil for
	// none.
	Kube *Kube
	// Bao is the secrets server; nil for none.
	Bao *Bao
	// Environ is the caller's environment.
	Environ []string
	// Reset removes the state of earlier runs first.
	Reset bool
	// Out receives what a person reads.
	Out *os.File
	// Ready is called once everything can be used; nil for a run in the
	// foreground, which also stays up when the example fails: its services are
	// fine, and the Web UI shows why.
	Ready func() error
}

// Kube says how to run the Kubernetes API server.
type Kube struct {
	// APIServer is the program kube-apiserver.
	APIServer string
	// Lease is the listener of slipway's lease API; the others are the server's.
	Lease, API, Etcd, EtcdPeer ports.Use
}

// Bao says how to run the secrets server.
type Bao struct {
	// Program is the server's program.
	Program string
	Listen  ports.Use
}

// deployment is the identifier that the example is submitted as.
const deployment = "example"

// Limits of the steps. They are generous: a first evaluation, on a slow
// machine, must not be mistaken for a failure.
const (
	startTime   = 3 * time.Minute
	commandTime = 2 * time.Minute
	// crashTime is how long what an earlier run left may hold its ports.
	crashTime = 10 * time.Second
)

// quietTime is how long a step may take before there is a line about it.
const quietTime = 2 * time.Second

// Run runs everything until ctx is done, then stops it and returns nil. It
// returns an error where a step fails or a child ends by itself, after it has
// stopped what it started. When kill is closed, children are killed instead of
// asked.
func Run(ctx context.Context, kill <-chan struct{}, o Options) error {
	s, err := openState(o.StateFolder)
	if err != nil {
		return err
	}
	if o, err = absolute(o); err != nil {
		return err
	}
	lock, err := s.lock()
	if err != nil {
		return err
	}
	proper := !lock.crashed
	defer func() { lock.release(proper) }()
	if err := checkPorts(ctx, o, lock.crashed); err != nil {
		return err
	}

	r := &run{Options: o, state: s, progress: progress{o.Out, quietTime}, begun: time.Now()}
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-kill:
			r.killAll()
		case <-finished:
		}
	}()
	err = r.run(ctx)
	proper = r.stopAll()
	var dead deadError
	switch {
	case errors.As(context.Cause(ctx), &dead):
		return dead
	case ctx.Err() != nil:
		fmt.Fprintln(o.Out, "stopped")
		return nil
	}
	return err
}

// absolute makes the paths independent of the working folder, and finds what is
// missing before anything is started.
func absolute(o Options) (Options, error) {
	files := []struct {
		path *string
		what string
	}{
		{&o.Slipway, "the program slipway (make build makes it)"},
		{&o.TemporalConfig, "the configuration of Temporal"},
		{&o.Source, "the module source"},
		{&o.Example, "the example configuration"},
	}
	if o.Kube != nil {
		// The caller's own is not changed.
		kube := *o.Kube
		o.Kube = &kube
		files = append(files, struct {
			path *string
			what string
		}{&kube.APIServer, "the program kube-apiserver (make kube-apiserver makes it)"})
	}
	for _, file := range files {
		// A source may be fetched from elsewhere.
		if *file.path == "" || strings.HasPrefix(*file.path, "git+") {
			continue
		}
		path, err := filepath.Abs(*file.path)
		if err != nil {
			return o, err
		}
		if _, err := os.Stat(path); err != nil {
			return o, fmt.Errorf("%s: %w; run from the top of the repository, or say where it is", file.what, err)
		}
		*file.path = path
	}
	return o, nil
}

func checkPorts(ctx context.Context, o Options, crashed bool) error {
	wanted := []ports.Use{o.API, o.Metrics, o.Health, o.Temporal, o.UI, o.Postgres, o.Panel}
	if o.Kube != nil {
		wanted = append(wanted, o.Kube.Lease, o.Kube.API, o.Kube.Etcd, o.Kube.EtcdPeer)
	}
	if o.Bao != nil {
		wanted = append(wanted, o.Bao.Listen)
	}
	deadline := time.Now().Add(crashTime)
	for {
		err := ports.Check(wanted)
		if err == nil || !crashed || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// run is one run of everything.
type run struct {
	Options
	progress
	state  state
	begun  time.Time
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	children []*supervise.Process
	// stopping is that no child is to be started, and that an end is expected.
	stopping bool
	killed   bool
}

// deadError is that a child ended by itself.
type deadError struct{ process *supervise.Process }

func (e deadError) Error() string {
	how := "exit code 0"
	if err := e.process.Err(); err != nil {
		how = err.Error()
	}
	return fmt.Sprintf("%s ended by itself (%s), so everything was stopped%s", e.process.Name, how, lastLines(e.process))
}

// lastLines is what a process wrote last, for the end of a message.
func lastLines(process *supervise.Process) string {
	tail := process.Tail(20)
	if tail == "" {
		return ""
	}
	return "; its last lines (" + process.Log() + "):\n    " + strings.ReplaceAll(strings.TrimSuffix(tail, "\n"), "\n", "\n    ")
}

func (r *run) run(ctx context.Context) error {
	fmt.Fprintf(r.Out, "slipway-dev: state in %s\n", string(r.state))
	if r.Reset {
		err := r.step(ctx, "state of earlier runs removed", func(ctx context.Context, _ *waitsFor) error { return r.state.reset(ctx) })
		if err != nil {
			return err
		}
	}
	if err := os.Remove(r.state.path("dev.env")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(r.state.path("profiles"), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(r.state.path("runtime"), 0o700); err != nil {
		return err
	}
	tokens, err := issuer.Open(r.state.path("issuer"))
	if err != nil {
		return err
	}
	databaseURL, err := r.startPostgres(ctx)
	if err != nil {
		return err
	}
	if err := r.startTemporal(ctx); err != nil {
		return err
	}
	if err := r.startKube(ctx); err != nil {
		return err
	}
	if err := r.startBao(ctx); err != nil {
		return err
	}
	if err := r.startPanel(ctx); err != nil {
		return err
	}
	environ, err := serverEnvironment(r.Options, r.state, databaseURL, tokens.JWKSFile)
	if err != nil {
		return err
	}
	if err := r.startSlipway(ctx, environ); err != nil {
		return err
	}
	now := time.Now()
	token, err := tokens.Token(issuer.Claims{
		Issuer: issuer.DefaultIssuer, Audience: issuer.DefaultAudience, Subject: issuer.DefaultSubject,
		Scope: issuer.DefaultScope, IssuedAt: now, Expires: now.Add(issuer.DefaultTTL),
	})
	if err != nil {
		return err
	}
	if err := writeDevEnv(r.Options, r.state, databaseURL, token); err != nil {
		return err
	}
	if err := r.example(ctx, clientEnvironment(r.Options, token)); err != nil {
		if ctx.Err() != nil || r.Ready != nil {
			return err
		}
		fmt.Fprintf(r.Out, "\n%v\nEverything else runs; fix the example and submit it again, or stop with Ctrl-C.\n", err)
	}
	r.summary(token, databaseURL)
	if r.Ready != nil {
		if err := r.Ready(); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (r *run) startPostgres(ctx context.Context) (databaseURL string, err error) {
	file := r.state.path("postgres/url")
	err = r.step(ctx, "PostgreSQL on "+ports.Address(r.Postgres.Port), func(ctx context.Context, _ *waitsFor) error {
		return r.startServer(ctx, "PostgreSQL", "postgres", file,
			"postgres", "--data-dir", r.state.path("postgres"), "--port", fmt.Sprint(r.Postgres.Port), "--url-file", file)
	})
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}

func (r *run) startTemporal(ctx context.Context) error {
	file := r.state.path("temporal/ready")
	name := fmt.Sprintf("Temporal on %s, Web UI on %s", ports.Address(r.Temporal.Port), ports.Address(r.UI.Port))
	return r.step(ctx, name, func(ctx context.Context, _ *waitsFor) error {
		return r.startServer(ctx, "Temporal", "temporal", file,
			"temporal", "--config", r.TemporalConfig, "--db", r.state.path("temporal/temporal.db"),
			"--port", fmt.Sprint(r.Temporal.Port), "--ui-port", fmt.Sprint(r.UI.Port), "--ready-file", file)
	})
}

func (r *run) startKube(ctx context.Context) error {
	if r.Kube == nil {
		return nil
	}
	file := r.state.path("kube/ready")
	return r.step(ctx, "Kubernetes API server on "+ports.Address(r.Kube.API.Port), func(ctx context.Context, _ *waitsFor) error {
		return r.startServer(ctx, "Kubernetes", "kube", file,
			"kube", "--data-dir", r.state.path("kube"), "--kube-apiserver-bin", r.Kube.APIServer,
			"--kube-port", fmt.Sprint(r.Kube.API.Port), "--etcd-port", fmt.Sprint(r.Kube.Etcd.Port),
			"--etcd-peer-port", fmt.Sprint(r.Kube.EtcdPeer.Port), "--ready-file", file)
	})
}

func (r *run) startBao(ctx context.Context) error {
	if r.Bao == nil {
		return nil
	}
	file := r.state.path("bao/ready")
	args := []string{
		"bao", "--data-dir", r.state.path("bao"), "--bao-bin", r.Bao.Program,
		"--bao-port", fmt.Sprint(r.Bao.Listen.Port), "--ready-file", file,
	}
	if r.Kube != nil {
		args = append(args, "--kubeconfig", r.state.path("kube/kubeconfig"))
	}
	return r.step(ctx, "secrets server on "+ports.Address(r.Bao.Listen.Port), func(ctx context.Context, _ *waitsFor) error {
		return r.startServer(ctx, "the secrets server", "bao", file, args...)
	})
}

// startPanel comes before slipway, which asks the panel for the keys of its
// tokens.
func (r *run) startPanel(ctx context.Context) error {
	file := r.state.path("panel/ready")
	return r.step(ctx, "example panel on "+ports.Address(r.Panel.Port), func(ctx context.Context, _ *waitsFor) error {
		return r.startServer(ctx, "the example panel", "panel", file,
			"panel", "--data-dir", r.state.path("panel"), "--panel-port", fmt.Sprint(r.Panel.Port),
			"--api-url", addressOf(r.API), "--ready-file", file)
	})
}

// startServer runs a command of this program that stays, and waits until it has
// written its ready file.
func (r *run) startServer(ctx context.Context, name, log, ready string, args ...string) error {
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := r.stay(name, log, r.Self, r.Environ, args...); err != nil {
		return err
	}
	return poll(ctx, startTime, func(context.Context) error {
		_, err := os.Stat(ready)
		return err
	})
}

func (r *run) startSlipway(ctx context.Context, environ []string) error {
	err := r.step(ctx, "database schema (slipway migrate)", func(ctx context.Context, _ *waitsFor) error {
		return r.finish(ctx, "slipway migrate", environ, "migrate")
	})
	if err != nil {
		return err
	}
	err = r.step(ctx, "search attributes (slipway temporal-setup)", func(ctx context.Context, _ *waitsFor) error {
		return r.finish(ctx, "slipway temporal-setup", environ, "temporal-setup")
	})
	if err != nil {
		return err
	}
	return r.step(ctx, "slipway on "+ports.Address(r.API.Port), func(ctx context.Context, waits *waitsFor) error {
		if err := r.stay("slipway", "slipway", r.Slipway, environ, "serve"); err != nil {
			return err
		}
		return poll(ctx, startTime, func(ctx context.Context) error { return askReady(ctx, addressOf(r.Health)+"/readyz", waits) })
	})
}

// stay starts a child that is to run until everything stops.
func (r *run) stay(name, log, path string, environ []string, args ...string) error {
	process, err := r.child(name, log, path, environ, args...)
	if err != nil {
		return err
	}
	go func() {
		<-process.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.stopping {
			r.cancel(deadError{process})
		}
	}()
	return nil
}

// finish runs a command of slipway to its end.
func (r *run) finish(ctx context.Context, name string, environ []string, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, fmt.Errorf("%s did not end within %s", name, commandTime))
	defer cancel()
	process, err := r.child(name, "slipway", r.Slipway, environ, args...)
	if err != nil {
		return err
	}
	if err := ended(ctx, process); err != nil {
		return fmt.Errorf("%s: %w%s", name, err, lastLines(process))
	}
	return nil
}

// ended waits for the end of a process, and stops it when ctx is done before.
func ended(ctx context.Context, process *supervise.Process) error {
	select {
	case <-process.Done():
		return process.Err()
	case <-ctx.Done():
		process.Stop(stopTime)
		return context.Cause(ctx)
	}
}

// child starts a child whose output goes to a log.
func (r *run) child(name, log, path string, environ []string, args ...string) (*supervise.Process, error) {
	output, err := supervise.OpenLog(r.state.log(log))
	if err != nil {
		return nil, err
	}
	// The child has its own.
	defer func() { _ = output.Close() }()
	return r.start(supervise.Spec{Name: name, Path: path, Args: args, Env: environ, Output: output})
}

func (r *run) start(spec supervise.Spec) (*supervise.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return nil, errors.New("stopping")
	}
	process, err := supervise.Start(spec)
	if err != nil {
		return nil, err
	}
	r.children = append(r.children, process)
	return process, nil
}

// stopTime is how long a child has to end by itself. It is longer than the
// longest of their own limits, that of the command kube.
const stopTime = 20 * time.Second

// stopAll stops the children, the last one first. It returns whether all of
// them stopped as they should.
func (r *run) stopAll() (proper bool) {
	proper = true
	r.mu.Lock()
	r.stopping = true
	children := slices.Clone(r.children)
	r.mu.Unlock()
	for _, process := range slices.Backward(children) {
		select {
		case <-process.Done():
			continue
		default:
		}
		began := time.Now()
		how := "stopped"
		if process.Stop(stopTime) {
			how = fmt.Sprintf("killed, it did not stop within %s", stopTime)
			proper = false
		}
		fmt.Fprintf(r.Out, "  %-58s %6.1f s\n", process.Name+" "+how, time.Since(began).Seconds())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return proper && !r.killed
}

// killAll kills the children at once; stopAll, which runs or will, sees them
// gone.
func (r *run) killAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping, r.killed = true, true
	for _, process := range r.children {
		process.Kill()
	}
}
