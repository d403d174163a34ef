package leases

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/activities/deployer/processes"
	"slipway.dev/slipway/api/leaseclient"
)

const watchdogName = "watchdog"

// The file descriptors of the pipes, after standard error.
const (
	ordersFD  = 3
	noticesFD = 4
)

// order is what the client tells the watchdog, a line of JSON.
type order struct {
	// Lead is how long before the deadline the command is asked to end; with
	// the first order only.
	Lead time.Duration `json:"lead,omitempty"`
	// Foreground, with the first order: standard input is a terminal whose
	// foreground the command gets.
	Foreground bool `json:"foreground,omitempty"`
	// Deadline is a new one.
	Deadline *leaseclient.Deadline `json:"deadline,omitempty"`
	// Signal is passed on to the process group of the command.
	Signal syscall.Signal `json:"signal,omitempty"`
	// End: authority is lost.
	End bool `json:"end,omitempty"`
}

// notice is what the watchdog tells the client.
type notice struct {
	Started int         `json:"started,omitempty"` // process ID of the command
	Ending  ending      `json:"ending,omitempty"`
	Exit    *commandEnd `json:"exit,omitempty"` // the last notice: nothing is left
}

// ending is why the watchdog ends what runs.
type ending string

const (
	endingLost     ending = "lost"     // the client said so
	endingDeadline ending = "deadline" // it has come near
	endingClient   ending = "client"   // the client is gone
	endingLeft     ending = "left"     // the command ended and left processes behind
)

// commandEnd is how the command ended.
type commandEnd struct {
	Code int `json:"code"` // as a shell shows it
	// Ended: the watchdog had begun to end it before it ended.
	Ended bool `json:"ended,omitempty"`
	// NotStarted is why it could not be started.
	NotStarted string `json:"notStarted,omitempty"`
}

func watchdogCommand() *cobra.Command {
	return &cobra.Command{
		Use:    watchdogName,
		Short:  "Guard the command of lease run (started by it)",
		Hidden: true,
		RunE: func(_ *cobra.Command, command []string) error {
			// The command must not have them: they would stay open with it.
			unix.CloseOnExec(ordersFD)
			unix.CloseOnExec(noticesFD)
			w := &watchdog{notices: json.NewEncoder(os.NewFile(noticesFD, "notices"))}
			return w.run(os.NewFile(ordersFD, "orders"), command)
		},
	}
}

type watchdog struct {
	notices  *json.Encoder
	deadline leaseclient.Deadline
	lead     time.Duration
	tree     *tree
	exit     *commandEnd

	ending ending
	killAt time.Time
}

// beat is how often the watchdog looks at its clocks.
const beat = 50 * time.Millisecond

