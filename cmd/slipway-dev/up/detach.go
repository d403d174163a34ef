package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/cmd/slipway-dev/supervise"
)

// ReadyFD is the file descriptor on which a detached run finds its pipe.
const ReadyFD = 3

// SignalReady tells the process that called Detach that everything can be used.
func SignalReady() error {
	pipe := os.NewFile(ReadyFD, "ready")
	if _, err := pipe.Write([]byte{1}); err != nil {
		return fmt.Errorf("signal ready: %w", err)
	}
	return pipe.Close()
}

// Detach starts a program in a session of its own, shows what it prints until
// it signals that it is ready, and returns nil then. It returns an error when
// the program ends before. When ctx is done before, it stops the program.
func Detach(ctx context.Context, stateFolder, path string, args []string, out io.Writer) error {
	s, err := openState(stateFolder)
	if err != nil {
		return err
	}
	// Known before, so that the message does not end up in the log of the other.
	if err := s.check(); err != nil {
		return err
	}
	log, err := supervise.OpenLog(s.log("dev"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	info, err := log.Stat()
	if err != nil {
		return err
	}
	shown, err := os.Open(s.log("dev"))
	if err != nil {
		return err
	}
	defer func() { _ = shown.Close() }()
	if _, err := shown.Seek(info.Size(), io.SeekStart); err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return err
	}

	ready := make(chan bool, 1)
	go func() {
		n, _ := read.Read(make([]byte, 1))
		ready <- n == 1
	}()
	stop := ctx.Done()
	show := func() {
		// A reader that went away does not change what is waited for.
		if _, err := io.Copy(out, shown); err != nil {
			out = io.Discard
		}
	}
	for {
		select {
		case ok := <-ready:
			if !ok {
				err = errors.Join(errors.New("it did not become ready (see above)"), cmd.Wait())
			}
			// All that it printed before it signalled, or ended, is in the log now.
			show()
			return err
		case <-stop:
			_ = cmd.Process.Signal(syscall.SIGTERM)
			stop = nil
		case <-time.After(100 * time.Millisecond):
			show()
		}
	}
}

// Limits of a stop: what Run needs at most for its six servers, and what it
// needs when it kills them.
const (
	downTime = 6*stopTime + 5*time.Second
	killTime = 10 * time.Second
)

// Down stops the run that holds a state folder, detached or not, and returns
// when it is gone. Where none runs it says so; that is no error.
func Down(ctx context.Context, stateFolder string, out io.Writer) error {
	s, err := openState(stateFolder)
	if err != nil {
		return err
	}
	p := progress{out, quietTime}
	var running errRunning
	err = s.check()
	switch {
	case err == nil:
		fmt.Fprintf(out, "slipway-dev: nothing runs in %s\n", string(s))
		return nil
	case !errors.As(err, &running):
		return err
	case running.pid == 0:
		return fmt.Errorf("slipway-dev in %s is starting or ending; try again", string(s))
	}
	return p.step(ctx, fmt.Sprintf("slipway-dev (process %d) stopped", running.pid), func(ctx context.Context, _ *waitsFor) error {
		for _, limit := range []time.Duration{downTime, killTime} {
			// The second signal makes it kill what it started.
			if err := unix.Kill(running.pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("stop process %d: %w", running.pid, err)
			}
			err = poll(ctx, limit, func(context.Context) error { return s.check() })
			if err == nil {
				return nil
			}
		}
		return err
	})
}
