package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

// ErrOtherConfiguration: the request became a build before, with another
// configuration.
var ErrOtherConfiguration = errors.New("the same request came before with another configuration")

// ErrNotItsBuild: a workflow asks for a build that the database does not have,
// or has for another workflow. Both come of a database that was restored to a
// time before the build, whose number was given away again since.
var ErrNotItsBuild = errors.New("the database has no such build of this workflow; it may have been restored to an earlier time")

// Submit is a submit that passed all checks.
type Submit struct {
	Deployment string
	// Request makes it unique for the deployment.
	Request    string
	WorkflowID string
	Snapshot   string
	// Configuration is canonical JSON without secrets.
	Configuration json.RawMessage
	// Asked is the configuration that the request asked for, which is what the
	// same request is known by; Configuration where that is empty.
	Asked json.RawMessage
	// Prepared: the submit has the secrets of the deployment in hand, and lets
	// go of them with the record.
	Prepared *Preparation
	// Clears are the secrets to delete after the deploy, kept with the build for
	// whoever takes it to its end.
	Clears []configuration.ClearedSecret
	// EvaluationKey is where the evaluation cache has the names; empty when
	// the evaluation was skipped.
	EvaluationKey string
}

// Recorded is the build that a request became.
type Recorded struct {
	Build      int64
	Evaluation deployment.Evaluation
	// Before: an earlier request was recorded as this build.
	Before bool
	// Clears is that of the Submit that was recorded.
	Clears []configuration.ClearedSecret
}

// Recall looks for the build that a request became before. It is
// deployment.ErrUnknown when there is none, and ErrOtherConfiguration when
// that one has another configuration.
func (s *Store) Recall(ctx context.Context, deploymentID, request string, configuration json.RawMessage) (Recorded, error) {
	return recall(ctx, s.pool, deploymentID, request, configuration)
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func recall(ctx context.Context, q querier, deploymentID, request string, configuration json.RawMessage) (Recorded, error) {
	r := Recorded{Before: true}
	var hash []byte
	err := q.QueryRow(ctx, `
		SELECT number, coalesce(evaluation, ''), configuration_hash, clears FROM builds
		WHERE deployment_id = $1 AND request = $2`, deploymentID, request).Scan(&r.Build, &r.Evaluation, &hash, &r.Clears)
	if err != nil {
		return Recorded{}, fmt.Errorf("look for the request: %w", orUnknown(err))
	}
	if sum := sha256.Sum256(configuration); !bytes.Equal(hash, sum[:]) {
		return Recorded{}, ErrOtherConfiguration
	}
	return r, nil
}

// Record makes a submit a queued build and supersedes every queued deploy. The
// same request again gives the build that it became before.
func (s *Store) Record(ctx context.Context, in Submit) (Recorded, error) {
	var out Recorded
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var number int64
		err := tx.QueryRow(ctx, `
			INSERT INTO deployments (id) VALUES ($1)
			ON CONFLICT (id) DO UPDATE SET id = excluded.id -- takes the row lock
			RETURNING next_build`, in.Deployment).Scan(&number)
		if err != nil {
			return fmt.Errorf("lock deployment %s: %w", in.Deployment, err)
		}
		asked := in.Asked
		if asked == nil {
			asked = in.Configuration
		}
		inHand := true
		if in.Prepared != nil {
			if inHand, err = unprepare(ctx, tx, *in.Prepared); err != nil {
				return fmt.Errorf("let go of the secrets: %w", err)
			}
		}
		out, err = recall(ctx, tx, in.Deployment, in.Request, asked)
		if !errors.Is(err, deployment.ErrUnknown) {
			return err
		}
		if !inHand { // a workflow that was reset, say: another may have written since
			return ErrInProgress
		}
		if number == 1 && in.Prepared == nil {
			var imports bool
			err := tx.QueryRow(ctx, `SELECT exists (SELECT FROM preparing WHERE deployment_id = $1 AND import)`, in.Deployment).Scan(&imports)
			if err != nil {
				return fmt.Errorf("look for an import: %w", err)
			}
			if imports {
				return ErrInProgress
			}
		}
		changed, err := supersede(ctx, tx, in.Deployment, number)
		if err != nil {
			return err
		}
		if out, err = recordBuild(ctx, tx, in, number, asked); err != nil {
			return err
		}
		return countBuild(ctx, tx, in.Deployment, append(changed, number))
	})
	return out, err
}

