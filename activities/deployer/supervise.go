package deployer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/activities/deployer/processes"
	"slipway.dev/slipway/schema/deployment"
)

// preparation is what a supervisor is told at its start, as one JSON document
// on its standard input. It connects to the database then, and waits for the
// order, which may never come.
type preparation struct {
	Database string `json:"database"`
}

// order is what a supervisor is told to do, as the next JSON document. Lines
// follow, the wishes below, and the end of the input means that the worker is
// gone.
type order struct {
	Job deployment.Job `json:"job"`
	// Folder is the private working folder. The supervisor removes it.
	Folder      string            `json:"folder"`
	Environment map[string]string `json:"environment"`
	Limits      Limits            `json:"limits"`
}

// What a worker may wish of a supervisor: that the deployer ends because
// somebody cancelled the build, or because its workflow is lost.
const (
	wishCancel  = "cancel"
	wishAbandon = "abandon"
)

// report is a line of JSON that a supervisor writes to its standard output:
// started where it comes to that, then one of the others as the last.
type report struct {
	Event   event  `json:"event"`
	Code    int    `json:"code,omitempty"`    // of the staged exit
	Message string `json:"message,omitempty"` // of failed and unstaged
}

type event string

const (
	eventStarted    event = "started"     // the fence is acquired
	eventStaged     event = "staged"      // the exit is in the database
	eventUnstaged   event = "unstaged"    // it ended, and the exit could not be staged
	eventFenced     event = "fenced"      // nothing ran: deployment.ErrFenced
	eventAlreadyRan event = "already ran" // nothing ran: deployment.ErrAlreadyRan
	eventCancelled  event = "cancelled"   // nothing ran: cancelled, or the worker was lost
	eventFailed     event = "failed"      // nothing ran
)

// SupervisorMemory is the soft limit, in bytes, of the memory that the Go runtime
// of a supervisor uses: the largest SBOM, what reading it takes, and little more.
const SupervisorMemory = 140 << 20

// Open opens the database of a preparation. A database that is away is no
// error: it is tried again with each call of the Journal. close is called when
// the supervisor is done.
type Open func(ctx context.Context, database string) (journal Journal, close func(), err error)

// Supervise is the whole life of a supervisor process: it reads an order from
// in, runs the deployer, and writes reports to out. The process must have been
// started for it: it becomes a subreaper, closes what it inherited to its
// children, may have no other child and must not catch SIGTERM itself. It
// ignores SIGINT and SIGHUP, and treats SIGTERM and the end of ctx as a cancel.
//
// The error is nil when the worker was told by the last report how it ended.
func Supervise(ctx context.Context, in io.Reader, out io.Writer, open Open) error {
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	// Whatever the worker left open to us must not reach the deployer.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close descriptors on exec: %w", err)
	}
	debug.SetMemoryLimit(SupervisorMemory)
	w := listen(ctx)
	defer w.stop()

	decoder := json.NewDecoder(in)
	s := &supervisor{wishes: w, out: json.NewEncoder(out)}
	var prepare preparation
	if err := decoder.Decode(&prepare); err != nil {
		return fmt.Errorf("read what to prepare: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	journal, closeJournal, openErr := open(life, prepare.Database)
	if openErr == nil {
		defer closeJournal()
	}
	err = decoder.Decode(&s.order)
	if errors.Is(err, io.EOF) {
		return nil // a spare that was never needed
	}
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	if openErr != nil {
		return s.report(report{Event: eventFailed, Message: openErr.Error()})
	}
	lock, err := joinFolder(s.order.Folder)
	if err != nil {
		return s.report(report{Event: eventFailed, Message: err.Error()})
	}
	defer func() { _ = lock.Close() }()
	go w.read(io.MultiReader(decoder.Buffered(), in))
	return s.run(life, journal)
}

// wishes are what the world wants of a supervisor.
type wishes struct {
	cancel context.Context // ends when the deployer is to stop
	lost   context.Context // ends when the worker is gone

	// abandoned: nobody cancelled, but the workflow is lost.
	abandoned atomic.Bool

	setCancel, setLost context.CancelFunc
	signals            chan os.Signal
}

func listen(ctx context.Context) *wishes {
	w := &wishes{signals: make(chan os.Signal, 8)}
	w.cancel, w.setCancel = context.WithCancel(ctx)
	w.lost, w.setLost = context.WithCancel(context.WithoutCancel(ctx))
	// Caught, and not ignored: an ignored signal stays ignored in children.
	// SIGPIPE comes when a dead worker no longer reads reports.
	signal.Notify(w.signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	go func() {
		for s := range w.signals {
			if s == unix.SIGTERM {
				w.setCancel()
			}
		}
	}()
	return w
}

func (w *wishes) read(in io.Reader) {
	defer w.setLost()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch lines.Text() {
		case wishAbandon:
			w.abandoned.Store(true)
			w.setCancel()
		case wishCancel:
			w.setCancel()
		}
	}
}

// why says why the deployer is to stop.
func (w *wishes) why() string {
	if w.abandoned.Load() {
		return "the workflow was lost"
	}
	return "cancelled"
}

func (w *wishes) stop() {
	signal.Stop(w.signals)
	close(w.signals)
	w.setCancel()
	w.setLost()
}

type supervisor struct {
	order  order
	wishes *wishes
	fence  *fence
	log    *buildLog
	out    *json.Encoder
}

func (s *supervisor) report(r report) error {
	if err := s.out.Encode(r); err != nil {
		return fmt.Errorf("report %q: %w", r.Event, err)
	}
	return nil
}

func (s *supervisor) run(ctx context.Context, journal Journal) error {
	defer func() { _ = removeFolder(s.order.Folder) }()
	s.fence = newFence(journal, s.order.Job.Ref, s.order.Limits)
	logged, err := s.acquire()
	if err != nil {
		return s.report(report{Event: s.refusal(err), Message: err.Error()})
	}
	// Nobody reads it when the worker is gone: that is found elsewhere.
	_ = s.report(report{Event: eventStarted})
	go s.fence.keep(ctx)

	patient, impatient := context.WithCancel(ctx)
	defer impatient()
	context.AfterFunc(s.wishes.lost, func() { time.AfterFunc(s.order.Limits.StagePatience, impatient) })
	s.log = newLog(s.fence, logged, s.order.Limits.Log)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.log.send(patient)
	}()

	exit := s.deploy()
	if exit.Code == 0 && s.order.Job.Action == deployment.ActionDeploy {
		hurried, stop := context.WithCancel(patient)
		defer stop()
		context.AfterFunc(s.wishes.lost, func() { time.AfterFunc(s.order.Limits.StagePatience/2, stop) })
		s.stageSBOMs(hurried)
	}
	s.log.close()
	<-sent // the last line of the log comes before the end of the build
	if err := s.stage(patient, exit); err != nil {
		return s.report(report{Event: eventUnstaged, Message: err.Error()})
	}
	return s.report(report{Event: eventStaged, Code: exit.Code})
}

