package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/schema/deployment"
)

// buildColumns are those that scanBuild reads, of a table or row b.
const buildColumns = `b.number, b.action, b.status, b.reason, b.created_at, b.started_at, b.finished_at,
	coalesce(b.evaluation, ''), b.workflow_id, b.nodes, ` + callbackColumn

// latestColumns are buildColumns where there may be no row, which then has the
// number 0.
const latestColumns = `coalesce(b.number, 0), coalesce(b.action, ''), coalesce(b.status, ''), coalesce(b.reason, ''),
	coalesce(b.created_at, 'epoch'), b.started_at, b.finished_at, coalesce(b.evaluation, ''), coalesce(b.workflow_id, ''), b.nodes, ` + callbackColumn

const callbackColumn = `CASE b.action WHEN 'destroy' THEN jsonb_build_object(
	'state', coalesce(b.callback, 'none'), 'status', b.callback_status, 'reason', b.callback_reason) END`

func buildTargets(b *deployment.Build) []any {
	return []any{
		&b.Number, &b.Action, &b.Status, &b.Reason, &b.CreatedAt, &b.StartedAt, &b.FinishedAt,
		&b.Evaluation, &b.WorkflowID, &b.Nodes, &b.Callback,
	}
}

func scanBuild(row pgx.CollectableRow) (deployment.Build, error) {
	var b deployment.Build
	err := row.Scan(buildTargets(&b)...)
	toUTC(&b)
	return b, err
}

// toUTC is for the API, whose times are UTC.
func toUTC(b *deployment.Build) {
	b.CreatedAt = b.CreatedAt.UTC()
	if b.StartedAt != nil {
		*b.StartedAt = b.StartedAt.UTC()
	}
	if b.FinishedAt != nil {
		*b.FinishedAt = b.FinishedAt.UTC()
	}
}

// SelectDeployments reads deployments with their states: $1 is an array of
// identifiers, whose order the rows keep. What is deployed is only read where it
// is not what was submitted last.
const SelectDeployments = `
	SELECT d.id, s.state, s.since, s.reason, s.live, d.next_event - 1,
	       coalesce(submitted.configuration, i.configuration),
	       coalesce(coalesce(submitted.snapshot, i.snapshot) <> (SELECT store_path FROM source), false),
	       coalesce(submitted.snapshot, i.snapshot, ''), deployed.configuration, deployed.snapshot,
	       coalesce(evaluated.nodes, i.nodes), ` + latestColumns + `
	FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, place)
	JOIN deployments d ON d.id = asked.id
	JOIN deployment_states s ON s.deployment_id = d.id
	LEFT JOIN imports i ON i.deployment_id = d.id
	LEFT JOIN LATERAL (
		SELECT * FROM builds WHERE deployment_id = d.id ORDER BY number DESC LIMIT 1
	) b ON true
	LEFT JOIN LATERAL (
		SELECT number, configuration, snapshot FROM builds WHERE deployment_id = d.id AND action = 'deploy' ORDER BY number DESC LIMIT 1
	) submitted ON true
	LEFT JOIN builds deployed ON deployed.deployment_id = d.id AND deployed.number = s.live AND deployed.number <> submitted.number
	LEFT JOIN LATERAL (
		SELECT nodes FROM builds WHERE deployment_id = d.id AND action = 'deploy' AND nodes IS NOT NULL
		ORDER BY number DESC LIMIT 1
	) evaluated ON true
	ORDER BY asked.place`

func scanDeployment(row pgx.CollectableRow) (deployment.Snapshot, error) {
	var d deployment.Snapshot
	var configuration, deployed, deployedBy *string
	d.LatestBuild = &deployment.Build{}
	err := row.Scan(append([]any{
		&d.ID, &d.State, &d.Since, &d.Reason, &d.Live, &d.Sequence,
		&configuration, &d.Older, &d.Snapshot, &deployed, &deployedBy, &d.Nodes,
	}, buildTargets(d.LatestBuild)...)...)
	if err != nil {
		return d, err
	}
	d.Since = d.Since.UTC()
	toUTC(d.LatestBuild)
	if d.LatestBuild.Number == 0 { // imported, and nothing since
		d.LatestBuild = nil
	}
	if configuration != nil {
		d.Configuration = json.RawMessage(*configuration)
	}
	switch {
	case d.Live == nil:
	case deployed != nil:
		d.Deployed = &deployment.Recorded{Configuration: json.RawMessage(*deployed), Snapshot: *deployedBy}
	default:
		d.Deployed = &deployment.Recorded{Configuration: d.Configuration, Snapshot: d.Snapshot}
	}
	if d.Nodes == nil {
		d.Nodes = []deployment.Node{}
	}
	return d, nil
}

