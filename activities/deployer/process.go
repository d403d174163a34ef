package deployer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/activities/deployer/processes"
	"slipway.dev/slipway/schema/deployment"
)

// tree is the deployer and everything below it.
type tree struct {
	pid    int                     // of the deployer, its group and its session
	exited chan syscall.WaitStatus // how the deployer ended, once
	gone   chan struct{}           // closed when no process of the tree is left
}

// plant starts the deployer. This process must be a subreaper, and must have
// no other children.
func plant(path string, args, env []string, dir string, output *os.File) (*tree, error) {
	input, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer func() { _ = input.Close() }()
	t := &tree{exited: make(chan syscall.WaitStatus, 1), gone: make(chan struct{})}
	attributes := &syscall.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: []uintptr{input.Fd(), output.Fd(), output.Fd()},
		// The kernel kills the deployer when the thread that started it ends,
		// so when this process is killed.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for Pdeathsig, until all are gone
		defer runtime.UnlockOSThread()
		pid, err := syscall.ForkExec(path, append([]string{path}, args...), attributes)
		t.pid = pid
		started <- err
		if err == nil {
			t.reap()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return t, nil
}

// reap collects the dead until there is no child left. Whoever loses its
// parent becomes our child, so then nobody is left.
func (t *tree) reap() {
	defer close(t.gone)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD
			return
		case pid == t.pid:
			t.exited <- status
		}
	}
}

// terminate asks the group of the deployer to end.
func (t *tree) terminate() { _ = syscall.Kill(-t.pid, syscall.SIGTERM) }

// kill ends everything, and returns when nothing is left.
func (t *tree) kill() {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		// Stopped first, so that nobody sees the end of another and acts on it.
		all := processes.Below(os.Getpid())
		signalAll(all, syscall.SIGSTOP)
		signalAll(all, syscall.SIGKILL)
		select {
		case <-t.gone:
			return
		case <-time.After(wait):
		}
	}
}

// signalAll sends a signal to the groups of processes. Groups, because a process
// that forks and exits all the time is never where it was seen, but the kernel
// holds up forks while it signals a group. The deployer began a session, so no
// group of a descendant has a member that is none.
func signalAll(all processes.Table, signal syscall.Signal) {
	done := map[int]bool{0: true, 1: true, syscall.Getpgrp(): true}
	for _, one := range all {
		if !done[one.Group] {
			done[one.Group] = true
			_ = syscall.Kill(-one.Group, signal)
		}
	}
}

// sweep ends the processes of a working folder whose supervisor is dead. They
// are known by their environment. It gives up after some seconds.
func sweep(folder string) error {
	mark := []byte("\x00HOME=" + folder + "\x00")
	deadline := time.Now().Add(5 * time.Second)
	for {
		var marked processes.Table
		var pids []int
		for _, one := range processes.All() {
			environment, err := os.ReadFile("/proc/" + strconv.Itoa(one.PID) + "/environ")
			if err == nil && bytes.Contains(append([]byte{0}, environment...), mark) {
				marked = append(marked, one)
				pids = append(pids, one.PID)
			}
		}
		if marked.Living() == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of %s do not end", marked.Living(), folder)
		}
		marked = append(marked, processes.Below(pids...)...)
		signalAll(marked, syscall.SIGSTOP)
		signalAll(marked, syscall.SIGKILL)
		time.Sleep(10 * time.Millisecond)
	}
}

// exitCode is the code that a shell would show.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// notStarted is the exit of a deployer that could not be started, with the
// codes of a shell.
func notStarted(err error) deployment.Exit {
	code := 126
	if errors.Is(err, os.ErrNotExist) {
		code = 127
	}
	var errno syscall.Errno
	text := err.Error()
	if errors.As(err, &errno) {
		text = strings.ToLower(errno.Error()) // no paths
	}
	return deployment.Exit{Code: code, Reason: "the deployer cannot be started: " + text}
}