func (w *watchdog) run(from io.Reader, command []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	beats, err := heart()
	if err != nil {
		return err
	}
	orders := make(chan order)
	go func() {
		defer close(orders)
		decoder := json.NewDecoder(from)
		for {
			var o order
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	first := <-orders
	if first.Deadline == nil || len(command) == 0 {
		return errors.New("this command is started by slipway lease run")
	}
	w.deadline, w.lead = *first.Deadline, first.Lead
	if w.deadline.Left(leaseclient.Clock{}) <= w.lead {
		w.notify(notice{Exit: &commandEnd{Ended: true}})
		return nil
	}
	if len(processes.All()) == 0 {
		w.notify(notice{Exit: notStarted(errors.New("/proc cannot be read, and what the command starts could not be ended"))})
		return nil
	}
	if w.tree, err = plant(command, first.Foreground); err != nil {
		w.notify(notice{Exit: notStarted(err)})
		return nil
	}
	w.notify(notice{Started: w.tree.pid})
	for {
		select {
		case o, alive := <-orders:
			w.judge() // by what was known: no order comes after the deadline
			if !alive {
				orders = nil
				w.end(endingClient)
				continue
			}
			w.obey(o)
		case <-beats:
			w.judge()
		case status := <-w.tree.exited:
			w.exit = &commandEnd{Code: codeOf(status), Ended: w.ending != ""}
			if descendants().Living() > 0 {
				w.end(endingLeft)
			}
		case <-w.tree.gone:
			if w.exit == nil { // both were ready
				status := <-w.tree.exited
				w.exit = &commandEnd{Code: codeOf(status), Ended: w.ending != ""}
			}
			w.notify(notice{Exit: w.exit})
			return nil
		}
	}
}

func (w *watchdog) obey(o order) {
	switch {
	case o.Deadline != nil && w.ending == "":
		w.deadline = *o.Deadline
	case o.Signal != 0:
		_ = syscall.Kill(-w.tree.pid, o.Signal)
	case o.End:
		w.end(endingLost)
	}
}

// judge does what the clocks say.
func (w *watchdog) judge() {
	left := w.deadline.Left(leaseclient.Clock{})
	if w.ending == "" && left <= w.lead {
		w.end(endingDeadline)
	}
	if left <= leaseclient.KillLead || w.ending != "" && !time.Now().Before(w.killAt) {
		killAll(descendants(), w.tree.pid)
	}
}

// end asks everything to end, once; whoever has not after as much time as there
// would be before a deadline is killed.
func (w *watchdog) end(why ending) {
	if w.ending != "" {
		return
	}
	w.ending, w.killAt = why, time.Now().Add(w.lead-leaseclient.KillLead)
	signalAll(descendants(), syscall.SIGTERM, w.tree.pid)
	signalAll(descendants(), syscall.SIGCONT, w.tree.pid) // who is stopped cannot end
	w.notify(notice{Ending: why})
}

// notify tells the client, if there still is one.
func (w *watchdog) notify(n notice) { _ = w.notices.Encode(n) }

// heart beats by a timer that runs on while the machine sleeps, so that it
// beats at once when it wakes.
func heart() (<-chan struct{}, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	every := unix.NsecToTimespec(int64(beat))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return nil, fmt.Errorf("set a timer: %w", err)
	}
	timer, beats := os.NewFile(uintptr(fd), "timer"), make(chan struct{})
	go func() {
		for count := make([]byte, 8); ; {
			if _, err := timer.Read(count); err != nil {
				panic(err) // without it the command would outlive its deadline; this kills it
			}
			beats <- struct{}{}
		}
	}()
	return beats, nil
}

// tree is the command and everything below it.
type tree struct {
	pid    int                     // of the command, and of its group
	exited chan syscall.WaitStatus // how the command ended, once
	gone   chan struct{}           // closed when nothing of the tree is left
}

// plant starts the command. This process is a subreaper and has no other
// children.
func plant(command []string, foreground bool) (*tree, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, err
	}
	t := &tree{exited: make(chan syscall.WaitStatus, 1), gone: make(chan struct{})}
	attributes := &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		// The kernel kills the command when the thread that started it ends, so
		// when this process is killed.
		Sys: &syscall.SysProcAttr{Setpgid: true, Foreground: foreground, Pdeathsig: syscall.SIGKILL},
	}
	if foreground {
		// Whoever takes the foreground of a terminal from the background is
		// stopped otherwise. The command inherits it, which does little harm.
		signal.Ignore(syscall.SIGTTOU)
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for Pdeathsig, until all are gone
		defer runtime.UnlockOSThread()
		var err error
		t.pid, err = syscall.ForkExec(path, command, attributes)
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

// reap collects the dead until there is no child left. Whoever loses its parent
// becomes our child, so then nobody is left.
func (t *tree) reap() {
	defer close(t.gone)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, unix.WALL|unix.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD
			return
		case pid != t.pid:
		case status.Stopped():
			// Nobody's shell would let a suspended migration go on, and its
			// leases would be renewed for ever.
			if status.StopSignal() == syscall.SIGTSTP {
				_ = syscall.Kill(-t.pid, syscall.SIGCONT)
			}
		default:
			t.exited <- status
		}
	}
}

// notStarted is the exit of a command that could not be started.
func notStarted(err error) *commandEnd {
	code := exitNotRun
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		code = exitNotFound
	}
	return &commandEnd{Code: code, NotStarted: err.Error()}
}