// recordBuild makes a submit the queued build of that number.
func recordBuild(ctx context.Context, tx pgx.Tx, in Submit, number int64, asked json.RawMessage) (Recorded, error) {
	out := Recorded{Build: number, Evaluation: deployment.EvaluationSkipped, Clears: in.Clears}
	if in.EvaluationKey != "" {
		out.Evaluation = deployment.EvaluationEvaluated
	}
	sum := sha256.Sum256(asked)
	_, err := tx.Exec(ctx, `
		INSERT INTO builds (deployment_id, number, action, request, workflow_id, snapshot, configuration,
		                    configuration_hash, evaluation, created_at, nodes, clears)
		VALUES ($1, $2, 'deploy', $3, $4, $5, $6, $7, $8, clock_timestamp(),
		        (SELECT result::jsonb -> 'nodes' FROM evaluations WHERE key = $9), nullif($10::jsonb, 'null'))`,
		in.Deployment, number, in.Request, in.WorkflowID, in.Snapshot, string(in.Configuration), sum[:],
		out.Evaluation, in.EvaluationKey, in.Clears)
	if err != nil {
		return Recorded{}, fmt.Errorf("record build %d: %w", number, err)
	}
	return out, nil
}

// countBuild takes the number of the last of the builds and publishes all.
func countBuild(ctx context.Context, tx pgx.Tx, deploymentID string, changed []int64) error {
	if _, err := tx.Exec(ctx, `UPDATE deployments SET next_build = next_build + 1 WHERE id = $1`, deploymentID); err != nil {
		return fmt.Errorf("count the build: %w", err)
	}
	return publish(ctx, tx, deploymentID, changed...)
}

