package temporalserver

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/schema/sqlite"
	"golang.org/x/sys/unix"

	// The server finds its database by the name of the plug-in.
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
)

// lock keeps the database file for this process.
func lock(database string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(database), 0o755); err != nil {
		return nil, err
	}
	path := database + ".lock"
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("a server runs on %s already", database)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}

// makeSchema creates a database file where it is absent. It has the tables of
// both stores, and each store uses its own.
func makeSchema(target *config.SQL) error {
	if _, err := os.Stat(target.DatabaseName); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next := *target
	next.DatabaseName = target.DatabaseName + ".new"
	// Without a write-ahead log the one file is all there is to rename. The
	// connection that the server's pool keeps of it is closed by its lifetime.
	next.ConnectAttributes = maps.Clone(target.ConnectAttributes)
	next.ConnectAttributes["journal_mode"] = "delete"
	next.MaxConnLifetime = time.Millisecond
	for _, path := range []string{next.DatabaseName, next.DatabaseName + "-journal"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := sqlite.SetupSchema(&next); err != nil {
		return err
	}
	return os.Rename(next.DatabaseName, target.DatabaseName)
}
