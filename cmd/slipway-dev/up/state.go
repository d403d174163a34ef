package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/cmd/slipway-dev/postgres"
)

// state is a state folder, as an absolute path.
type state string

func openState(folder string) (state, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	for _, path := range []string{folder, filepath.Join(folder, "logs")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", fmt.Errorf("state folder: %w", err)
		}
	}
	return state(folder), nil
}

func (s state) path(name string) string { return filepath.Join(string(s), name) }

func (s state) log(name string) string { return filepath.Join(string(s), "logs", name+".log") }

// errRunning is why a folder cannot be locked.
type errRunning struct {
	folder state
	pid    int
}

func (e errRunning) Error() string {
	return fmt.Sprintf("already running in %s (process %d); slipway-dev down, or make dev-stop, stops it", string(e.folder), e.pid)
}

// held is a state folder that this process has locked.
type held struct {
	file *os.File
	// crashed is whether the run before did not end properly, so that some of
	// what it started may still be about to end.
	crashed bool
}

// lock locks the folder and writes down who holds it; the error is errRunning
// where another process does.
func (s state) lock() (*held, error) {
	file, pid, err := s.tryLock()
	if err != nil {
		return nil, err
	}
	if err := writePID(file, os.Getpid()); err != nil {
		_ = file.Close()
		return nil, err
	}
	return &held{file: file, crashed: pid != 0}, nil
}

// check is nil where no process holds the folder, and errRunning where one does.
func (s state) check() error {
	file, _, err := s.tryLock()
	if err != nil {
		return err
	}
	return file.Close()
}

// tryLock locks the lock file and returns the process ID in it: that of a run
// which did not end properly, or 0.
func (s state) tryLock() (*os.File, int, error) {
	file, err := os.OpenFile(s.path("dev.lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, fmt.Errorf("lock of the state folder: %w", err)
	}
	locked := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	pid, err := readPID(file)
	switch {
	case errors.Is(locked, unix.EWOULDBLOCK) && err == nil:
		err = errRunning{s, pid}
	case locked != nil:
		err = fmt.Errorf("lock of the state folder: %w", locked)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, pid, nil
}

// readPID is the process ID in a lock file, 0 for none.
func readPID(file *os.File) (int, error) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 32))
	if err != nil {
		return 0, fmt.Errorf("lock of the state folder: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, nil
	}
	return pid, nil
}

func writePID(file *os.File, pid int) error {
	if err := file.Truncate(0); err != nil {
		return fmt.Errorf("lock of the state folder: %w", err)
	}
	if _, err := file.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0); err != nil {
		return fmt.Errorf("lock of the state folder: %w", err)
	}
	return nil
}

// release unlocks; proper is whether nothing can be left of the run.
func (h *held) release(proper bool) {
	if proper {
		// Where this fails the next run only waits a little for the ports.
		_ = h.file.Truncate(0)
	}
	_ = h.file.Close()
}

// reset removes what a run leaves in the folder. The caller holds the lock.
func (s state) reset(ctx context.Context) error {
	if err := postgres.Remove(ctx, s.path("postgres")); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	for _, name := range []string{"temporal", "kube", "bao", "panel", "issuer", "slipway", "profiles", "runtime", "dev.env"} {
		if err := os.RemoveAll(s.path(name)); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	logs, err := os.ReadDir(s.path("logs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reset: %w", err)
	}
	for _, log := range logs {
		// A detached run is writing this one.
		if log.Name() == "dev.log" {
			continue
		}
		if err := os.Remove(filepath.Join(s.path("logs"), log.Name())); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return nil
}
