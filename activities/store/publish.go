package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/schema/deployment"
)

// keptEvents is how many of the newest events of a deployment are kept for
// clients that come back.
const keptEvents = 1000

// channel is the PostgreSQL channel that says which build of which deployment
// changed: "<deployment> <build>".
const channel = "slipway"

// publish writes the events of a change: one for each build that changed and,
// where it did, one for the state. It runs under the lock of the deployment's
// row, as the last thing of its transaction.
func publish(ctx context.Context, tx pgx.Tx, deploymentID string, changed ...int64) error {
	if len(changed) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT `+buildColumns+` FROM builds b WHERE deployment_id = $1 AND number = ANY ($2) ORDER BY number`,
		deploymentID, changed)
	if err != nil {
		return fmt.Errorf("read the changed builds: %w", err)
	}
	builds, err := pgx.CollectRows(rows, scanBuild)
	if err != nil {
		return fmt.Errorf("read the changed builds: %w", err)
	}
	var standing deployment.Standing
	var said string
	err = tx.QueryRow(ctx, `
		SELECT state, since, reason, live,
		       coalesce((SELECT data FROM events WHERE deployment_id = $1 AND kind = 'state' ORDER BY sequence DESC LIMIT 1), '')
		FROM deployment_states WHERE deployment_id = $1`, deploymentID).
		Scan(&standing.State, &standing.Since, &standing.Reason, &standing.Live, &said)
	if err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	standing.Since = standing.Since.UTC()
	state, err := json.Marshal(standing)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	var events []deployment.Event
	for _, b := range builds {
		data, err := json.Marshal(b)
		if err != nil {
			return fmt.Errorf("write build %d: %w", b.Number, err)
		}
		events = append(events, deployment.Event{Kind: deployment.EventBuild, Build: b.Number, Data: data, Status: b.Status})
	}
	if string(state) != said {
		events = append(events, deployment.Event{Kind: deployment.EventState, Data: state})
	}
	return appendEvents(ctx, tx, deploymentID, events)
}

func appendEvents(ctx context.Context, tx pgx.Tx, deploymentID string, events []deployment.Event) error {
	var next int64
	err := tx.QueryRow(ctx, `UPDATE deployments SET next_event = next_event + $2 WHERE id = $1 RETURNING next_event`,
		deploymentID, len(events)).Scan(&next)
	if err != nil {
		return fmt.Errorf("count the events: %w", err)
	}
	batch := &pgx.Batch{}
	for i, e := range events {
		sequence := next - int64(len(events)-i)
		batch.Queue(`INSERT INTO events (deployment_id, sequence, kind, build, status, data) VALUES ($1, $2, $3, $4, $5, $6)`,
			deploymentID, sequence, e.Kind, e.Build, e.Status, string(e.Data))
	}
	batch.Queue(`DELETE FROM events WHERE deployment_id = $1 AND sequence < $2`, deploymentID, next-keptEvents)
	batch.Queue(`SELECT pg_notify($1, $2)`, channel, fmt.Sprintf("%s %d", deploymentID, events[0].Build))
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write the events: %w", err)
	}
	return nil
}
