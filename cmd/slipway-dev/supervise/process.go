package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec says what to run.
type Spec struct {
	// Name is what messages call the child: "Temporal".
	Name string
	// Path is the executable, Args its arguments without the name.
	Path string
	Args []string
	// Env is its whole environment, as KEY=value.
	Env []string
	// Dir is its working folder; empty is the caller's.
	Dir string
	// Input is its standard input; nil is /dev/null.
	Input io.Reader
	// Output receives its standard output and error.
	Output *os.File
	// Credential is the user it runs as; nil is the caller's.
	Credential *syscall.Credential
	// StopSignal is what Stop sends; 0 is SIGTERM.
	StopSignal syscall.Signal
	// DeathSignal is what the child gets when the caller dies; 0 is SIGKILL.
	DeathSignal syscall.Signal
}

// Process is a child that was started.
type Process struct {
	// Name is the name in its Spec.
	Name string
	// PID is its process ID and that of its group.
	PID int

	stop syscall.Signal
	// log is the path of the output where that is a file, and start its size
	// before the child wrote to it.
	log   string
	start int64
	done  chan struct{}
	err   error
}

// Start starts a child.
func Start(spec Spec) (*Process, error) {
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env = spec.Env
	cmd.Dir = spec.Dir
	cmd.Stdin = spec.Input
	cmd.Stdout = spec.Output
	cmd.Stderr = spec.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true,
		Pdeathsig:  or(spec.DeathSignal, syscall.SIGKILL),
		Credential: spec.Credential,
	}
	p := &Process{Name: spec.Name, stop: or(spec.StopSignal, syscall.SIGTERM), done: make(chan struct{})}
	if spec.Output != nil {
		// Where Tail begins. What has no size (a terminal, a pipe) has no tail.
		if info, err := spec.Output.Stat(); err == nil && info.Mode().IsRegular() {
			p.log, p.start = spec.Output.Name(), info.Size()
		}
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.wait(cmd)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p.PID = cmd.Process.Pid
	return p, nil
}

func or(signal, fallback syscall.Signal) syscall.Signal {
	if signal == 0 {
		return fallback
	}
	return signal
}

func (p *Process) wait(cmd *exec.Cmd) {
	defer close(p.done)
	for {
		// WNOWAIT leaves the child unreaped, so that its group is still its own.
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	p.err = cmd.Wait()
}

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is nil when the child ended with exit code 0; it must not be called
// before Done is closed.
func (p *Process) Err() error { return p.err }

// Over reports whether the program has ended.
func (p *Process) Over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Ended is why a program ended that should not have: never nil. It may be
// called after Done.
func (p *Process) Ended() error {
	if err := p.Err(); err != nil {
		return err
	}
	return errors.New("exit code 0")
}

// Signal sends a signal to the child alone. A child that has ended is no
// error.
func (p *Process) Signal(signal syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(p.PID, signal)
	}
}

// Kill ends the child and its group at once.
func (p *Process) Kill() {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.PID, syscall.SIGKILL)
	}
}

// Stop asks the child to end, waits for it, and kills its group after a
// deadline. It returns when the child is gone, and says whether it had to be
// killed.
func (p *Process) Stop(deadline time.Duration) (killed bool) {
	p.Signal(p.stop)
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
	}
	p.Kill()
	<-p.done
	return true
}

// Log is the path of the file that the child writes to, or "".
func (p *Process) Log() string { return p.log }

// tailBytes is how far back Tail looks.
const tailBytes = 64 << 10

// Tail returns the last lines that the child wrote, at most n, each with its
// newline; lines of earlier runs in the same file do not count.
func (p *Process) Tail(n int) string {
	if p.log == "" {
		return ""
	}
	file, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from := max(p.start, info.Size()-tailBytes)
	content := make([]byte, max(0, info.Size()-from))
	read, err := file.ReadAt(content, from)
	if err != nil && err != io.EOF {
		return ""
	}
	lines := bytes.SplitAfter(bytes.TrimRight(content[:read], "\n"), []byte("\n"))
	lines = lines[max(0, len(lines)-n):]
	text := strings.ToValidUTF8(string(bytes.Join(lines, nil)), "\uFFFD")
	if text == "" {
		return ""
	}
	return text + "\n"
}

// maxLog is the size, in bytes, over which OpenLog begins a new file.
const maxLog = 16 << 20

// OpenLog opens a log file to append to, for the caller's user only: what
// programs print may be secret. A file that has grown over 16 MiB is
// first renamed to <path>.old, in place of the one before.
func OpenLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, fmt.Errorf("log file: %w", err)
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return file, nil
}
