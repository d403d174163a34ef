package leases

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is a pseudoterminal with a program on it.
type terminal struct {
	t      *testing.T
	master *os.File
	shown  chan string
	all    string
}

// onTerminal starts a shell script, as the leader of a session with a terminal.
func onTerminal(t *testing.T, c *exec.Cmd) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = master.Close() })
	control, err := master.SyscallConn()
	require.NoError(t, err)
	var number int
	var failed error
	require.NoError(t, control.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, failed)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, c.Start())
	require.NoError(t, slave.Close())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	term := &terminal{t: t, master: master, shown: make(chan string, 100)}
	go func() {
		defer close(term.shown)
		for buffer := make([]byte, 4096); ; {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			term.shown <- string(buffer[:n])
		}
	}()
	return term
}

// shows waits until the text was shown.
func (t *terminal) shows(text string) {
	t.t.Helper()
	late := time.After(20 * time.Second)
	for !strings.Contains(t.all, text) {
		select {
		case more, open := <-t.shown:
			t.all += more
			if !open {
				require.Contains(t.t, t.all, text)
			}
		case <-late:
			require.Fail(t.t, "not shown", "%q is not in %q", text, t.all)
		}
	}
}

func (t *terminal) types(keys string) {
	t.t.Helper()
	_, err := t.master.WriteString(keys)
	require.NoError(t.t, err)
}

func TestACommandHasTheTerminal(t *testing.T) {
	const ask = `"$SELF" run -- sh -c 'read x; echo got "$x"'; read y; echo then "$y"`
	const interrupted = `"$SELF" run -- sh -c 'trap "echo caught; exit 4" INT; echo ready; while :; do sleep 0.1; done'; echo code $?`
	const suspended = `"$SELF" run -- sh -c 'echo ready; read x; echo got "$x"'`
	for name, test := range map[string]struct {
		script string
		dialog []string // keys, then what they show
	}{
		"reads, and gives it back":  {ask, []string{"hello\n", "got hello", "again\n", "then again"}},
		"Ctrl-C is the command's":   {interrupted, []string{"", "ready", "\x03", "code 4"}},
		"Ctrl-Z does not stop":      {suspended, []string{"", "ready", "\x1a", "^Z", "on\n", "got on"}},
		"background: no foreground": {`"$SELF" run -- sh -c 'echo works' </dev/null & wait; read y; echo then "$y"`, []string{"", "works", "x\n", "then x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			c := a.command()
			c.Path, c.Args = "/bin/sh", []string{"sh", "-c", test.script}
			self, err := os.Executable()
			require.NoError(t, err)
			c.Env = append(c.Env, "SELF="+self)
			term := onTerminal(t, c)
			for i := 0; i < len(test.dialog); i += 2 {
				term.types(test.dialog[i])
				term.shows(test.dialog[i+1])
			}
		})
	}
}
