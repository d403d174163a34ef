package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// turnLook is how often a build that waits for its turn looks by itself, in
// case a notification was lost.
const turnLook = 5 * time.Second

// fenceLook is how often a build that is to end looks whether its fence has
// lapsed: a fence that is renewed lapses when its deployer ends.
const fenceLook = 3 * time.Second

// Activities are the steps of workflows that happen in PostgreSQL.
type Activities struct {
	Store    *Store
	Listener *Listener
}

// RecallInput asks whether a request became a build before.
type RecallInput struct {
	Deployment string
	Request    string
	// Configuration must be the same that it was then. Local activities have
	// no input in history.
	Configuration json.RawMessage
}

// Recall looks for the build that a request became before; Build is 0 when
// there is none.
func (a *Activities) Recall(ctx context.Context, in RecallInput) (Recorded, error) {
	recorded, err := a.Store.Recall(ctx, in.Deployment, in.Request, in.Configuration)
	if errors.Is(err, deployment.ErrUnknown) {
		return Recorded{}, nil
	}
	return recorded, typed(err)
}

// Record makes a submit a build.
func (a *Activities) Record(ctx context.Context, in Submit) (Recorded, error) {
	recorded, err := a.Store.Record(ctx, in)
	return recorded, typed(err)
}

// RecallImport looks for the import that a request became before; its Before is
// false when there is none.
func (a *Activities) RecallImport(ctx context.Context, in RecallImportInput) (Recorded, error) {
	recorded, err := a.Store.RecallImport(ctx, in.Deployment, in.Request, in.Configuration, in.Deploy)
	if errors.Is(err, deployment.ErrUnknown) {
		return Recorded{}, nil
	}
	return recorded, typed(err)
}

// RecallImportInput is a RecallInput of an import.
type RecallImportInput struct {
	RecallInput
	Deploy bool
}

// RecordImport makes a deployment known. It fails with wire.ErrorAlreadyExists
// where it is.
func (a *Activities) RecordImport(ctx context.Context, in Import) (Recorded, error) {
	recorded, err := a.Store.Import(ctx, in)
	return recorded, typed(err)
}

// RecordDestroy makes a request to haul out a build, where something is up.
func (a *Activities) RecordDestroy(ctx context.Context, in Destroy) (RecordedDestroy, error) {
	recorded, err := a.Store.RecordDestroy(ctx, in)
	return recorded, typed(err)
}

// TakeTurn tries once to take the turn of a build.
func (a *Activities) TakeTurn(ctx context.Context, ref deployment.Ref) (Turn, error) {
	if err := a.ours(ctx, ref); err != nil {
		return "", typed(err)
	}
	turn, err := a.Store.TakeTurn(ctx, ref)
	return turn, typed(err)
}

// ours is ErrNotItsBuild for a build that is not that of the workflow which asks.
func (a *Activities) ours(ctx context.Context, ref deployment.Ref) error {
	return a.Store.BelongsTo(ctx, ref, activity.GetInfo(ctx).WorkflowExecution.ID)
}

// AwaitTurn waits until a build has its turn or has ended. It heartbeats, so
// that a wait of any length is three events of history. A worker that stops has
// it fail at once, for the next one to go on.
func (a *Activities) AwaitTurn(ctx context.Context, ref deployment.Ref) (Turn, error) {
	changed, stop := a.Listener.Subscribe(ref.Deployment)
	defer stop()
	look := time.NewTicker(turnLook)
	defer look.Stop()
	for {
		turn, err := a.TakeTurn(ctx, ref)
		if err != nil || turn != TurnWait {
			return turn, err
		}
		activity.RecordHeartbeat(ctx)
		select {
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			return TurnWait, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return TurnWait, errors.New("the worker stops; another one waits on")
		}
	}
}

// Cancel ends a queued build, or marks a running one.
func (a *Activities) Cancel(ctx context.Context, ref deployment.Ref) (deployment.Status, error) {
	if err := a.ours(ctx, ref); err != nil {
		return "", typed(err)
	}
	status, err := a.Store.Cancel(ctx, ref)
	return status, typed(err)
}

// FinishInput ends a build.
type FinishInput struct {
	deployment.Ref
	// Otherwise is how it ends if its deployer left no exit.
	Otherwise End
}

