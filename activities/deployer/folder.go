package deployer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeFolder makes a private working folder below parent and locks it. The
// supervisor locks it too: the folder is in use until both are gone.
func makeFolder(parent, prefix string) (path string, lock *os.File, err error) {
	parent, err = filepath.Abs(parent) // the supervisor runs elsewhere
	if err != nil {
		return "", nil, fmt.Errorf("make the folder of working folders: %w", err)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", nil, fmt.Errorf("make the folder of working folders: %w", err)
	}
	// No Clean between making and locking.
	all, err := lockFolder(parent, unix.LOCK_SH)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = all.Close() }()
	path, err = os.MkdirTemp(parent, prefix+"-*")
	if err != nil {
		return "", nil, fmt.Errorf("make a working folder: %w", err)
	}
	lock, err = lockFolder(path, unix.LOCK_SH)
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(path))
	}
	return path, lock, nil
}

func lockFolder(path string, how int) (*os.File, error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(folder.Fd()), how)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return folder, nil
}

// joinFolder locks a working folder for its supervisor. It fails when another
// worker found the folder without anybody and cleans it.
func joinFolder(path string) (*os.File, error) {
	lock, err := lockFolder(path, unix.LOCK_SH|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// removeFolder removes a working folder, also where the deployer left folders
// in it that cannot be written (copies from a Nix store).
func removeFolder(path string) error {
	err := os.RemoveAll(path)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	walk := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(walk, os.RemoveAll(path))
}

// Clean ends the processes and removes the working folders that dead
// supervisors left below parent. Those of supervisors that live, of other
// workers on the machine too, stay. A worker calls it once at its start.
func Clean(parent string) error {
	all, err := lockFolder(parent, unix.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean the working folders: %w", err)
	}
	defer func() { _ = all.Close() }()
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("clean the working folders: %w", err)
	}
	var problems []error
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		path := filepath.Join(parent, entry.Name())
		lock, err := lockFolder(path, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		problems = append(problems, sweep(path), removeFolder(path))
		_ = lock.Close()
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("clean the working folders: %w", err)
	}
	return nil
}
