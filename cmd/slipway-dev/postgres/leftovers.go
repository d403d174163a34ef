package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// settleTime is how long the processes of a server that was killed have to end
// by themselves. They notice the death of their postmaster within moments.
const settleTime = 10 * time.Second

// endLeftovers returns when no process of an earlier server works in a
// cluster, and its postmaster.pid is gone. The caller holds the lock of the
// folder, so nobody starts a new one meanwhile.
//
// Processes are found by their working folder, which is the cluster for the
// postmaster and for all its children. The process ID in postmaster.pid alone
// would not do: it may be another program's by now, and says nothing about the
// children, which would make PostgreSQL refuse to start.
func endLeftovers(ctx context.Context, cluster string) error {
	deadline := time.Now().Add(settleTime)
	for signal := syscall.SIGQUIT; ; {
		pids, err := workingIn(cluster)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			if signal == syscall.SIGKILL {
				return fmt.Errorf("processes of an earlier PostgreSQL do not end: %v", pids)
			}
			signal, deadline = syscall.SIGKILL, time.Now().Add(settleTime)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, signal)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := os.Remove(filepath.Join(cluster, "postmaster.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stale lock file of PostgreSQL: %w", err)
	}
	return nil
}

// workingIn returns the processes named postgres whose working folder is the
// given one, an absolute path without links.
func workingIn(folder string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Processes of others cannot be read, and end meanwhile: not ours.
		if cwd, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd")); err != nil || cwd != folder {
			continue
		}
		// A person's shell may stand in the folder.
		if comm, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "comm")); err == nil && string(comm) == "postgres\n" {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
