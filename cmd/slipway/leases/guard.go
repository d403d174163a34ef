package leases

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"slipway.dev/slipway/api/leaseclient"
)

// guard is the client's side of the watchdog.
type guard struct {
	process *exec.Cmd
	sending sync.Mutex
	orders  *json.Encoder
	// notices is closed when the watchdog has ended.
	notices    chan notice
	foreground bool
	pipe       *os.File
}

// startGuard starts the watchdog, which starts the command.
func startGuard(command, environment []string, ttl time.Duration, deadline leaseclient.Deadline) (*guard, error) {
	// For what the watchdog leaves behind when it is killed.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	ordersRead, ordersWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = ordersRead.Close() }()
	noticesRead, noticesWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe: %w", err), ordersWrite.Close())
	}
	defer func() { _ = noticesWrite.Close() }()

	g := &guard{
		process: exec.Command("/proc/self/exe", append([]string{"lease", watchdogName, "--"}, command...)...),
		orders:  json.NewEncoder(ordersWrite), notices: make(chan notice, 4), foreground: inForeground(), pipe: ordersWrite,
	}
	g.process.Env = environment
	g.process.Stdin, g.process.Stdout, g.process.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.process.ExtraFiles = []*os.File{ordersRead, noticesWrite}
	// Away from whoever ends our process group or session. Only within our
	// session the command can have our terminal.
	g.process.SysProcAttr = &syscall.SysProcAttr{Setsid: !g.foreground, Setpgid: g.foreground}
	if err := g.process.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the watchdog: %w", err), ordersWrite.Close(), noticesRead.Close())
	}
	if g.foreground {
		signal.Ignore(syscall.SIGTTOU) // we say how it goes from the background
	}
	g.send(order{Lead: leaseclient.Lead(ttl), Foreground: g.foreground, Deadline: &deadline})
	go func() {
		defer close(g.notices)
		defer func() { _ = noticesRead.Close() }()
		decoder := json.NewDecoder(noticesRead)
		for {
			var n notice
			if decoder.Decode(&n) != nil {
				return
			}
			g.notices <- n
		}
	}()
	return g, nil
}

// inForeground: standard input is a terminal, and we are in its foreground.
func inForeground() bool {
	const stdin = 0
	if !term.IsTerminal(stdin) {
		return false
	}
	group, err := unix.IoctlGetInt(stdin, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// send gives an order. A watchdog that has ended does not need it any more.
func (g *guard) send(o order) {
	g.sending.Lock()
	defer g.sending.Unlock()
	_ = g.orders.Encode(o)
}

// kill kills the watchdog, and so the command.
func (g *guard) kill() { _ = g.process.Process.Kill() }

// close waits for the end of the watchdog, ends what it left behind, and takes
// the terminal back. The error names what could not be ended.
func (g *guard) close() error {
	_ = g.process.Wait() // its notices said how it went
	err := sweep()
	if g.foreground {
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp()) // the terminal may be gone
	}
	return errors.Join(err, g.pipe.Close())
}

// sweep ends everything below this process, and gives up after some seconds.
func sweep() error {
	giveUp := time.Now().Add(5 * time.Second)
	for {
		for {
			if pid, err := syscall.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil); pid <= 0 || err != nil {
				break
			}
		}
		left := descendants()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(giveUp) {
			return fmt.Errorf("%d processes of the command cannot be ended", left.Living())
		}
		killAll(left, 0)
		time.Sleep(10 * time.Millisecond)
	}
}
