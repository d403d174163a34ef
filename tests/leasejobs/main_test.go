package leasejobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/tests/kubestand"
	"slipway.dev/slipway/tests/stand"
)

// all is what the tests share.
var all struct {
	*stand.Stand
	kube *kubestand.Stand
}

func TestMain(m *testing.M) {
	// The tests mostly wait, so more of them run at once than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	var err error
	if all.kube, err = kubestand.New(); err != nil {
		fail(err)
		return code
	}
	defer func() { fail(all.kube.Close()) }()
	if all.Stand, err = stand.New(stand.Options{Kube: all.kube}); err != nil {
		fail(err)
		return code
	}
	defer func() { fail(all.Stand.Close()) }()
	if code = m.Run(); code != 0 {
		fmt.Fprintln(os.Stderr, all.Logs())
	}
	return code
}

// room is a namespace with a group, a database and who may deploy to it.
type room struct {
	t         testing.TB
	folder    string
	group     string // and namespace
	tokenFile string
	proxy     *proxy
}

func enter(t testing.TB) *room {
	t.Helper()
	r := &room{t: t, folder: t.TempDir(), group: all.kube.Namespace(t)}
	all.kube.Group(t, r.group, r.group)
	account := all.kube.ServiceAccount(t, r.group, "deploy")
	all.kube.Database(t, r.group, "orders-app", r.group, account)
	r.tokenFile = filepath.Join(r.folder, "token")
	r.writeToken(r.newToken())
	r.proxy = newProxy(t)
	return r
}

func (r *room) newToken() string {
	return all.kube.ServiceAccountToken(r.t, r.group, "deploy", kube.Audience)
}

func (r *room) writeToken(token string) {
	r.t.Helper()
	file := r.tokenFile + ".new"
	require.NoError(r.t, os.WriteFile(file, []byte(token), 0o600))
	require.NoError(r.t, os.Rename(file, r.tokenFile))
}

// path is a file of the room.
func (r *room) path(name string) string { return filepath.Join(r.folder, name) }

func (r *room) command(args ...string) *exec.Cmd {
	c := exec.Command(stand.Bin("slipway"), append([]string{"lease"}, args...)...)
	c.Dir = r.folder
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + r.folder, "SLIPWAY_LEASE_URL=https://" + r.proxy.address, "SLIPWAY_LEASE_CA_FILE=" + all.kube.Kube.File("lease-ca.crt"),
		"SLIPWAY_LEASE_TOKEN_FILE=" + r.tokenFile, "SLIPWAY_LEASE_GROUP=" + r.group, "SLIPWAY_LEASE_INSTANCE=orders-app", "SLIPWAY_LEASE_TTL=20s",
	}
	return c
}

// status is what slipway lease status prints as JSON.
func (r *room) status() lease.Observation {
	r.t.Helper()
	out, err := r.command("status", "-o", "json").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		require.NoError(r.t, err, "%s", failed.Stderr)
	}
	require.NoError(r.t, err)
	var o lease.Observation
	require.NoError(r.t, json.Unmarshal(out, &o))
	return o
}

// free waits until nobody has a lease.
func (r *room) free() {
	r.t.Helper()
	require.Empty(r.t, r.status().Leases)
}

// job is a `slipway lease run`.
type job struct {
	*exec.Cmd
	room     *room
	out, err buffer
	ended    chan struct{}
	code     int
	at       time.Time // when it ended
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// run starts slipway lease run with the flags and a shell script.
func (r *room) run(script string, flags ...string) *job {
	r.t.Helper()
	return r.runWith("", script, flags...)
}

func (r *room) runWith(stdin, script string, flags ...string) *job {
	r.t.Helper()
	j := &job{Cmd: r.command(append(append([]string{"run", "-v"}, flags...), "--", "sh", "-c", script)...), room: r, ended: make(chan struct{})}
	j.Stdin, j.Stdout, j.Stderr = strings.NewReader(stdin), &j.out, &j.err
	require.NoError(r.t, j.Start())
	go func() {
		defer close(j.ended)
		_ = j.Wait()
		j.code, j.at = j.ProcessState.ExitCode(), time.Now()
	}()
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("standard error of the run:\n%s", j.err.String())
		}
		_ = j.Process.Signal(syscall.SIGCONT)
		_ = j.Process.Kill()
		<-j.ended
	})
	return j
}

