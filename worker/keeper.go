package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/schema/wire"
)

const (
	// lookEvery is how often the keeper looks at the source.
	lookEvery = 5 * time.Second
	// againAfter is when it tries again what failed for another reason than
	// the source itself.
	againAfter = 15 * time.Second
	// A source that may or may not be at fault is tried again after mayPassFirst,
	// then after twice that and so on up to mayPassMost: each try may build for
	// long.
	mayPassFirst = time.Minute
	mayPassMost  = time.Hour
)

// Snapshots takes snapshots of the module source. nix.Evaluator implements it.
type Snapshots interface {
	Fingerprint(source string) (string, error)
	Snapshot(ctx context.Context, source, gcRoot string) (storePath string, err error)
}

// Sources is what the keeper needs of the store.
type Sources interface {
	// Deployer is the realised deployer of a snapshot, empty when the snapshot
	// was not evaluated yet.
	Deployer(ctx context.Context, snapshot string) (string, error)
	UseSnapshot(ctx context.Context, snapshot string) error
	SourceProblem(ctx context.Context, problem string) error
}

// Keeper watches the module source. A change of it becomes a snapshot, and a
// snapshot that evaluates becomes the one that submits are checked against.
//
// Each worker has a keeper. They meet in the workflow of a snapshot, which runs
// once at a time and changes nothing by itself: a keeper uses a snapshot, or says
// why it cannot, only while that is what it has for the source. So a build that
// ends after the source has changed again is not used.
type Keeper struct {
	Evaluator Snapshots
	Sources   Sources
	Client    client.Client
	// Source is a folder or a git URL, Entry its file that is evaluated.
	Source, Entry string
	// Roots is the folder of the GC roots of snapshots.
	Roots string
	Log   *zap.Logger
}

// Run watches until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	w := &watch{Keeper: k}
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case err := <-w.ended:
			w.ended = nil
			w.judge(ctx, w.settle(ctx, err))
		case <-time.After(lookEvery):
		}
	}
}

// watch is how far a keeper is.
type watch struct {
	*Keeper
	seen string // fingerprint of the source that was dealt with
	// snapshot is the one that is built or that failed. It is not tried again
	// before it is due, also where a change of the fingerprint led to it.
	snapshot string
	due      time.Time // zero: not until the source changes
	pause    time.Duration
	// ended gives the outcome of the build of the snapshot while run is waited
	// for, else it is nil.
	ended <-chan error
	run   client.WorkflowRun
	leave context.CancelFunc // ends the wait
}

// look deals with the source if it has changed, or if a try is due.
func (w *watch) look(ctx context.Context) {
	fingerprint, err := w.Evaluator.Fingerprint(w.Source)
	if err != nil {
		fingerprint = err.Error()
	}
	due := !w.due.IsZero() && !time.Now().Before(w.due)
	if fingerprint == w.seen && !due {
		return
	}
	w.seen = fingerprint
	w.judge(ctx, w.keep(ctx, due))
}

// judge decides when what failed is tried again.
func (w *watch) judge(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	w.Log.Warn("the module source is not ready", zap.String("source", w.Source), zap.Error(err))
	switch {
	case nix.IsSourceFailure(err) || isApplication(err, wire.ErrorSourceFailed):
		w.due = time.Time{}
	case isApplication(err, wire.ErrorSourceMayPass) || temporal.IsTimeoutError(err):
		w.pause = min(max(2*w.pause, mayPassFirst), mayPassMost)
		w.due = time.Now().Add(w.pause)
	default:
		w.due = time.Now().Add(againAfter)
	}
}

// keep takes a snapshot of the source and begins to have it evaluated, unless
// that was done before.
func (w *watch) keep(ctx context.Context, due bool) error {
	snapshot, err := w.Evaluator.Snapshot(ctx, w.Source, filepath.Join(w.Roots, "newest"))
	if err != nil {
		w.turnTo(ctx, "")
		return w.note(ctx, err, err.Error())
	}
	if snapshot == w.snapshot && !due {
		return nil
	}
	w.turnTo(ctx, snapshot)
	deployer, err := w.Sources.Deployer(ctx, snapshot)
	if err != nil {
		return err
	}
	if deployer != "" {
		if _, err := os.Stat(deployer); err == nil {
			return w.use(ctx)
		}
	}
	w.Log.Info("a new snapshot of the module source", zap.String("snapshot", snapshot))
	run, err := w.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       wire.SchemaBuildID(snapshot),
		TaskQueue:                wire.QueueMain,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            "schema and deployer of " + filepath.Base(snapshot),
	}, wire.WorkflowSchemaBuild, wire.SchemaBuildInput{Snapshot: snapshot, Entry: w.Entry})
	if err != nil {
		return err
	}
	w.wait(ctx, run)
	return nil
}

// turnTo makes a snapshot the one that is dealt with. The build of another one
// is cancelled, since it would only keep the machine from that of this one.
func (w *watch) turnTo(ctx context.Context, snapshot string) {
	w.due = time.Time{}
	if snapshot != w.snapshot {
		w.snapshot, w.pause = snapshot, 0
	}
	if w.ended == nil {
		return
	}
	w.leave()
	w.ended = nil
	if err := w.Client.CancelWorkflow(ctx, w.run.GetID(), w.run.GetRunID()); err != nil {
		// It has ended, or does so unused.
		w.Log.Info("the build of an older snapshot is not cancelled", zap.String("workflow", w.run.GetID()), zap.Error(err))
	}
}

// wait begins to wait for the run, which must not keep the keeper from seeing
// that the source has changed.
func (w *watch) wait(ctx context.Context, run client.WorkflowRun) {
	ctx, w.leave = context.WithCancel(ctx)
	ended := make(chan error, 1)
	w.run, w.ended = run, ended
	go func() { ended <- run.Get(ctx, nil) }()
}

// settle uses the snapshot whose build has ended, or says why that failed.
func (w *watch) settle(ctx context.Context, err error) error {
	w.leave()
	var failed *temporal.WorkflowExecutionError
	switch {
	case err == nil:
		return w.use(ctx)
	case !errors.As(err, &failed) || temporal.IsCanceledError(err):
		// Temporal is away, or another keeper has seen a change before we do.
		return err
	}
	problem := err.Error()
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		problem = application.Message()
	}
	return w.note(ctx, err, problem)
}

// note makes err the problem of the source. Where that fails it must be tried
// again, whatever err is.
func (w *watch) note(ctx context.Context, err error, problem string) error {
	if noteErr := w.Sources.SourceProblem(ctx, problem); noteErr != nil {
		return fmt.Errorf("%w; what it is about: %v", noteErr, err)
	}
	return err
}

// use has submits checked against the snapshot.
func (w *watch) use(ctx context.Context) error {
	err := w.Sources.UseSnapshot(ctx, w.snapshot)
	if err == nil {
		// It is used again whenever the source changes and is the same: another
		// keeper may have found another one.
		w.snapshot = ""
	}
	return err
}

// isApplication reports whether the error is an application error of the type.
func isApplication(err error, errorType string) bool {
	var application *temporal.ApplicationError
	return errors.As(err, &application) && application.Type() == errorType
}
