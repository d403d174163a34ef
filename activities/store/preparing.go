package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/schema/deployment"
)

// ErrInProgress: another one has the secrets of the deployment in hand.
var ErrInProgress = errors.New("another submit of the deployment is in progress")

// Preparation is who has the secrets of a deployment in hand.
type Preparation struct {
	Deployment string
	WorkflowID string
	RunID      string
	// Import: nobody else may make the deployment known meanwhile.
	Import bool
}

// Prepare takes the secrets of a deployment in hand, or finds that it has them
// already. It is ErrInProgress while another one has, and ErrAlreadyExists for
// an import of a deployment that is known.
func (s *Store) Prepare(ctx context.Context, p Preparation) error {
	if !p.Import {
		return prepare(ctx, s.pool, p)
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// A submit that records the deployment at this moment is waited for, and
		// one that comes later sees the preparation.
		tag, err := tx.Exec(ctx, `INSERT INTO deployments (id) VALUES ($1) ON CONFLICT DO NOTHING`, p.Deployment)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrAlreadyExists
		}
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM deployments WHERE id = $1`, p.Deployment)
		}
		if err != nil {
			return fmt.Errorf("look for %s: %w", p.Deployment, err)
		}
		return prepare(ctx, tx, p)
	})
}

func prepare(ctx context.Context, on querier, p Preparation) error {
	var workflowID, runID string
	err := on.QueryRow(ctx, `
		INSERT INTO preparing (deployment_id, workflow_id, run_id, import) VALUES ($1, $2, $3, $4)
		ON CONFLICT (deployment_id) DO UPDATE SET deployment_id = excluded.deployment_id
		RETURNING workflow_id, run_id`, p.Deployment, p.WorkflowID, p.RunID, p.Import).Scan(&workflowID, &runID)
	if err != nil {
		return fmt.Errorf("prepare %s: %w", p.Deployment, err)
	}
	if workflowID != p.WorkflowID || runID != p.RunID {
		return ErrInProgress
	}
	return nil
}

// Unprepare lets go of the secrets of a deployment. Whoever has them not, loses
// nothing by it.
func (s *Store) Unprepare(ctx context.Context, p Preparation) error {
	if _, err := unprepare(ctx, s.pool, p); err != nil {
		return fmt.Errorf("let go of %s: %w", p.Deployment, err)
	}
	return nil
}

// unprepare reports whether p had them.
func unprepare(ctx context.Context, on execer, p Preparation) (bool, error) {
	tag, err := on.Exec(ctx, `DELETE FROM preparing WHERE deployment_id = $1 AND workflow_id = $2 AND run_id = $3`,
		p.Deployment, p.WorkflowID, p.RunID)
	return tag.RowsAffected() > 0, err
}

// Preparations lists who has had secrets in hand for longer than age.
func (s *Store) Preparations(ctx context.Context, age time.Duration) ([]Preparation, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT deployment_id, workflow_id, run_id FROM preparing
		WHERE since < clock_timestamp() - $1::interval ORDER BY since`, age)
	if err != nil {
		return nil, fmt.Errorf("list who has secrets in hand: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Preparation, err error) {
		return p, row.Scan(&p.Deployment, &p.WorkflowID, &p.RunID)
	})
}

// livesAgain is whether a build after number $2 of deployment $1 has run or may
// run. One that was cancelled or superseded while it waited has not.
const livesAgain = `exists (SELECT FROM builds WHERE deployment_id = $1 AND number > $2
	AND (started_at IS NOT NULL OR status NOT IN ('cancelled', 'superseded')))`

// StaysDown reports whether a deployment is idle and no build after ref has run or
// may run. In a database that was restored to an earlier time a deploy may have
// the number that a destroy had.
func (s *Store) StaysDown(ctx context.Context, ref deployment.Ref) (bool, error) {
	var down bool
	err := s.pool.QueryRow(ctx, `
		SELECT NOT `+livesAgain+` AND NOT exists (SELECT FROM deployment_states WHERE deployment_id = $1 AND state <> 'idle')`,
		ref.Deployment, ref.Build).Scan(&down)
	if err != nil {
		return false, fmt.Errorf("look for a build after %s: %w", ref, err)
	}
	return down, nil
}

// Newest is the newest build of a deployment, and the configuration of its
// newest submit. It is deployment.ErrUnknown where there is none.
func (s *Store) Newest(ctx context.Context, deploymentID string) (build int64, configuration string, err error) {
	err = s.pool.QueryRow(ctx, `
		SELECT coalesce(max(number), 0),
		       coalesce((SELECT configuration FROM builds WHERE deployment_id = $1 AND action = 'deploy' ORDER BY number DESC LIMIT 1), '')
		FROM builds WHERE deployment_id = $1`, deploymentID).Scan(&build, &configuration)
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("read the newest build of %s: %w", deploymentID, err)
	case build == 0:
		return 0, "", fmt.Errorf("%s: %w", deploymentID, deployment.ErrUnknown)
	}
	return build, configuration, nil
}