// Snapshot reads a deployment with the place of its channel, in one statement
// so that they fit together. It returns deployment.ErrUnknown.
func (s *Store) Snapshot(ctx context.Context, id string) (deployment.Snapshot, error) {
	rows, err := s.pool.Query(ctx, SelectDeployments, []string{id})
	if err != nil {
		return deployment.Snapshot{}, fmt.Errorf("read deployment %s: %w", id, err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, scanDeployment)
	if err != nil {
		return deployment.Snapshot{}, fmt.Errorf("read deployment %s: %w", id, orUnknown(err))
	}
	return d, nil
}

// Deployment reads a deployment. It returns deployment.ErrUnknown.
func (s *Store) Deployment(ctx context.Context, id string) (deployment.Deployment, error) {
	d, err := s.Snapshot(ctx, id)
	return d.Deployment, err
}

// Deployments gives those of ids that exist to yield, in the order of ids, as
// they come from the database. It stops at the first error of yield.
func (s *Store) Deployments(ctx context.Context, ids []string, yield func(deployment.Deployment) error) error {
	rows, err := s.pool.Query(ctx, SelectDeployments, ids)
	if err != nil {
		return fmt.Errorf("read %d deployments: %w", len(ids), err)
	}
	defer rows.Close()
	for rows.Next() {
		d, err := scanDeployment(rows)
		if err != nil {
			return fmt.Errorf("read %d deployments: %w", len(ids), err)
		}
		if err := yield(d.Deployment); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Builds reads the newest limit builds of a deployment whose numbers are less
// than before (0: all), newest first. It returns deployment.ErrUnknown.
func (s *Store) Builds(ctx context.Context, id string, limit int, before int64) ([]deployment.Build, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT `+buildColumns+` FROM builds b
		WHERE deployment_id = $1 AND ($2 = 0 OR number < $2) ORDER BY number DESC LIMIT $3`, id, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read the builds of %s: %w", id, err)
	}
	builds, err := pgx.CollectRows(rows, scanBuild)
	if err != nil {
		return nil, fmt.Errorf("read the builds of %s: %w", id, err)
	}
	if len(builds) > 0 {
		return builds, nil
	}
	var known bool
	if err := s.pool.QueryRow(ctx, `SELECT exists (SELECT FROM deployments WHERE id = $1)`, id).Scan(&known); err != nil {
		return nil, fmt.Errorf("read the builds of %s: %w", id, err)
	}
	if !known {
		return nil, deployment.ErrUnknown
	}
	return builds, nil
}

// Build reads one build with its configuration. It returns
// deployment.ErrUnknown.
func (s *Store) Build(ctx context.Context, ref deployment.Ref) (deployment.Build, error) {
	var b deployment.Build
	var configuration *string
	err := s.pool.QueryRow(ctx, `
		SELECT `+buildColumns+`, b.configuration, coalesce(b.snapshot <> (SELECT store_path FROM source), false)
		FROM builds b WHERE deployment_id = $1 AND number = $2`,
		ref.Deployment, ref.Build).Scan(append(buildTargets(&b), &configuration, &b.Older)...)
	if err != nil {
		return b, fmt.Errorf("read build %s: %w", ref, orUnknown(err))
	}
	toUTC(&b)
	if configuration != nil {
		b.Configuration = json.RawMessage(*configuration)
	}
	return b, nil
}

// logPieces bounds how many rows one read of a log takes.
const logPieces = 64

// Log reads the log of a build from an offset in bytes, at most limit bytes. It
// returns deployment.ErrUnknown.
func (s *Store) Log(ctx context.Context, ref deployment.Ref, from int64, limit int) (deployment.LogPiece, error) {
	var out deployment.LogPiece
	var status deployment.Status
	// The status is read with the pieces, in one statement: a build that has
	// ended has all of its log.
	rows, err := s.pool.Query(ctx, `
		SELECT b.status, l.start, l.data FROM builds b
		LEFT JOIN LATERAL (
			SELECT start, data FROM build_log
			WHERE deployment_id = $1 AND number = $2 AND start < $3::bigint + $5::bigint
			  AND start >= coalesce((SELECT start FROM build_log
			                         WHERE deployment_id = $1 AND number = $2 AND start <= $3
			                         ORDER BY start DESC LIMIT 1), 0)
			ORDER BY start LIMIT $4
		) l ON true
		WHERE b.deployment_id = $1 AND b.number = $2
		ORDER BY l.start`, ref.Deployment, ref.Build, from, logPieces, limit)
	if err != nil {
		return out, fmt.Errorf("read the log of %s: %w", ref, err)
	}
	var pieces int
	var start *int64
	var data []byte
	full := false
	_, err = pgx.ForEachRow(rows, []any{&status, &start, &data}, func() error {
		if start == nil {
			return nil
		}
		pieces++
		skip := max(0, from-*start)
		if full || skip >= int64(len(data)) {
			return nil
		}
		out.Data = append(out.Data, data[skip:]...)
		if len(out.Data) > limit {
			out.Data, full = out.Data[:limit], true
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("read the log of %s: %w", ref, err)
	}
	if status == "" {
		return out, fmt.Errorf("read the log of %s: %w", ref, deployment.ErrUnknown)
	}
	// Fewer bytes and pieces than asked for: there are no more.
	out.Ended = status.Ended() && len(out.Data) < limit && pieces < logPieces
	return out, nil
}

// Events reads at most limit events of a deployment's channel behind a
// sequence.
func (s *Store) Events(ctx context.Context, id string, after int64, limit int) (deployment.Events, error) {
	var out deployment.Events
	rows, err := s.pool.Query(ctx, `
		SELECT d.oldest, d.newest, e.sequence, e.kind, e.build, e.status, e.data
		FROM (SELECT coalesce((SELECT min(sequence) FROM events WHERE deployment_id = $1), 0) AS oldest, next_event - 1 AS newest
		      FROM deployments WHERE id = $1) d
		LEFT JOIN LATERAL (
			SELECT * FROM events WHERE deployment_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3
		) e ON true
		ORDER BY e.sequence`, id, after, limit)
	if err != nil {
		return out, fmt.Errorf("read the events of %s: %w", id, err)
	}
	var (
		sequence, build    *int64
		kind, status, data *string
	)
	tag, err := pgx.ForEachRow(rows, []any{&out.Oldest, &out.Newest, &sequence, &kind, &build, &status, &data}, func() error {
		if sequence != nil {
			out.Events = append(out.Events, deployment.Event{
				Sequence: *sequence, Kind: deployment.EventKind(*kind), Build: *build,
				Status: deployment.Status(*status), Data: json.RawMessage(*data),
			})
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("read the events of %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return out, fmt.Errorf("read the events of %s: %w", id, deployment.ErrUnknown)
	}
	return out, nil
}

// Key reads the random key of that name, and makes it where there is none. All
// replicas get the same one.
func (s *Store) Key(ctx context.Context, name string, fresh []byte) ([]byte, error) {
	var key []byte
	_, err := s.pool.Exec(ctx, `INSERT INTO keys (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`, name, fresh)
	if err == nil {
		err = s.pool.QueryRow(ctx, `SELECT value FROM keys WHERE name = $1`, name).Scan(&key)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key %s: %w", name, err)
	}
	return key, nil
}

// Job reads what the deployer of a running build is run with, and notes the
// deployer with a deploy so that a destroy can run it again. A destroy gets
// what the newest deploy was started with whose infrastructure may be up.
func (s *Store) Job(ctx context.Context, ref deployment.Ref) (deployment.Job, error) {
	job := deployment.Job{Ref: ref}
	err := s.pool.QueryRow(ctx, `SELECT action, workflow_id FROM builds WHERE deployment_id = $1 AND number = $2`,
		ref.Deployment, ref.Build).Scan(&job.Action, &job.WorkflowID)
	if err != nil {
		return job, fmt.Errorf("read build %s: %w", ref, orUnknown(err))
	}
	var configuration string
	if job.Action == deployment.ActionDeploy {
		err = s.pool.QueryRow(ctx, `
			UPDATE builds SET deployer = snapshots.deployer FROM snapshots
			WHERE deployment_id = $1 AND number = $2 AND store_path = snapshot
			RETURNING configuration, snapshot, snapshots.deployer`, ref.Deployment, ref.Build).
			Scan(&configuration, &job.Snapshot, &job.Deployer)
	} else {
		err = s.pool.QueryRow(ctx, `
			SELECT configuration, snapshot, deployer FROM builds
			WHERE deployment_id = $1 AND action = 'deploy' AND deployer_started_at IS NOT NULL
			  AND number > coalesce((SELECT max(number) FROM builds
			                         WHERE deployment_id = $1 AND action = 'destroy' AND status = 'succeeded'), 0)
			ORDER BY number DESC LIMIT 1`, ref.Deployment).
			Scan(&configuration, &job.Snapshot, &job.Deployer)
		if errors.Is(err, pgx.ErrNoRows) {
			job.Nothing = true
			return job, nil
		}
	}
	if err != nil {
		return job, fmt.Errorf("read what build %s deploys: %w", ref, orUnknown(err))
	}
	job.Configuration = []byte(configuration)
	return job, nil
}

// CancelRequested reports whether somebody cancelled a build that runs.
func (s *Store) CancelRequested(ctx context.Context, ref deployment.Ref) (bool, error) {
	var requested bool
	err := s.pool.QueryRow(ctx, `SELECT cancel_requested_at IS NOT NULL FROM builds WHERE deployment_id = $1 AND number = $2`,
		ref.Deployment, ref.Build).Scan(&requested)
	if err != nil {
		return false, fmt.Errorf("read build %s: %w", ref, orUnknown(err))
	}
	return requested, nil
}
