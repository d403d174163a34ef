// Package kvstand gives tests a real server for secrets: OpenBao where there is
// one (BAO_BIN, or bao on the PATH), else the one that `make kvserver` builds.
// Only the stand itself has its root token; tests work with tokens of the policy
// that slipway has in production. The tests of a package share one server, each
// in a mount of its own:
//
//	var secrets *kvstand.Stand
//
//	func TestMain(m *testing.M) { kvstand.Main(m, &secrets) }
//
// A test does not run without a server, it fails. One that seals or kills the
// server has one of its own (New), since that ends the others' requests too.
package kvstand

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/openbao/openbao/api/v2"

	"slipway.dev/slipway/cmd/slipway-dev/bao"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/schema/kvpolicy"
)

// limit is how long a helper may take.
const limit = time.Minute

// Stand is a running server. It may be used by parallel tests.
type Stand struct {
	// Bao is the server and its files.
	Bao *bao.Server
	// Program is its program.
	Program string

	folder string
	log    *os.File
	root   *api.Client
}

// Main runs a stand around the tests of a package, and ends the program.
func Main(m *testing.M, into **Stand) {
	os.Exit(run(m, into))
}

func run(m *testing.M, into **Stand) (code int) {
	s, err := New()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kvstand:", err)
		return 1
	}
	defer func() {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "kvstand:", err)
			code = 1
		}
	}()
	*into = s
	return m.Run()
}

