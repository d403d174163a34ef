package deployer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// keepTime bounds the making of a GC root. It has to wait while a garbage
// collection runs.
const keepTime = time.Minute

// Jobs reads what a build runs. A destroy runs what the newest deploy that
// started ran.
type Jobs interface {
	// Job is deployment.ErrUnknown where there is no such build.
	Job(ctx context.Context, ref deployment.Ref) (deployment.Job, error)
	// CancelRequested reports whether somebody cancelled the build.
	CancelRequested(ctx context.Context, ref deployment.Ref) (bool, error)
}

// Roots keeps store paths from the garbage collector, under names of the form
// <deployment>-<build>.
type Roots interface {
	// Keep keeps the paths, or the store paths that they lie in, under name as
	// well as what is there already.
	Keep(ctx context.Context, name string, paths ...string) error
	// Names lists the names that keep something.
	Names(ctx context.Context) ([]string, error)
	// Drop keeps nothing under name any more. An unknown name is no error.
	Drop(ctx context.Context, name string) error
}

// Activities runs deployers. Its methods are activities of the queue
// wire.QueueDeploy.
type Activities struct {
	Jobs   Jobs
	Roots  Roots
	Server Server
	// Folder is where private working folders are made. See Clean.
	Folder string
	// Supervisors is where the supervisor of a deployer comes from.
	Supervisors *Supervisors
	// Environment is what a deployer finds in its environment besides what the
	// contract of module sources names; PATH and LANG can be set here too.
	Environment map[string]string
	Limits      Limits

	// Running counts the activities that run. A worker that stops waits for
	// it after the worker of the SDK has stopped, so that exits are staged
	// before it, or the database beside it, ends.
	Running sync.WaitGroup
}

// Deploy runs `<deployer> deploy` for a build that has its turn. It returns nil
// when the exit of the deployer is staged, however it ended, and the error of
// ctx when it was cancelled meanwhile. Application errors that are final:
// wire.ErrorFenceHeld while another deployer may run, wire.ErrorAlreadyRan, and
// wire.ErrorNotItsBuild. After any other error it may be tried again.
func (a *Activities) Deploy(ctx context.Context, ref deployment.Ref) error {
	return a.run(ctx, ref, deployment.ActionDeploy)
}

// Destroy is Deploy for `<deployer> destroy`, which may run several times for a
// build: it is wire.ErrorAlreadyRan only where the Journal has an exit already.
func (a *Activities) Destroy(ctx context.Context, ref deployment.Ref) error {
	return a.run(ctx, ref, deployment.ActionDestroy)
}

func (a *Activities) run(ctx context.Context, ref deployment.Ref, action deployment.Action) error {
	a.Running.Add(1)
	defer a.Running.Done()
	// Also while a deployer that was cancelled takes its time.
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go a.beat(beating, ref)
	job, err := a.job(ctx, ref)
	if (err == nil || errors.Is(err, deployment.ErrUnknown)) && job.WorkflowID != activity.GetInfo(ctx).WorkflowExecution.ID {
		return temporal.NewNonRetryableApplicationError("the database has no such build of this workflow", wire.ErrorNotItsBuild, err)
	}
	if err != nil {
		return fmt.Errorf("read what build %s runs: %w", ref, err)
	}
	if job.Action != action {
		return temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("build %s is a %s, not a %s", ref, job.Action, action), "WrongAction", nil)
	}
	folder, lock, err := makeFolder(a.Folder, rootName(ref))
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	var keeping sync.WaitGroup
	started := func() {
		if !job.Nothing {
			a.Running.Add(1)
			keeping.Go(func() { a.keep(ctx, job) })
		}
	}
	last, err := a.supervise(ctx, started, order{
		Job: job, Folder: folder, Environment: a.Environment, Limits: a.Limits,
	})
	if err != nil {
		// It was killed, or never started. Nothing may go on without it. Its fence
		// stands for a while, which only a destroy has to wait for.
		var options temporal.ApplicationErrorOptions
		if action == deployment.ActionDestroy {
			options.NextRetryDelay = deployment.FenceLife + time.Second
		}
		err = temporal.NewApplicationErrorWithOptions(errors.Join(err, sweep(folder)).Error(), wire.ErrorSupervisorLost, options)
	}
	if err := removeFolder(folder); err != nil {
		activity.GetLogger(ctx).Error("A working folder is left.", "Folder", folder, "Error", err)
	}
	if err != nil {
		return err
	}
	if last.Event == eventStaged && action == deployment.ActionDestroy && last.Code == 0 {
		keeping.Wait()
		a.dropRoots(ctx, ref.Deployment, ref.Build)
	}
	return a.conclude(ctx, job, last)
}