// supersede ends every queued deploy in favour of build by and returns their
// numbers, oldest first.
func supersede(ctx context.Context, tx pgx.Tx, deploymentID string, by int64) ([]int64, error) {
	rows, err := tx.Query(ctx, `
		WITH ended AS (
			UPDATE builds SET status = 'superseded', finished_at = clock_timestamp(), reason = format('superseded by build %s', $2::bigint)
			WHERE deployment_id = $1 AND status = 'queued' AND action = 'deploy' RETURNING number)
		SELECT number FROM ended ORDER BY number`, deploymentID, by)
	if err != nil {
		return nil, fmt.Errorf("supersede the queued builds: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Destroy is a request to haul a deployment out.
type Destroy struct {
	Deployment string
	Request    string
	WorkflowID string
	// Callback is the offer of a callback, see OfferCallback; empty without.
	Callback string
	// CallbackRefused is why a callback was asked for and is not allowed.
	CallbackRefused string
}

// RecordedDestroy is what a request to haul out became.
type RecordedDestroy struct {
	// Build is the destroy that is queued or runs, or 0.
	Build int64
	// Ours: this request became it, not an earlier one.
	Ours bool
	// Idle: nothing is up, and nothing is on its way.
	Idle bool
	// Newest is the number of the newest build then, or 0; only with Idle.
	Newest int64 `json:",omitempty"`
	// Callback: the offered callback is that of the build now.
	Callback bool
}

// RecordDestroy supersedes every queued deploy and queues a destroy, unless
// one is queued or runs, or the deployment is idle. An offered callback becomes
// that of the build, in place of an earlier one. It returns
// deployment.ErrUnknown for a deployment that slipway does not know.
func (s *Store) RecordDestroy(ctx context.Context, in Destroy) (RecordedDestroy, error) {
	var out RecordedDestroy
	err := s.transact(ctx, in.Deployment, func(tx pgx.Tx) error {
		var number, before int64
		err := tx.QueryRow(ctx, `
			SELECT next_build, coalesce(before.number, 0), coalesce(before.request = $2, true)
			FROM deployments d
			LEFT JOIN LATERAL (
				SELECT number, request FROM builds
				WHERE deployment_id = d.id AND action = 'destroy' AND (status IN ('queued', 'running') OR request = $2)
				ORDER BY request = $2 DESC, number DESC LIMIT 1
			) before ON true
			WHERE d.id = $1`, in.Deployment, in.Request).Scan(&number, &before, &out.Ours)
		if err != nil {
			return fmt.Errorf("look for a destroy: %w", err)
		}
		by := number
		if before != 0 {
			by = before
		}
		changed, err := supersede(ctx, tx, in.Deployment, by)
		if err != nil {
			return err
		}
		if before != 0 {
			out.Build = before
			if out.Callback, err = takeCallback(ctx, tx, deployment.Ref{Deployment: in.Deployment, Build: before}, in.Callback); err != nil {
				return err
			}
			if out.Callback {
				changed = append(changed, before)
			}
			return publish(ctx, tx, in.Deployment, changed...)
		}
		var state deployment.State
		if err := tx.QueryRow(ctx, `SELECT state FROM deployment_states WHERE deployment_id = $1`, in.Deployment).Scan(&state); err != nil {
			return fmt.Errorf("read the state: %w", err)
		}
		if state == deployment.StateIdle {
			out.Idle, out.Newest = true, number-1
			if err := dropOffer(ctx, tx, in.Callback); err != nil {
				return err
			}
			// A superseded build tells which one took its place; here none did.
			if _, err := tx.Exec(ctx, `UPDATE builds SET reason = 'superseded by a destroy' WHERE deployment_id = $1 AND number = ANY ($2)`,
				in.Deployment, changed); err != nil {
				return fmt.Errorf("explain the superseded builds: %w", err)
			}
			return publish(ctx, tx, in.Deployment, changed...)
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO builds (deployment_id, number, action, request, workflow_id, created_at, callback, callback_reason)
			VALUES ($1, $2, 'destroy', $3, $4, clock_timestamp(), CASE WHEN $5 <> '' THEN 'refused' END, $5)`,
			in.Deployment, number, in.Request, in.WorkflowID, in.CallbackRefused)
		if err != nil {
			return fmt.Errorf("record build %d: %w", number, err)
		}
		out.Build = number
		if out.Callback, err = takeCallback(ctx, tx, deployment.Ref{Deployment: in.Deployment, Build: number}, in.Callback); err != nil {
			return err
		}
		return countBuild(ctx, tx, in.Deployment, append(changed, number))
	})
	return out, err
}

// BelongsTo is ErrNotItsBuild where a build is not that of a workflow.
func (s *Store) BelongsTo(ctx context.Context, ref deployment.Ref, workflowID string) error {
	var belongs bool
	err := s.pool.QueryRow(ctx, `SELECT exists (SELECT FROM builds WHERE deployment_id = $1 AND number = $2 AND workflow_id = $3)`,
		ref.Deployment, ref.Build, workflowID).Scan(&belongs)
	if err != nil {
		return fmt.Errorf("look whose build %s is: %w", ref, err)
	}
	if !belongs {
		return ErrNotItsBuild
	}
	return nil
}

// Turn is what a build may do next.
type Turn string

// A build has its turn, waits for an older one, or has ended meanwhile.
const (
	TurnTaken Turn = "taken"
	TurnWait  Turn = "wait"
	TurnEnded Turn = "ended"
)

// TakeTurn makes a queued build the running one of its deployment, if no
// older build is queued or runs. A build that has its turn keeps it.
func (s *Store) TakeTurn(ctx context.Context, ref deployment.Ref) (Turn, error) {
	var turn Turn
	err := s.transact(ctx, ref.Deployment, func(tx pgx.Tx) error {
		var status deployment.Status
		var older int64
		err := tx.QueryRow(ctx, `
			SELECT status, coalesce((
				SELECT min(number) FROM builds
				WHERE deployment_id = $1 AND status IN ('queued', 'running') AND number < $2), 0)
			FROM builds WHERE deployment_id = $1 AND number = $2`, ref.Deployment, ref.Build).Scan(&status, &older)
		switch {
		case err != nil:
			return fmt.Errorf("read build %s: %w", ref, orUnknown(err))
		case status.Ended():
			turn = TurnEnded
			return nil
		case status == deployment.StatusRunning:
			turn = TurnTaken
			return nil
		case older != 0:
			turn = TurnWait
			return nil
		}
		turn = TurnTaken
		if _, err := tx.Exec(ctx, `
			UPDATE builds SET status = 'running', started_at = clock_timestamp()
			WHERE deployment_id = $1 AND number = $2`, ref.Deployment, ref.Build); err != nil {
			return fmt.Errorf("give build %s its turn: %w", ref, err)
		}
		return publish(ctx, tx, ref.Deployment, ref.Build)
	})
	return turn, err
}

// Cancel ends a queued build, and marks a running one so that its deployer is
// asked to stop. It returns the status that the build has then.
func (s *Store) Cancel(ctx context.Context, ref deployment.Ref) (deployment.Status, error) {
	var status deployment.Status
	err := s.transact(ctx, ref.Deployment, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			UPDATE builds SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
				status = CASE status WHEN 'queued' THEN 'cancelled' ELSE status END,
				reason = CASE status WHEN 'queued' THEN 'cancelled while queued' ELSE reason END,
				finished_at = CASE status WHEN 'queued' THEN clock_timestamp() END
			WHERE deployment_id = $1 AND number = $2 AND status IN ('queued', 'running')
			RETURNING status`, ref.Deployment, ref.Build).Scan(&status)
		if errors.Is(err, pgx.ErrNoRows) {
			err = tx.QueryRow(ctx, `SELECT status FROM builds WHERE deployment_id = $1 AND number = $2`,
				ref.Deployment, ref.Build).Scan(&status)
			return orUnknown(err)
		}
		if err != nil {
			return fmt.Errorf("cancel build %s: %w", ref, err)
		}
		if status != deployment.StatusCancelled {
			return nil
		}
		if err := skipCallback(ctx, tx, ref); err != nil {
			return err
		}
		return publish(ctx, tx, ref.Deployment, ref.Build)
	})
	return status, err
}

// End says how to end a build that its deployer left no exit for.
type End struct {
	Cancelled bool
	// Reason is for a person.
	Reason string
}

// Ended is how a build ended.
type Ended struct {
	Status deployment.Status
	Reason string
	// Callback: a front-end waits to be called.
	Callback bool `json:",omitempty"`
}

// FenceHeldError: the build cannot end yet, a deployer may still run for it.
type FenceHeldError struct{ Left time.Duration }

func (e *FenceHeldError) Error() string {
	return fmt.Sprintf("a deployer may still run, for at most %s", e.Left.Round(time.Second))
}

// Finish ends a build. The staged exit of the deployer decides, however the
// caller came to know of the end; only without one does otherwise. A build
// that has ended stays as it is. It returns a *FenceHeldError while a deployer
// without an exit may still run. The staged SBOMs of a build that succeeded are
// those of its deployment from the same moment.
func (s *Store) Finish(ctx context.Context, ref deployment.Ref, otherwise End) (Ended, error) {
	var (
		out    Ended
		action string
		ran    float64 // seconds
		ended  bool    // by us
	)
	err := s.transact(ctx, ref.Deployment, func(tx pgx.Tx) error {
		var (
			exit      deployment.Exit
			code      *int
			reason    *string
			cancelled *bool
			left      float64
			waits     bool
		)
		err := tx.QueryRow(ctx, `
			SELECT status, reason, exit_code, exit_reason, exit_cancelled,
			       coalesce(extract(epoch FROM fence_until - clock_timestamp()), 0)::float8, callback_url IS NOT NULL,
			       action, coalesce(extract(epoch FROM clock_timestamp() - started_at), 0)::float8
			FROM builds WHERE deployment_id = $1 AND number = $2`, ref.Deployment, ref.Build).
			Scan(&out.Status, &out.Reason, &code, &reason, &cancelled, &left, &waits, &action, &ran)
		if err != nil {
			return fmt.Errorf("read build %s: %w", ref, orUnknown(err))
		}
		if out.Status.Ended() {
			out.Callback = waits
			return nil
		}
		if code == nil && left > 0 {
			return &FenceHeldError{Left: time.Duration(left * float64(time.Second))}
		}
		if code != nil {
			exit = deployment.Exit{Code: *code, Reason: *reason, Cancelled: *cancelled}
		} else {
			exit = deployment.Exit{Code: -1, Reason: otherwise.Reason, Cancelled: otherwise.Cancelled}
		}
		out = Ended{Status: statusOf(exit), Reason: exit.Reason}
		if _, err := tx.Exec(ctx, `
			UPDATE builds SET status = $3, reason = $4, finished_at = clock_timestamp()
			WHERE deployment_id = $1 AND number = $2`, ref.Deployment, ref.Build, out.Status, out.Reason); err != nil {
			return fmt.Errorf("end build %s: %w", ref, err)
		}
		if out.Status == deployment.StatusSucceeded {
			out.Callback = waits
		} else if err := skipCallback(ctx, tx, ref); err != nil {
			return err
		}
		if err := takeSBOMs(ctx, tx, ref); err != nil {
			return fmt.Errorf("end build %s: %w", ref, err)
		}
		ended = true
		return publish(ctx, tx, ref.Deployment, ref.Build)
	})
	if err == nil && ended {
		s.durations.WithLabelValues(action, string(out.Status)).Observe(ran)
	}
	return out, err
}

func statusOf(exit deployment.Exit) deployment.Status {
	switch {
	case exit.Code == 0:
		return deployment.StatusSucceeded
	case exit.Cancelled:
		return deployment.StatusCancelled
	default:
		return deployment.StatusFailed
	}
}

// Pending is a build that has not ended and the workflow that should end it.
type Pending struct {
	deployment.Ref
	WorkflowID string
	// CancelRequested: somebody cancelled it while it ran.
	CancelRequested bool
}

// Pending lists the builds that have not ended and are older than age.
func (s *Store) Pending(ctx context.Context, age time.Duration) ([]Pending, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT deployment_id, number, workflow_id, cancel_requested_at IS NOT NULL FROM builds
		WHERE status IN ('queued', 'running') AND created_at < clock_timestamp() - $1::interval
		ORDER BY created_at`, age)
	if err != nil {
		return nil, fmt.Errorf("list the builds that have not ended: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Pending, err error) {
		return p, row.Scan(&p.Deployment, &p.Build, &p.WorkflowID, &p.CancelRequested)
	})
}