// New starts a stand. Close it. It ends with the process at the latest.
func New() (*Stand, error) {
	folder, err := os.MkdirTemp(memory(), "slipway-kvstand-")
	if err != nil {
		return nil, err
	}
	s := &Stand{folder: folder}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// memory is a folder in memory, or "" where there is none.
func memory() string {
	const tmpfs = "/dev/shm"
	if probe, err := os.MkdirTemp(tmpfs, "slipway-kvstand-"); err != nil || os.Remove(probe) != nil {
		return ""
	}
	return tmpfs
}

func (s *Stand) start() error {
	_, file, _, _ := runtime.Caller(0)
	var err error
	if s.Program, err = bao.Find(os.Getenv("BAO_BIN"), filepath.Join(filepath.Dir(file), "..", "..", "bin", "kvserver")); err != nil {
		return err
	}
	free, err := ports.Free(1)
	if err != nil {
		return err
	}
	if s.log, err = os.Create(filepath.Join(s.folder, "log")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	s.Bao, err = bao.Start(ctx, bao.Options{
		Folder: filepath.Join(s.folder, "bao"), Program: s.Program, Output: s.log,
		Listen: ports.Use{For: "secrets server of the tests", Port: free[0]},
	})
	if err != nil {
		return err
	}
	if err := s.Bao.Setup(ctx, nil); err != nil {
		return err
	}
	s.root, err = s.Bao.Root()
	return err
}

// Close ends the stand and removes its data.
func (s *Stand) Close() error {
	if s.Bao != nil {
		s.Bao.Close()
	}
	var err error
	if s.log != nil {
		err = s.log.Close()
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// URL is where the server is reached.
func (s *Stand) URL() string { return s.Bao.URL() }

// Root is a client that may do everything, for what an operator does.
func (s *Stand) Root() *api.Client { return s.root }

// Mount is a KV engine that no other test has, and its policy.
type Mount struct {
	// Path is its path, without slashes at the ends.
	Path string
	// Policy is the name of slipway's policy for it.
	Policy string

	stand *Stand
}

// MountOptions say what a mount is like.
type MountOptions struct {
	// Version is that of the engine; 0 is 2.
	Version int
	// CASRequired and DeleteVersionAfter are settings of the whole mount.
	CASRequired        bool
	DeleteVersionAfter time.Duration
}

// Mount makes a mount. It stays until the stand ends.
func (s *Stand) Mount(t testing.TB, options ...MountOptions) Mount {
	t.Helper()
	var o MountOptions
	if len(options) > 0 {
		o = options[0]
	}
	if o.Version == 0 {
		o.Version = 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	path := "test-" + strings.ToLower(rand.Text()[:12])
	m := Mount{Path: path, Policy: path, stand: s}
	if err := bao.MountKV(ctx, s.root, path, o.Version); err != nil {
		t.Fatal(err)
	}
	if err := s.root.Sys().PutPolicyWithContext(ctx, m.Policy, kvpolicy.Policy(path, kvpolicy.Root)); err != nil {
		t.Fatal(err)
	}
	if o.CASRequired || o.DeleteVersionAfter > 0 {
		s.write(t, path+"/config", map[string]any{"cas_required": o.CASRequired, "delete_version_after": o.DeleteVersionAfter.String()})
	}
	return m
}

// Token makes a token that has slipway's rights on the mount and no others, and
// writes it to a file. It lasts an hour, or as long as is given.
func (m Mount) Token(t testing.TB, ttl ...time.Duration) (token, file string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	lasts := time.Hour
	if len(ttl) > 0 {
		lasts = ttl[0]
	}
	token, err := bao.Token(ctx, m.stand.root, bao.TokenOptions{Policies: []string{m.Policy}, TTL: lasts})
	if err != nil {
		t.Fatal(err)
	}
	return token, File(t, token)
}

// NodesToken makes a token with the rights of nodes on the mount, as Token does.
func (m Mount) NodesToken(t testing.TB) (token, file string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	name := m.Path + "-nodes"
	err := m.stand.root.Sys().PutPolicyWithContext(ctx, name, kvpolicy.NodePolicy(m.Path, kvpolicy.Root))
	if err == nil {
		token, err = bao.Token(ctx, m.stand.root, bao.TokenOptions{Policies: []string{name}, TTL: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	return token, File(t, token)
}

// AppRole makes an AppRole with slipway's rights on the mount, whose tokens last
// for ttl and at most for most, and writes its credentials to files.
func (m Mount) AppRole(t testing.TB, ttl, most time.Duration) (roleIDFile, secretIDFile string) {
	t.Helper()
	name := strings.ToLower(rand.Text()[:12])
	m.stand.write(t, "auth/approle/role/"+name, map[string]any{
		"token_policies": []string{m.Policy}, "token_no_default_policy": true, "token_ttl": ttl.String(), "token_max_ttl": most.String(),
	})
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	roleID, secretID, err := bao.AppRole(ctx, m.stand.root, name)
	if err != nil {
		t.Fatal(err)
	}
	return File(t, roleID), File(t, secretID)
}

// File writes a credential to a file of its own.
func File(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credential")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Entry is the path of an entry below an endpoint of the mount.
func (m Mount) Entry(endpoint, deployment, application, field string) string {
	return m.Path + "/" + endpoint + "/" + kvpolicy.Root + "/" + deployment + "/secret/" + application + "-operator-secrets/" + field
}

// Put writes an entry as an operator does by hand, with any keys.
func (m Mount) Put(t testing.TB, deployment, application, field string, data map[string]any, options ...map[string]any) {
	t.Helper()
	body := map[string]any{"data": data}
	if len(options) > 0 {
		body["options"] = options[0]
	}
	m.stand.write(t, m.Entry("data", deployment, application, field), body)
}

// Get is what the current version of an entry has; nil where it has none.
func (m Mount) Get(t testing.TB, deployment, application, field string) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	read, err := m.stand.root.Logical().ReadWithContext(ctx, m.Entry("data", deployment, application, field))
	if err != nil {
		t.Fatal(err)
	}
	if read == nil {
		return nil
	}
	data, _ := read.Data["data"].(map[string]any)
	return data
}

// Metadata is the metadata of an entry; nil where there is no entry.
func (m Mount) Metadata(t testing.TB, deployment, application, field string) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	read, err := m.stand.root.Logical().ReadWithContext(ctx, m.Entry("metadata", deployment, application, field))
	if err != nil {
		t.Fatal(err)
	}
	if read == nil {
		return nil
	}
	return read.Data
}

// Configure sets settings of one entry, such as delete_version_after, which there
// need not be yet.
func (m Mount) Configure(t testing.TB, deployment, application, field string, settings map[string]any) {
	t.Helper()
	m.stand.write(t, m.Entry("metadata", deployment, application, field), settings)
}

// SoftDelete deletes the current version of an entry, which can be undone.
func (m Mount) SoftDelete(t testing.TB, deployment, application, field string) {
	t.Helper()
	m.stand.delete(t, m.Entry("data", deployment, application, field))
}

// Destroy destroys versions of an entry.
func (m Mount) Destroy(t testing.TB, deployment, application, field string, versions ...int) {
	t.Helper()
	m.stand.write(t, m.Entry("destroy", deployment, application, field), map[string]any{"versions": versions})
}

// Remove deletes an entry with all versions and its metadata.
func (m Mount) Remove(t testing.TB, deployment, application, field string) {
	t.Helper()
	m.stand.delete(t, m.Entry("metadata", deployment, application, field))
}

// Revoke revokes a token.
func (s *Stand) Revoke(t testing.TB, token string) {
	t.Helper()
	s.write(t, "auth/token/revoke", map[string]any{"token": token})
}

func (s *Stand) write(t testing.TB, path string, data map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if _, err := s.root.Logical().WriteWithContext(ctx, path, data); err != nil {
		t.Fatal(err)
	}
}

func (s *Stand) delete(t testing.TB, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if _, err := s.root.Logical().DeleteWithContext(ctx, path); err != nil {
		t.Fatal(err)
	}
}

// Seal seals the server.
func (s *Stand) Seal(t testing.TB) {
	t.Helper()
	if err := s.Bao.Seal(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Unseal unseals it and returns when it serves.
func (s *Stand) Unseal(t testing.TB) {
	t.Helper()
	if err := s.Bao.Unseal(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Kill kills the server as `kill -9` does; the data stay.
func (s *Stand) Kill() { s.Bao.Kill() }

// Start starts a server that was killed, on the same port, and returns when it
// serves.
func (s *Stand) Start(t testing.TB) {
	t.Helper()
	if err := s.Bao.StartProcess(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Logs is the end of the server's log, for a test that failed.
func (s *Stand) Logs() string {
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "")
}
