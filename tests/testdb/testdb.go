// Package testdb gives tests databases of a real PostgreSQL, which it runs for
// as long as the test binary does. A test package calls Main from its TestMain
// and New in each test; every test gets a database of its own, so that tests
// run in parallel.
package testdb

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/postgres"
)

var (
	server string // URL of the server's first database
	count  atomic.Int64
)

// Main runs a server around the tests of a package.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "slipway-testdb-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = postgres.Remove(context.Background(), folder) }()
	port, err := freePort()
	if err != nil {
		return fail(err)
	}
	log, err := os.Create(filepath.Join(folder, "postgres.log"))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = log.Close() }()

	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- postgres.Run(ctx, postgres.Options{Folder: folder, Port: ports.Use{For: "PostgreSQL of the tests", Port: port}, Output: log},
			func(url string) error { ready <- url; return nil })
	}()
	defer func() {
		stop()
		<-ended
	}()
	select {
	case server = <-ready:
		return m.Run()
	case err := <-ended:
		ended <- nil
		return fail(err)
	}
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "testdb:", err)
	return 1
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Empty makes an empty database and returns its URL.
func Empty(t testing.TB) string {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	name := fmt.Sprintf("test_%d_%s", count.Add(1), strings.ToLower(strings.Map(letters, t.Name())))
	if len(name) > 60 {
		name = name[:60]
	}
	if _, err := conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func letters(r rune) rune {
	if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
		return r
	}
	return '_'
}

// New makes a database with the schema of slipway and opens a store on it.
func New(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), Empty(t), 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// Listener runs a listener on the store until the test ends.
func Listener(t testing.TB, s *store.Store) *store.Listener {
	t.Helper()
	l := s.Listener(zap.NewNop())
	go l.Run(t.Context())
	return l
}