// is waits for the end, which has to be within the limit.
func (j *job) is(code int, limit time.Duration) {
	j.room.t.Helper()
	select {
	case <-j.ended:
	case <-time.After(limit):
		require.Fail(j.room.t, "the run has not ended", "within %s:\n%s", limit, j.err.String())
	}
	require.Equal(j.room.t, code, j.code, j.err.String())
}

func (j *job) says(text string) {
	j.room.t.Helper()
	require.Contains(j.room.t, j.err.String(), text)
}

// awaits waits until the run has said something.
func (j *job) awaits(text string) {
	j.room.t.Helper()
	j.room.await(soon, func() error {
		if !strings.Contains(j.err.String(), text) {
			return fmt.Errorf("the run has not said %q", text)
		}
		return nil
	})
}

// await polls until there is no error.
func (r *room) await(limit time.Duration, what func() error) {
	r.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := what()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			require.NoError(r.t, err)
		}
	}
}

// beats waits until a beat is there.
func (r *room) beats(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.await(30*time.Second, func() error { _, err := os.Stat(r.path(name)); return err })
	}
}

// last is when something beat last. It makes sure that this was the last time.
func (r *room) last(name string) time.Time {
	r.t.Helper()
	first, err := os.Stat(r.path(name))
	require.NoError(r.t, err)
	time.Sleep(300 * time.Millisecond)
	second, err := os.Stat(r.path(name))
	require.NoError(r.t, err)
	require.Equal(r.t, first.ModTime(), second.ModTime(), "%s still beats", name)
	return second.ModTime()
}

// beat is a script that beats for ever.
func beat(name string) string { return `while :; do echo >` + name + `; sleep 0.1; done` }

// beatTime is longer than a shell that beats takes to see a signal.
const beatTime = 500 * time.Millisecond

// stubborn beats, ignores SIGTERM, and has descendants that do so in groups and
// sessions of their own, without parents.
const stubborn = `trap '' TERM INT HUP
(setsid sh -c 'trap "" TERM; (setsid sh -c "while :; do echo >orphan; sleep 0.1; done" & ) ; while :; do echo >session; sleep 0.1; done' &)
while :; do echo >command; sleep 0.1; done`

// proxy is in front of the API.
type proxy struct {
	address string

	mu          sync.Mutex
	hanging     chan struct{} // closed to let go on
	connections map[net.Conn]bool
}

func newProxy(t testing.TB) *proxy {
	t.Helper()
	target, err := url.Parse(all.LeaseURL(stand.API))
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{address: listener.Addr().String(), connections: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = listener.Close()
		p.release()
		p.mu.Lock()
		defer p.mu.Unlock()
		for c := range p.connections {
			_ = c.Close()
		}
	})
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(from, target.Host)
		}
	}()
	return p
}

func (p *proxy) serve(from net.Conn, target string) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	p.mu.Lock()
	p.connections[from], p.connections[to] = true, true
	p.mu.Unlock()
	both := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			defer func() { both <- struct{}{} }()
			_, _ = io.Copy(writer{p, pair[1]}, pair[0])
		}()
	}
	<-both
}

// writer waits while the proxy hangs.
type writer struct {
	proxy *proxy
	io.Writer
}

func (w writer) Write(b []byte) (int, error) {
	w.proxy.mu.Lock()
	hanging := w.proxy.hanging
	w.proxy.mu.Unlock()
	if hanging != nil {
		<-hanging
	}
	return w.Writer.Write(b)
}

// hang accepts from now on and hands nothing on.
func (p *proxy) hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging = make(chan struct{})
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging != nil {
		close(p.hanging)
		p.hanging = nil
	}
}