// keep makes the GC root of a build that has started and drops those of the
// builds before. It happens beside the deployer, which it would hold up for
// longer than a small deploy takes: the root of the snapshot itself holds
// until then. A cancelled build needs it too.
func (a *Activities) keep(ctx context.Context, job deployment.Job) {
	defer a.Running.Done()
	keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	if err := a.Roots.Keep(keeping, rootName(job.Ref), job.Snapshot, job.Deployer); err != nil {
		activity.GetLogger(ctx).Error("The deployer has no GC root of its own.", "Build", job.Ref.String(), "Error", err)
		return
	}
	a.dropRoots(ctx, job.Ref.Deployment, job.Ref.Build-1)
}

// job reads what a build runs. A deploy has few tries, which a database that is
// away for a moment must not cost it: nothing has run yet.
func (a *Activities) job(ctx context.Context, ref deployment.Ref) (deployment.Job, error) {
	deadline := time.Now().Add(a.Limits.Acquire)
	for {
		job, err := a.Jobs.Job(ctx, ref)
		if err == nil || errors.Is(err, deployment.ErrUnknown) || time.Now().After(deadline) {
			return job, err
		}
		if pause(ctx, heartbeat) != nil {
			return job, err
		}
	}
}

// conclude says what the last report of a supervisor means for the activity.
func (a *Activities) conclude(ctx context.Context, job deployment.Job, last report) error {
	switch last.Event {
	case eventStaged:
		if stopping(ctx) {
			return nil
		}
		return ctx.Err()
	case eventFenced:
		return temporal.NewNonRetryableApplicationError(last.Message, wire.ErrorFenceHeld, nil)
	case eventAlreadyRan:
		return temporal.NewNonRetryableApplicationError(last.Message, wire.ErrorAlreadyRan, nil)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("the deployer of build %s: %s", job.Ref, last.Message)
}

// stopping reports whether ctx ended because the worker stops.
func stopping(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), worker.ErrWorkerShutdown)
}

// abandoned reports whether ctx ended without anybody asking for it: the
// workflow was terminated or reset.
func abandoned(ctx context.Context) bool {
	cause := context.Cause(ctx)
	var asked *temporal.CanceledError
	return !errors.As(cause, &asked) && !errors.Is(cause, context.Canceled)
}

// supervise runs a supervisor and returns its last report, after which nothing
// of the deployer is left and the supervisor has only itself to end. It calls
// started when the deployer is about to run.
func (a *Activities) supervise(ctx context.Context, started func(), o order) (report, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return report{}, fmt.Errorf("write the order: %w", err)
	}
	p, err := a.Supervisors.take()
	if err != nil {
		return report{}, err
	}
	_, sendErr := p.in.Write(append(text, '\n'))
	last := a.follow(ctx, started, p.in, p.reports)
	if last.Event == "" {
		defer a.Supervisors.Ready()
		return report{}, fmt.Errorf("the supervisor of build %s ended without a report (%w): %s",
			o.Job.Ref, errors.Join(sendErr, a.farewell(ctx, p)), p.complaints)
	}
	a.Running.Go(func() {
		_ = a.farewell(ctx, p) // it did its work, however it ends
		a.Supervisors.Ready()
	})
	return last, nil
}

// farewell waits for the end of a supervisor.
func (a *Activities) farewell(ctx context.Context, p *supervisorProcess) error {
	err := p.wait()
	if text := p.complaints.String(); text != "" {
		activity.GetLogger(ctx).Warn("The supervisor complained.", "Output", text)
	}
	return err
}

// follow passes a cancel on, and returns the last report, or none where the
// supervisor ended without one.
func (a *Activities) follow(ctx context.Context, started func(), in io.WriteCloser, reports <-chan report) report {
	done := ctx.Done()
	for {
		select {
		case <-done:
			done = nil
			switch { // a supervisor that has ended needs none of these
			case stopping(ctx):
				_ = in.Close() // as if the worker was gone
			case abandoned(ctx):
				_, _ = io.WriteString(in, wishAbandon+"\n")
			default:
				_, _ = io.WriteString(in, wishCancel+"\n")
			}
		case r, more := <-reports:
			if !more || r.Event != eventStarted {
				return r
			}
			started()
		}
	}
}

// dropRoots drops the roots of the builds of a deployment up to one. Roots that
// stay cost space until the next build.
func (a *Activities) dropRoots(ctx context.Context, deploymentID string, upTo int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	names, err := a.Roots.Names(ctx)
	for _, name := range names {
		if of, build, ok := parseRootName(name); ok && of == deploymentID && build <= upTo {
			err = errors.Join(err, a.Roots.Drop(ctx, name))
		}
	}
	if err != nil {
		activity.GetLogger(ctx).Warn("Old GC roots are left.", "Deployment", deploymentID, "Error", err)
	}
}

func rootName(ref deployment.Ref) string { return fmt.Sprintf("%s-%d", ref.Deployment, ref.Build) }

// parseRootName is the inverse of rootName. A deployment can have hyphens, a
// build has none.
func parseRootName(name string) (deploymentID string, build int64, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return "", 0, false
	}
	build, err := strconv.ParseInt(name[i+1:], 10, 64)
	return name[:i], build, err == nil && build >= 1
}
