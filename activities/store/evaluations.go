package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

const (
	// keptEvaluations and keptEvaluationBytes bound the evaluation cache.
	keptEvaluations     = 10_000
	keptEvaluationBytes = 256 << 20
)

// Evaluation looks an evaluation up. With neither a result nor a refusal the
// cache has none.
func (s *Store) Evaluation(ctx context.Context, key string) (result json.RawMessage, refusal *wire.Refusal, err error) {
	var text *string
	err = s.pool.QueryRow(ctx, `
		WITH found AS (SELECT key, result, refusal, used_at FROM evaluations WHERE key = $1),
		     used AS (UPDATE evaluations SET used_at = now() FROM found
		              WHERE evaluations.key = found.key AND found.used_at < now() - interval '1 hour')
		SELECT result, refusal FROM found`, key).Scan(&text, &refusal)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look up an evaluation: %w", err)
	}
	if text != nil {
		result = json.RawMessage(*text)
	}
	return result, refusal, nil
}

// KeepEvaluation puts a result or a refusal into the cache.
func (s *Store) KeepEvaluation(ctx context.Context, key string, result json.RawMessage, refusal *wire.Refusal) error {
	var text *string
	if refusal == nil {
		t := string(result)
		text = &t
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO evaluations (key, result, refusal) VALUES ($1, $2, $3)
		ON CONFLICT (key) DO UPDATE SET result = excluded.result, refusal = excluded.refusal, used_at = now()`, key, text, refusal)
	if err != nil {
		return fmt.Errorf("keep an evaluation: %w", err)
	}
	return nil
}

// TrimEvaluations drops the least recently used evaluations over the bounds of
// the cache.
func (s *Store) TrimEvaluations(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		DELETE FROM evaluations WHERE key IN (
			SELECT key FROM (
				SELECT key, row_number() OVER recent AS place, sum(coalesce(length(result), 0)) OVER recent AS bytes
				FROM evaluations WINDOW recent AS (ORDER BY used_at DESC, key)
			) ranked WHERE place > $1 OR bytes > $2)`, keptEvaluations, keptEvaluationBytes)
	if err != nil {
		return fmt.Errorf("trim the evaluations: %w", err)
	}
	return nil
}

// Names reads what an evaluation gave. It returns deployment.ErrUnknown where
// the cache has no result under the key.
func (s *Store) Names(ctx context.Context, key string) (deployment.Names, error) {
	var names deployment.Names
	result, _, err := s.Evaluation(ctx, key)
	if err != nil {
		return names, err
	}
	if result == nil {
		return names, deployment.ErrUnknown
	}
	if err := json.Unmarshal(result, &names); err != nil {
		return names, fmt.Errorf("read the evaluation: %w", err)
	}
	return names, nil
}
