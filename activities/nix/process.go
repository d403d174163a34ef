package nix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stderrHead and stderrTail are how much of the beginning and of the end
	// of a standard error is kept. Nix says what went wrong at the end, and
	// evaluate.nix that it began at the beginning.
	stderrHead = 16 << 10
	stderrTail = 64 << 10

	// termGrace is how long a build may take to end its builders after SIGTERM.
	termGrace = 5 * time.Second
	// evaluationNice is the priority of Nix, below that of everything that
	// answers requests.
	evaluationNice = 10
	// pipeGrace bounds the wait for output of a descendant that left the
	// process group and still holds our pipes.
	pipeGrace = 2 * time.Second
)

var (
	errTimeLimit   = errors.New("time limit reached")
	errOutputLimit = errors.New("output limit reached")
	errClosed      = errors.New("the evaluator is closed")
)

// launcher starts processes from one operating system thread of its own. That
// thread may have left the network of the machine, which its children inherit
// at no cost to each; and since the kernel ends the children when the thread
// that started them ends, the thread lives as long as the launcher.
type launcher struct {
	starts  chan start
	closed  chan struct{}
	closing sync.Once
	// isolated tells whether the children have no network.
	isolated bool
}

type start struct {
	cmd  *exec.Cmd
	done chan error
}

// newLauncher returns a running launcher. With offline, its children get a
// network namespace with nothing in it if we are allowed to make one.
func newLauncher(offline bool) *launcher {
	l := &launcher{starts: make(chan start), closed: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		// Never unlocked: the thread ends with this function, and no other
		// goroutine can come to run on it.
		runtime.LockOSThread()
		if offline {
			l.isolated = unix.Unshare(unix.CLONE_NEWNET) == nil
		}
		close(ready)
		for {
			select {
			case s := <-l.starts:
				s.done <- s.cmd.Start()
			case <-l.closed:
				return
			}
		}
	}()
	<-ready
	return l
}

func (l *launcher) start(cmd *exec.Cmd) error {
	s := start{cmd: cmd, done: make(chan error, 1)}
	select {
	case l.starts <- s:
		return <-s.done
	case <-l.closed:
		return errClosed
	}
}

// close ends the thread and, with it, what still runs.
func (l *launcher) close() { l.closing.Do(func() { close(l.closed) }) }

func (l *launcher) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// command is a process to run to its end.
type command struct {
	args []string // args[0] is the path of the program
	dir  string
	env  []string
	// timeout, memory (bytes of address space) and stdout (bytes) are limits;
	// 0 is none.
	timeout time.Duration
	memory  int64
	stdout  int64
	// graceful sends SIGTERM before SIGKILL, for builds: their builders are in
	// process groups of their own, and only Nix can end them.
	graceful bool
}

// output is what a process that ended by itself left.
type output struct {
	stdout []byte
	stderr string
	state  *os.ProcessState
}

// run runs the command to its end. The error is errTimeLimit or errOutputLimit
// at a limit, the context's when it is done, or says that the process could not
// be started; how a process that ended by itself exited is in the output. When
// run returns, the process group has no process left.
func (l *launcher) run(ctx context.Context, c command) (output, error) {
	if err := ctx.Err(); err != nil {
		return output{}, err
	}
	stdout := &limitedBuffer{limit: c.stdout, over: make(chan struct{})}
	stderr := &endsBuffer{}
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = pipeGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := l.start(cmd); err != nil {
		return output{}, fmt.Errorf("start %s: %w", c.args[0], err)
	}
	pid := cmd.Process.Pid

	exited := make(chan struct{})
	go func() {
		defer close(exited)
		// The process stays a zombie, so that its number, which is that of
		// its group, is nobody else's when the group is killed below.
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	}()

	stopped := limit(pid, c.memory)
	if stopped == nil {
		var timeout <-chan time.Time
		if c.timeout > 0 {
			timer := time.NewTimer(c.timeout)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-exited:
		case <-timeout:
			stopped = errTimeLimit
		case <-stdout.over:
			stopped = errOutputLimit
		case <-ctx.Done():
			stopped = ctx.Err()
		}
	}
	if stopped != nil && c.graceful {
		_ = unix.Kill(-pid, unix.SIGTERM)
		select {
		case <-exited:
		case <-time.After(termGrace):
		}
	}
	// The only error there can be is that none is left.
	_ = unix.Kill(-pid, unix.SIGKILL)
	<-exited
	err := cmd.Wait()
	if stopped == nil && stdout.full() {
		stopped = errOutputLimit
	}
	if stopped == nil && l.isClosed() {
		// The end of the launcher may have been the end of the process.
		stopped = errClosed
	}
	if stopped != nil {
		return output{}, stopped
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return output{}, fmt.Errorf("run %s: %w", c.args[0], err)
	}
	return output{stdout: stdout.bytes(), stderr: stderr.String(), state: cmd.ProcessState}, nil
}

// limit bounds the address space of a process that has just started, and keeps
// it from leaving a core behind. A process that is gone already needs neither.
func limit(pid int, memory int64) error {
	limits := map[int]uint64{unix.RLIMIT_CORE: 0}
	if memory > 0 {
		limits[unix.RLIMIT_AS] = uint64(memory)
	}
	for resource, value := range limits {
		err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: value, Max: value}, nil)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("limit process: %w", err)
		}
	}
	// An evaluation is all computing. Submits that go on without one must not
	// wait for the cores that it takes.
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, evaluationNice); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("limit process: %w", err)
	}
	return nil
}

// limitedBuffer keeps what is written to it up to the limit, and closes over
// when there is more. A writer may outlive its process (see pipeGrace), hence
// the locks here and below.
type limitedBuffer struct {
	limit int64
	over  chan struct{}

	mu     sync.Mutex
	buffer []byte
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.full():
	case b.limit > 0 && int64(len(b.buffer)+len(p)) > b.limit:
		close(b.over)
	default:
		b.buffer = append(b.buffer, p...)
	}
	return len(p), nil
}

func (b *limitedBuffer) full() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

func (b *limitedBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer
}

// endsBuffer keeps the beginning and the end of what is written to it.
type endsBuffer struct {
	mu         sync.Mutex
	head, tail []byte
	dropped    bool
}

func (b *endsBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(p)
	if room := stderrHead - len(b.head); room > 0 {
		room = min(room, len(p))
		b.head, p = append(b.head, p[:room]...), p[room:]
	}
	b.tail = append(b.tail, p...)
	// Cut at twice the size, so that each byte is moved once.
	if len(b.tail) > 2*stderrTail {
		b.cut()
	}
	return n, nil
}

func (b *endsBuffer) cut() {
	if extra := len(b.tail) - stderrTail; extra > 0 {
		b.tail = append(b.tail[:0], b.tail[extra:]...)
		b.dropped = true
	}
}

// String is what was kept, with a line of its own where something is missing.
func (b *endsBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut()
	if b.dropped {
		return string(b.head) + "\n…\n" + string(b.tail)
	}
	return string(b.head) + string(b.tail)
}
