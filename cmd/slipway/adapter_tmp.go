package main

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"slipway.dev/slipway/activities/deployer"
	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
)

type tmpJobs struct{ *store.Store }

func (j tmpJobs) Job(ctx context.Context, ref deployment.Ref) (deployer.Job, error) {
	x, err := j.Store.Job(ctx, ref)
	return deployer.Job{Ref: x.Ref, Action: x.Action, Configuration: x.Configuration, Snapshot: x.Snapshot, Deployer: x.Deployer, Nothing: x.Nothing}, err
}

type tmpJournal struct{ *store.Store }

func tmpErr(err error) error {
	switch {
	case errors.Is(err, deployment.ErrFenced):
		return deployer.ErrFenced
	case errors.Is(err, deployment.ErrAlreadyRan):
		return deployer.ErrAlreadyRan
	}
	return err
}

func (j tmpJournal) AcquireFence(ctx context.Context, ref deployment.Ref, fence uuid.UUID) (int64, error) {
	n, err := j.Store.AcquireFence(ctx, ref, fence)
	return n, tmpErr(err)
}
func (j tmpJournal) RenewFence(ctx context.Context, ref deployment.Ref, fence uuid.UUID) error {
	return tmpErr(j.Store.RenewFence(ctx, ref, fence))
}
func (j tmpJournal) AppendLog(ctx context.Context, ref deployment.Ref, fence uuid.UUID, start int64, data []byte) error {
	return tmpErr(j.Store.AppendLog(ctx, ref, fence, start, data))
}
func (j tmpJournal) StageExit(ctx context.Context, ref deployment.Ref, fence uuid.UUID, e deployer.Exit) error {
	return tmpErr(j.Store.StageExit(ctx, ref, fence, deployment.Exit{Code: e.Code, Reason: e.Reason, Cancelled: e.Cancelled}))
}