// Finish ends a build by the staged exit of its deployer. While a deployer may
// still run it fails with wire.ErrorFenceHeld, to be tried again soon.
func (a *Activities) Finish(ctx context.Context, in FinishInput) (Ended, error) {
	if err := a.ours(ctx, in.Ref); err != nil {
		return Ended{}, typed(err)
	}
	ended, err := a.Store.Finish(ctx, in.Ref, in.Otherwise)
	return ended, typed(err)
}

// SettleInput says what became of a callback.
type SettleInput struct {
	deployment.Ref
	Callback deployment.Callback
}

// SettleCallback notes what became of the callback of a destroy.
func (a *Activities) SettleCallback(ctx context.Context, in SettleInput) error {
	return typed(a.Store.SettleCallback(ctx, in.Ref, in.Callback))
}

// Preparing is how long a submit waits for another one that has the secrets of
// the deployment in hand, and how often it looks.
const (
	prepareTime = 10 * time.Second
	prepareLook = 200 * time.Millisecond
)

// PrepareSecrets takes the secrets of a deployment in hand. It fails with
// wire.ErrorSubmitInProgress where another one has them for too long, and with
// wire.ErrorAlreadyExists for an import of a deployment that is known.
func (a *Activities) PrepareSecrets(ctx context.Context, p Preparation) error {
	for deadline := time.Now().Add(prepareTime); ; {
		err := a.Store.Prepare(ctx, p)
		if !errors.Is(err, ErrInProgress) || time.Now().After(deadline) {
			return typed(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(prepareLook):
		}
	}
}

// LetGoOfSecrets is the end of PrepareSecrets where no record is.
func (a *Activities) LetGoOfSecrets(ctx context.Context, p Preparation) error {
	return typed(a.Store.Unprepare(ctx, p))
}

// UnneededInput asks which of some cleared secrets nobody needs.
type UnneededInput struct {
	Deployment string
	// Cleared are application and field.
	Cleared [][2]string
}

// Unneeded are the cleared secrets that the newest submit of the deployment does
// not name: what it sets or keeps must not be deleted.
func (a *Activities) Unneeded(ctx context.Context, in UnneededInput) ([][2]string, error) {
	_, newest, err := a.Store.Newest(ctx, in.Deployment)
	if err != nil {
		return nil, typed(err)
	}
	set, err := configuration.SecretsSet(json.RawMessage(newest))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(in.Cleared), func(one [2]string) bool { return set[one] }), nil
}

// IsNewest reports whether a build is the newest of its deployment; 0 is where
// there is none yet.
func (a *Activities) IsNewest(ctx context.Context, ref deployment.Ref) (bool, error) {
	build, _, err := a.Store.Newest(ctx, ref.Deployment)
	if errors.Is(err, deployment.ErrUnknown) {
		build, err = 0, nil
	}
	return build == ref.Build, typed(err)
}

// StaysDown reports whether a deployment is idle and no build after one has run
// or may run.
func (a *Activities) StaysDown(ctx context.Context, ref deployment.Ref) (bool, error) {
	down, err := a.Store.StaysDown(ctx, ref)
	return down, typed(err)
}

// typed gives the errors that a workflow decides on their types. All others
// are failures of the database, which a retry may mend.
func typed(err error) error {
	var held *FenceHeldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &held):
		return temporal.NewApplicationErrorWithOptions(err.Error(), wire.ErrorFenceHeld, temporal.ApplicationErrorOptions{
			NextRetryDelay: min(held.Left+100*time.Millisecond, fenceLook),
		})
	case errors.Is(err, deployment.ErrUnknown):
		return temporal.NewNonRetryableApplicationError("slipway does not know this deployment", wire.ErrorUnknownDeployment, nil)
	case errors.Is(err, ErrNotItsBuild):
		return temporal.NewNonRetryableApplicationError(ErrNotItsBuild.Error(), wire.ErrorNotItsBuild, nil)
	case errors.Is(err, ErrAlreadyExists):
		return temporal.NewNonRetryableApplicationError(ErrAlreadyExists.Error(), wire.ErrorAlreadyExists, nil)
	case errors.Is(err, ErrInProgress):
		return temporal.NewNonRetryableApplicationError(ErrInProgress.Error(), wire.ErrorSubmitInProgress, nil)
	case errors.Is(err, ErrOtherConfiguration):
		return temporal.NewNonRetryableApplicationError(ErrOtherConfiguration.Error(), wire.ErrorIdempotencyConflict, nil)
	default:
		return err
	}
}
