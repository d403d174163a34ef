package worker

import (
	"context"
	"errors"
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
)

// Sources is what the keeper needs of the store.
type Sources interface {
	// Deployer is the realised deployer of a snapshot, empty when the snapshot
	// was not evaluated yet.
	Deployer(ctx context.Context, snapshot string) (string, error)
	ReuseSnapshot(ctx context.Context, snapshot string) error
	SourceProblem(ctx context.Context, problem string) error
}

// Keeper watches the module source. A change of it becomes a snapshot, and a
// snapshot that evaluates becomes the one that submits are checked against.
type Keeper struct {
	Evaluator *nix.Evaluator
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
	var seen string // fingerprint of the source that was dealt with
	var failed time.Time
	for {
		fingerprint, err := k.Evaluator.Fingerprint(k.Source)
		if err != nil {
			fingerprint = err.Error()
		}
		if fingerprint != seen || !failed.IsZero() && time.Since(failed) > againAfter {
			err := k.keep(ctx)
			seen, failed = fingerprint, time.Time{}
			if err != nil && ctx.Err() == nil {
				k.Log.Warn("the module source is not ready", zap.String("source", k.Source), zap.Error(err))
				if !isSourceFailure(err) {
					failed = time.Now()
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// keep takes a snapshot of the source and has it evaluated, unless that was
// done before.
func (k *Keeper) keep(ctx context.Context) error {
	snapshot, err := k.Evaluator.Snapshot(ctx, k.Source, filepath.Join(k.Roots, "newest"))
	if err != nil {
		return errors.Join(err, k.Sources.SourceProblem(ctx, err.Error()))
	}
	deployer, err := k.Sources.Deployer(ctx, snapshot)
	if err != nil {
		return err
	}
	if deployer != "" {
		if _, err := os.Stat(deployer); err == nil {
			return k.Sources.ReuseSnapshot(ctx, snapshot)
		}
	}
	k.Log.Info("a new snapshot of the module source", zap.String("snapshot", snapshot))
	run, err := k.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       wire.SchemaBuildID(snapshot),
		TaskQueue:                wire.QueueMain,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            "schema and deployer of " + filepath.Base(snapshot),
	}, wire.WorkflowSchemaBuild, wire.SchemaBuildInput{Snapshot: snapshot, Entry: k.Entry})
	if err != nil {
		return err
	}
	return run.Get(ctx, nil)
}

// isSourceFailure reports whether only a change of the source can help.
func isSourceFailure(err error) bool {
	var application *temporal.ApplicationError
	return nix.IsSourceFailure(err) || errors.As(err, &application) && application.Type() == wire.ErrorSourceFailed
}
