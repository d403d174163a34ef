package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/supervise"
)

// Options says what to run.
type Options struct {
	// Folder holds everything of this server; it is made where it is absent.
	Folder string
	// Port is what it listens on, on ports.Host. There is no Unix socket: its
	// path has a limit of 107 bytes, which a clone's folder may exceed.
	Port ports.Use
	// Output receives the log of PostgreSQL.
	Output *os.File
}

// The role and the database that a server has.
const (
	role     = "slipway"
	database = "slipway"
)

// hidden is where the data of a folder lives that the unprivileged user cannot
// reach.
const hidden = "/var/lib/slipway-dev"

// Limits of the steps. They are long: recovery after a crash, on a slow disk,
// is the slowest of them and must not be cut short.
const (
	startTime = 2 * time.Minute
	// A fast shutdown ends sessions and writes a checkpoint.
	fastTime = 10 * time.Second
	// An immediate one does neither.
	immediateTime = 5 * time.Second
)

// Run makes the cluster where it is absent, runs PostgreSQL on it and calls
// ready with the URL of the database once that accepts connections. It returns
// nil after ctx is done and PostgreSQL has stopped, and an error when it could
// not start or ended by itself.
func Run(ctx context.Context, options Options, ready func(url string) error) error {
	folder, err := filepath.Abs(options.Folder)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	unlock, err := supervise.Lock(folder)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer unlock()
	s := server{options: options, folder: folder}
	if err := s.run(ctx, ready); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// Remove deletes a folder and the data that lives elsewhere for it, and ends
// what is left of a server that was killed. It refuses while a server runs on
// the folder. An absent folder is no error.
func Remove(ctx context.Context, folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	unlock, err := supervise.Lock(folder)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer unlock()
	if cluster, err := filepath.EvalSymlinks(filepath.Join(folder, "cluster")); err == nil {
		if err := endLeftovers(ctx, cluster); err != nil {
			return fmt.Errorf("postgres: %w", err)
		}
	}
	if target, err := os.Readlink(filepath.Join(folder, "cluster")); err == nil && target == elsewhere(folder) {
		if err := os.RemoveAll(filepath.Dir(target)); err != nil {
			return fmt.Errorf("postgres: %w", err)
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

type server struct {
	options Options
	// folder is that of the options, absolute and without links.
	folder   string
	account  account
	cluster  string
	password string
}

func (s *server) run(ctx context.Context, ready func(url string) error) error {
	var err error
	if s.account, err = chooseAccount(); err != nil {
		return err
	}
	programs, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	// The kernel shows working folders without links.
	if s.cluster, err = filepath.EvalSymlinks(s.cluster); err != nil {
		return err
	}
	if err := endLeftovers(ctx, s.cluster); err != nil {
		return err
	}
	// Only now: what was left over may have listened on it.
	if err := ports.Check([]ports.Use{s.options.Port}); err != nil {
		return err
	}
	process, err := supervise.Start(supervise.Spec{
		Name: "PostgreSQL", Path: filepath.Join(programs.folder, "postgres"), Args: s.arguments(), Env: environment(),
		Dir: "/", Output: s.options.Output, Credential: s.account.credential,
		StopSignal: syscall.SIGINT, DeathSignal: syscall.SIGQUIT,
	})
	if err != nil {
		return err
	}
	defer s.stop(process)
	if err := s.open(ctx, process); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := ready(s.url(database)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-process.Done():
		return fmt.Errorf("ended by itself: %w", process.Ended())
	}
}

// stop ends PostgreSQL: fast, then immediately, then by force.
func (s *server) stop(process *supervise.Process) {
	process.Signal(syscall.SIGINT)
	select {
	case <-process.Done():
		return
	case <-time.After(fastTime):
	}
	process.Signal(syscall.SIGQUIT)
	process.Stop(immediateTime)
}

func (s *server) arguments() []string {
	return []string{
		"-D", s.cluster,
		"-c", "listen_addresses=" + ports.Host,
		"-c", "port=" + strconv.Itoa(s.options.Port.Port),
		"-c", "unix_socket_directories=",
		"-c", "max_connections=200",
		"-c", "logging_collector=off",
		"-c", "log_checkpoints=off",
	}
}

// environment is what PostgreSQL runs with: no variable of the caller, PGDATA
// and the like least of all. TZ is set so that the log does not depend on the
// machine.
func environment() []string {
	return []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

// prepare makes sure that there is a cluster and a password, and finds the
// binaries for it.
func (s *server) prepare(ctx context.Context) (binaries, error) {
	link := filepath.Join(s.folder, "cluster")
	cluster, err := filepath.EvalSymlinks(link)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.create(ctx, link)
	case err != nil:
		return binaries{}, err
	}
	s.cluster = cluster
	text, err := os.ReadFile(filepath.Join(s.folder, "password"))
	if err != nil {
		return binaries{}, fmt.Errorf("the cluster has no password: %w; wipe the data", err)
	}
	s.password = strings.TrimSpace(string(text))
	if closed, err := s.account.closed(cluster); err != nil {
		return binaries{}, err
	} else if closed != "" {
		return binaries{}, fmt.Errorf("%s may not enter %s; allow it (chmod o+x), or wipe the data to have it elsewhere", s.account.name, closed)
	}
	made, err := os.ReadFile(filepath.Join(cluster, "PG_VERSION"))
	if err != nil {
		return binaries{}, fmt.Errorf("%s is no data folder of PostgreSQL: %w", cluster, err)
	}
	return findBinaries(ctx, version(string(made)))
}

// create makes a cluster. Until its last step, the rename or the link, there is
// none; whatever an earlier attempt left is made anew.
func (s *server) create(ctx context.Context, link string) (binaries, error) {
	programs, err := findBinaries(ctx, 0)
	if err != nil {
		return binaries{}, err
	}
	password := make([]byte, 24)
	if _, err := rand.Read(password); err != nil {
		return binaries{}, err
	}
	s.password = hex.EncodeToString(password)
	if err := os.WriteFile(filepath.Join(s.folder, "password"), []byte(s.password+"\n"), 0o600); err != nil {
		return binaries{}, err
	}

	// Only a dangling link can be here, of data that was removed by hand.
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return binaries{}, err
	}
	s.cluster = link
	closed, err := s.account.closed(s.folder)
	if err != nil {
		return binaries{}, err
	}
	if closed != "" {
		s.cluster = elsewhere(s.folder)
		if err := os.MkdirAll(filepath.Dir(s.cluster), 0o755); err != nil {
			return binaries{}, fmt.Errorf("%s may not enter %s, and its data cannot be elsewhere: %w", s.account.name, closed, err)
		}
		if err := os.RemoveAll(s.cluster); err != nil {
			return binaries{}, err
		}
	}
	if err := s.initialise(ctx, programs); err != nil {
		return binaries{}, err
	}
	if s.cluster != link {
		return programs, os.Symlink(s.cluster, link)
	}
	return programs, nil
}

// elsewhere is the data folder of a folder that the unprivileged user cannot
// reach.
func elsewhere(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return filepath.Join(hidden, hex.EncodeToString(sum[:8]), "cluster")
}

// initialise runs initdb beside the cluster and renames the result.
func (s *server) initialise(ctx context.Context, programs binaries) error {
	next, secret := s.cluster+".new", s.cluster+".password"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if err := os.Mkdir(next, 0o700); err != nil {
		return err
	}
	defer func() { _ = os.Remove(secret) }()
	if err := os.WriteFile(secret, []byte(s.password+"\n"), 0o600); err != nil {
		return err
	}
	for _, path := range []string{next, secret} {
		if err := os.Chown(path, int(s.account.uid), int(s.account.gid)); err != nil {
			return err
		}
	}
	// The locale C sorts by bytes and exists everywhere.
	cmd := exec.CommandContext(ctx, filepath.Join(programs.folder, "initdb"),
		"--pgdata", next, "--username", role, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C")
	cmd.Env, cmd.Dir = environment(), "/"
	// A group of its own, so that Ctrl-C comes by way of ctx only.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account.credential, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return os.Rename(next, s.cluster)
}

func (s *server) url(name string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(role, s.password),
		Host: ports.Address(s.options.Port.Port), Path: "/" + name, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// open waits until the server accepts connections and makes the database where
// it is absent.
func (s *server) open(ctx context.Context, process *supervise.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("does not accept connections after %s", startTime))
	defer cancel()
	// Every try leaves a line in the log of PostgreSQL.
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		err := s.makeDatabase(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-process.Done():
			return fmt.Errorf("did not start: %w", process.Ended())
		case <-time.After(wait):
		}
	}
}

func (s *server) makeDatabase(ctx context.Context) error {
	connection, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	if err := connection.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, database).Scan(&exists); err != nil {
		return err
	}
	if exists {
		return nil
	}
	_, err = connection.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{database}.Sanitize())
	return err
}