// acquire gets the fence, unless nobody wants that any more.
func (s *supervisor) acquire() (logged int64, err error) {
	wanted, stop := context.WithCancel(s.wishes.cancel)
	defer stop()
	context.AfterFunc(s.wishes.lost, stop)
	return s.fence.acquire(wanted)
}

// refusal is the event for an error of acquire.
func (s *supervisor) refusal(err error) event {
	switch {
	case errors.Is(err, deployment.ErrFenced):
		return eventFenced
	case errors.Is(err, deployment.ErrAlreadyRan):
		return eventAlreadyRan
	case s.unwanted():
		return eventCancelled
	}
	return eventFailed
}

func (s *supervisor) unwanted() bool {
	return s.wishes.cancel.Err() != nil || s.wishes.lost.Err() != nil
}

// stage tries until the exit is staged, or cannot be any more.
func (s *supervisor) stage(ctx context.Context, exit deployment.Exit) error {
	for {
		err := s.fence.call(ctx, func(ctx context.Context) error {
			return s.fence.journal.StageExit(ctx, s.fence.ref, s.fence.id, exit)
		})
		if err == nil {
			return nil
		}
		if errors.Is(err, deployment.ErrFenced) || pause(ctx, retryDelay) != nil {
			return fmt.Errorf("stage exit code %d of %s: %w", exit.Code, s.fence.ref, err)
		}
	}
}

