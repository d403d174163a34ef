package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"slipway.dev/slipway/schema/deployment"
)

// The journal of a supervisor. Everything here is conditional on the fence of
// a running build, and may be repeated after a lost answer.

// AcquireFence makes the holder of fence the only one that may run a deployer
// for the build. It returns deployment.ErrAlreadyRan where a deploy was
// started before or a deployer succeeded, and deployment.ErrFenced while
// another fence is alive, or when the build does not run (any more) or is to
// be cancelled. logged is the length in bytes of the log that earlier tries of
// the build left.
func (s *Store) AcquireFence(ctx context.Context, ref deployment.Ref, fence uuid.UUID) (logged int64, err error) {
	var held, ran bool
	err = s.pool.QueryRow(ctx, `
		WITH before AS (
			SELECT coalesce(fence <> $3 AND fence_until > clock_timestamp(), false) OR status <> 'running'
			           OR cancel_requested_at IS NOT NULL AS held,
			       CASE action WHEN 'deploy' THEN fence IS NOT NULL AND fence <> $3 ELSE coalesce(exit_code = 0, false) END AS ran
			FROM builds WHERE deployment_id = $1 AND number = $2 FOR UPDATE
		), acquired AS (
			UPDATE builds SET fence = $3, fence_until = clock_timestamp() + $4::interval,
			                  deployer_started_at = coalesce(deployer_started_at, clock_timestamp()),
			                  exit_code = NULL, exit_reason = NULL, exit_cancelled = NULL
			WHERE deployment_id = $1 AND number = $2 AND (SELECT NOT held AND NOT ran FROM before)
		)
		SELECT held, ran, coalesce((SELECT start + length(data) FROM build_log
		                            WHERE deployment_id = $1 AND number = $2 ORDER BY start DESC LIMIT 1), 0)
		FROM before`, ref.Deployment, ref.Build, fence, deployment.FenceLife).Scan(&held, &ran, &logged)
	switch {
	case err != nil:
		return 0, fmt.Errorf("take the fence of %s: %w", ref, orUnknown(err))
	case ran:
		return 0, deployment.ErrAlreadyRan
	case held:
		return 0, deployment.ErrFenced
	}
	return logged, nil
}

// RenewFence gives the holder of fence another deployment.FenceLife. It
// returns deployment.ErrFenced where fence has lapsed or is not the build's.
func (s *Store) RenewFence(ctx context.Context, ref deployment.Ref, fence uuid.UUID) error {
	tag, err := s.pool.Exec(ctx, `
		UPDATE builds SET fence_until = clock_timestamp() + $4::interval
		WHERE deployment_id = $1 AND number = $2 AND fence = $3 AND status = 'running'
		  AND fence_until > clock_timestamp()`, ref.Deployment, ref.Build, fence, deployment.FenceLife)
	if err != nil {
		return fmt.Errorf("renew the fence of %s: %w", ref, err)
	}
	if tag.RowsAffected() == 0 {
		return deployment.ErrFenced
	}
	return nil
}

// AppendLog adds a piece of the log that starts at an offset in bytes.
func (s *Store) AppendLog(ctx context.Context, ref deployment.Ref, fence uuid.UUID, start int64, data []byte) error {
	var held bool
	err := s.pool.QueryRow(ctx, `
		WITH held AS (
			SELECT FROM builds WHERE deployment_id = $1 AND number = $2 AND fence = $3 AND status = 'running' FOR SHARE
		), added AS (
			INSERT INTO build_log (deployment_id, number, start, data) SELECT $1, $2, $4, $5 FROM held
			ON CONFLICT DO NOTHING
		), told AS (SELECT pg_notify($6, $7) FROM held)
		SELECT exists (SELECT FROM held), (SELECT count(*) FROM told) >= 0`,
		ref.Deployment, ref.Build, fence, start, data, channel, fmt.Sprintf("%s %d", ref.Deployment, ref.Build)).Scan(&held, new(bool))
	if err != nil {
		return fmt.Errorf("write the log of %s: %w", ref, err)
	}
	if !held {
		return deployment.ErrFenced
	}
	return nil
}

// StageExit notes how the deployer ended and lets the fence lapse at once:
// nothing runs any more.
func (s *Store) StageExit(ctx context.Context, ref deployment.Ref, fence uuid.UUID, exit deployment.Exit) error {
	tag, err := s.pool.Exec(ctx, `
		UPDATE builds SET exit_code = $4, exit_reason = $5, exit_cancelled = $6, fence_until = clock_timestamp()
		WHERE deployment_id = $1 AND number = $2 AND fence = $3 AND status = 'running'
		  AND (exit_code IS NULL OR exit_code = $4)`,
		ref.Deployment, ref.Build, fence, exit.Code, exit.Reason, exit.Cancelled)
	if err != nil {
		return fmt.Errorf("stage the exit of %s: %w", ref, err)
	}
	if tag.RowsAffected() == 0 {
		return deployment.ErrFenced
	}
	return nil
}
