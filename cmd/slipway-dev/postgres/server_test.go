package postgres_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
	"slipway.dev/slipway/cmd/slipway-dev/postgres"
)

// running is a server that Run runs.
type running struct {
	url  string
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, folder string) *running {
	t.Helper()
	free, err := ports.Free(1)
	require.NoError(t, err)
	log, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{stop: cancel, done: make(chan error, 1)}
	urls := make(chan string, 1)
	go func() {
		r.done <- postgres.Run(ctx, postgres.Options{
			Folder: folder, Port: ports.Use{For: "PostgreSQL", Port: free[0]}, Output: log,
		}, func(url string) error {
			urls <- url
			return nil
		})
		close(r.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	select {
	case r.url = <-urls:
	case err := <-r.done:
		require.NoError(t, err, "PostgreSQL did not start")
	}
	return r
}

func (r *running) query(t *testing.T, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	connection, err := pgx.Connect(ctx, r.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close(ctx)) }()
	rows, err := connection.Query(ctx, sql)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(values, " ")
}

func TestDataSurvivesAStopAndAKill(t *testing.T) {
	t.Parallel()
	// Its parent is of mode 0700, so that as root the data is elsewhere.
	folder := filepath.Join(t.TempDir(), "postgres")
	t.Cleanup(func() { require.NoError(t, postgres.Remove(context.Background(), folder)) })

	first := start(t, folder)
	require.Equal(t, "slipway", first.query(t, `SELECT current_database()::text`))
	require.Equal(t, "on", first.query(t, `SHOW fsync`))
	first.query(t, `CREATE TABLE kept (n int)`)
	require.Equal(t, "1", first.query(t, `INSERT INTO kept VALUES (1) RETURNING n::text`))
	require.ErrorContains(t, postgres.Remove(context.Background(), folder), "a server runs on")
	first.stop()
	require.NoError(t, <-first.done)

	second := start(t, folder)
	require.Equal(t, "1", second.query(t, `SELECT n::text FROM kept`))
	pid, err := os.ReadFile(filepath.Join(folder, "cluster", "postmaster.pid"))
	require.NoError(t, err)
	postmaster, err := strconv.Atoi(strings.SplitN(string(pid), "\n", 2)[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(postmaster, syscall.SIGKILL))
	require.ErrorContains(t, <-second.done, "ended by itself: signal: killed")

	third := start(t, folder)
	require.Equal(t, "1", third.query(t, `SELECT n::text FROM kept`))
	third.stop()
	require.NoError(t, <-third.done)

	data, err := filepath.EvalSymlinks(filepath.Join(folder, "cluster"))
	require.NoError(t, err)
	require.NoError(t, postgres.Remove(context.Background(), folder))
	require.NoDirExists(t, folder)
	require.NoDirExists(t, data)
}

func TestAHalfMadeClusterIsMadeAnewAndATakenPortRefused(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	// Within reach of every user, so that the data is in the folder itself.
	require.NoError(t, os.Chmod(filepath.Dir(parent), 0o755))
	folder := filepath.Join(parent, "postgres")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "cluster.new", "base"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "password"), []byte("of the half-made one\n"), 0o600))

	r := start(t, folder)
	require.Equal(t, "slipway", r.query(t, `SELECT current_database()::text`))
	require.NotContains(t, r.url, "half-made")
	r.stop()
	require.NoError(t, <-r.done)
	info, err := os.Lstat(filepath.Join(folder, "cluster"))
	require.NoError(t, err)
	require.True(t, info.IsDir())
	require.NoDirExists(t, filepath.Join(folder, "cluster.new"))

	listener, err := net.Listen("tcp", ports.Address(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	err = postgres.Run(context.Background(), postgres.Options{
		Folder: folder, Port: ports.Use{For: "PostgreSQL", Port: listener.Addr().(*net.TCPAddr).Port, Choose: "--port"},
	}, func(string) error { return nil })
	require.ErrorContains(t, err, "for the PostgreSQL: cannot listen on it")
	require.ErrorContains(t, err, "choose another with --port")
}