// deploy runs the deployer to its end. When it returns, no process is left and
// all output is in the log.
func (s *supervisor) deploy() deployment.Exit {
	if s.order.Job.Nothing {
		s.log.note("nothing was ever deployed, so there is nothing to destroy")
		return deployment.Exit{}
	}
	if s.unwanted() {
		return s.exit(ending{status: syscall.WaitStatus(unix.SIGTERM), cancelled: s.wishes.cancel.Err() != nil, lost: true})
	}
	env, err := s.furnish()
	if err != nil {
		return notStarted(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return notStarted(err)
	}
	defer func() { _ = read.Close() }()
	t, err := plant(s.order.Job.Deployer, []string{string(s.order.Job.Action)}, env, s.order.Folder, write)
	_ = write.Close()
	if err != nil {
		return notStarted(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.drain(read, t.gone)
	}()
	e := s.await(t)
	<-drained
	return s.exit(e)
}

// furnish makes the contents of the working folder, and returns the
// environment of the deployer.
func (s *supervisor) furnish() ([]string, error) {
	job, folder := s.order.Job, s.order.Folder
	configuration, tmp, sbom := filepath.Join(folder, "configuration.json"), filepath.Join(folder, "tmp"), filepath.Join(folder, sbomFolder)
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
	maps.Copy(env, s.order.Environment)
	maps.Copy(env, map[string]string{
		"HOME":                  folder, // sweep knows processes by it
		"TMPDIR":                tmp,
		"SLIPWAY_DEPLOYMENT_ID": job.Ref.Deployment,
		"SLIPWAY_BUILD":         strconv.FormatInt(job.Ref.Build, 10),
		"SLIPWAY_CONFIGURATION": configuration,
		"SLIPWAY_SOURCE":        job.Snapshot,
		"SBOM_OUT_DIR":          sbom,
		"DEPLOY_SBOM_TIMEOUT":   strconv.Itoa(int(s.order.Limits.SBOM.Seconds())),
	})
	for _, err := range []error{
		os.Mkdir(tmp, 0o700),
		os.Mkdir(sbom, 0o700),
		os.WriteFile(configuration, job.Configuration, 0o600),
	} {
		if err != nil {
			return nil, err
		}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list, nil
}

// goneDelay is from the end of a deployer to when it is known that nothing of it
// is left.
const goneDelay = 5 * time.Millisecond

// ending is how a deployer came to its end.
type ending struct {
	status    syscall.WaitStatus
	cancelled bool  // a cancel came before
	lost      bool  // the worker was lost before
	fence     error // why the fence was lost before
}

// await waits for the end of the deployer, brings it about where it has to be,
// and ends what the deployer left running.
func (s *supervisor) await(t *tree) (e ending) {
	limits := s.order.Limits
	cancel, lost, fence := s.wishes.cancel.Done(), s.wishes.lost.Done(), s.fence.lost
	var deadline <-chan time.Time
	for {
		select {
		case e.status = <-t.exited:
			s.clear(t)
			return e
		case <-cancel:
			cancel, e.cancelled = nil, true
			s.log.note("%s: the deployer was asked to stop", s.wishes.why())
			t.terminate()
			deadline = time.After(limits.Grace)
		case <-lost:
			lost, e.lost = nil, true
			s.log.note("the worker was lost: the deployer was asked to stop")
			t.terminate()
			deadline = time.After(limits.Short)
		case <-deadline:
			s.log.note("the deployer did not stop in time and was killed")
			t.kill()
		case <-fence:
			fence, e.fence = nil, s.fence.err
			s.log.note("%s: the deployer was killed", e.fence)
			t.kill()
		}
	}
}

// clear ends what is left of a deployer that has ended.
func (s *supervisor) clear(t *tree) {
	// Of most deployers nothing is left, and that is known without a look at all
	// processes of the machine.
	select {
	case <-t.gone:
		return
	case <-time.After(goneDelay):
	}
	left := processes.Below(os.Getpid())
	if n := left.Living(); n > 0 && s.fence.held() {
		s.log.note("processes that the deployer left running are ended: %d", n)
		signalAll(left, syscall.SIGTERM)
		select {
		case <-t.gone:
		case <-s.fence.lost:
		case <-time.After(s.order.Limits.Short):
		}
	}
	t.kill()
}

// drain carries the output into the log until nobody can write any more. gone
// is closed when all processes of the deployer are gone. Somebody else can
// have the pipe even then, who got it through a socket; for that one it waits
// no longer.
func (s *supervisor) drain(output *os.File, gone <-chan struct{}) {
	const (
		patience = 100 * time.Millisecond
		rest     = 32 // reads, more than a pipe holds
	)
	l := &lines{limit: s.order.Limits.Line, emit: s.log.line}
	defer l.Close()
	go func() {
		<-gone
		_ = output.SetReadDeadline(time.Now()) // wakes the read below
	}()
	buffer := make([]byte, 64<<10)
	last := 0 // reads since
	for last < rest {
		n, err := output.Read(buffer)
		l.Write(buffer[:n])
		woken := errors.Is(err, os.ErrDeadlineExceeded) && last == 0
		if err != nil && !woken {
			return
		}
		if woken || last > 0 {
			last++
			_ = output.SetReadDeadline(time.Now().Add(patience))
		}
	}
}

// exit says what the end of a deployer means.
func (s *supervisor) exit(e ending) deployment.Exit {
	x := deployment.Exit{Code: exitCode(e.status)}
	switch {
	case x.Code == 0:
		return x
	case e.cancelled && s.wishes.abandoned.Load():
		x.Reason = "the deployer was ended because the workflow of the build was lost: it was terminated or reset"
		return x
	case e.cancelled:
		x.Reason, x.Cancelled = "cancelled", true
		return x
	case errors.Is(e.fence, errLapsed):
		x.Reason = fmt.Sprintf("the deployer was killed because the database could not be reached for %s", s.order.Limits.Lapse)
		return x
	case e.fence != nil:
		x.Reason = "the deployer was killed because the build was taken from its supervisor"
		return x
	case e.lost:
		x.Reason = "the worker that ran the deployer was lost"
		return x
	case e.status.Signaled():
		x.Reason = fmt.Sprintf("the deployer was ended by %s", unix.SignalName(e.status.Signal()))
	default:
		x.Reason = fmt.Sprintf("the deployer exited with %d", x.Code)
	}
	if quote := s.log.quote(); quote != "" {
		x.Reason += ": " + quote
	}
	return x
}
