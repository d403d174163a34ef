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
		all := descendants(os.Getpid())
		all.signal(syscall.SIGSTOP)
		all.signal(syscall.SIGKILL)
		select {
		case <-t.gone:
			return
		case <-time.After(wait):
		}
	}
}

// process is a line of the process table.
type process struct {
	pid, parent, group int
	dead               bool // and not yet reaped
}

type processes []process

// signal sends a signal to the groups of the processes. Groups, because a
// process that forks and exits all the time is never where it was seen, but
// the kernel holds up forks while it signals a group. The deployer began a
// session, so no group of a descendant has a member that is none.
func (p processes) signal(signal syscall.Signal) {
	done := map[int]bool{0: true, 1: true, syscall.Getpgrp(): true}
	for _, one := range p {
		if !done[one.group] {
			done[one.group] = true
			_ = syscall.Kill(-one.group, signal)
		}
	}
}

// living is how many of the processes are not dead.
func (p processes) living() int {
	n := 0
	for _, one := range p {
		if !one.dead {
			n++
		}
	}
	return n
}

// descendants are the processes below those given.
func descendants(roots ...int) processes {
	children := map[int]processes{}
	for _, one := range table() {
		children[one.parent] = append(children[one.parent], one)
	}
	var found processes
	for _, root := range roots {
		found = append(found, children[root]...)
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// table reads the process table. Who comes or goes meanwhile may be missing.
func table() processes {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = folder.Close() }()
	names, _ := folder.Readdirnames(-1)
	var all processes
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid pgrp …, and the name can hold anything.
		one := process{pid: pid}
		var state string
		_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &one.parent, &one.group)
		if err != nil {
			continue
		}
		one.dead = state == "Z" || state == "X"
		all = append(all, one)
	}
	return all
}

// sweep ends the processes of a working folder whose supervisor is dead. They
// are known by their environment. It gives up after some seconds.
func sweep(folder string) error {
	mark := []byte("\x00HOME=" + folder + "\x00")
	deadline := time.Now().Add(5 * time.Second)
	for {
		var marked processes
		var pids []int
		for _, one := range table() {
			environment, err := os.ReadFile("/proc/" + strconv.Itoa(one.pid) + "/environ")
			if err == nil && bytes.Contains(append([]byte{0}, environment...), mark) {
				marked = append(marked, one)
				pids = append(pids, one.pid)
			}
		}
		if marked.living() == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of %s do not end", marked.living(), folder)
		}
		marked = append(marked, descendants(pids...)...)
		marked.signal(syscall.SIGSTOP)
		marked.signal(syscall.SIGKILL)
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
