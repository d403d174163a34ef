package store

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway.dev/slipway/schema/deployment"
)

// Source reads what submits are checked against.
func (s *Store) Source(ctx context.Context) (deployment.Source, error) {
	var source deployment.Source
	var schema, renames string
	err := s.pool.QueryRow(ctx, `
		SELECT coalesce(s.store_path, ''), coalesce(s.problem, ''), coalesce(snapshots.schema, ''),
		       snapshots.method, snapshots.methods, coalesce(snapshots.renames::text, '{}')
		FROM (VALUES (true)) one (one)
		LEFT JOIN source s ON s.one = one.one
		LEFT JOIN snapshots ON snapshots.store_path = s.store_path`).Scan(
		&source.Snapshot, &source.Problem, &schema, &source.Method, &source.Methods, &renames)
	if err != nil {
		return source, fmt.Errorf("read the module source: %w", err)
	}
	source.Schema, source.Renames = json.RawMessage(schema), json.RawMessage(renames)
	return source, nil
}

// SourceSnapshot reads what was evaluated from a snapshot. It returns
// deployment.ErrUnknown.
func (s *Store) SourceSnapshot(ctx context.Context, storePath string) (deployment.SourceSnapshot, error) {
	out := deployment.SourceSnapshot{StorePath: storePath}
	var schema, renames string
	err := s.pool.QueryRow(ctx, `SELECT schema, method, methods, renames::text, deployer FROM snapshots WHERE store_path = $1`, storePath).
		Scan(&schema, &out.Method, &out.Methods, &renames, &out.Deployer)
	if err != nil {
		return out, fmt.Errorf("read the snapshot %s: %w", storePath, orUnknown(err))
	}
	out.Schema, out.Renames = json.RawMessage(schema), json.RawMessage(renames)
	return out, nil
}

// Deployer reads the realised deployer of a snapshot; it is empty when the
// snapshot was not evaluated yet.
func (s *Store) Deployer(ctx context.Context, storePath string) (string, error) {
	var deployer string
	err := s.pool.QueryRow(ctx, `SELECT coalesce((SELECT deployer FROM snapshots WHERE store_path = $1), '')`, storePath).Scan(&deployer)
	if err != nil {
		return "", fmt.Errorf("look for the snapshot: %w", err)
	}
	return deployer, nil
}

// KeepSnapshot keeps what was evaluated from a snapshot.
func (s *Store) KeepSnapshot(ctx context.Context, in deployment.SourceSnapshot) error {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO snapshots (store_path, schema, method, methods, renames, deployer)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (store_path) DO UPDATE SET
			built_at = now(), schema = excluded.schema, method = excluded.method,
			methods = excluded.methods, renames = excluded.renames, deployer = excluded.deployer`,
		in.StorePath, string(in.Schema), in.Method, in.Methods, string(in.Renames), in.Deployer)
	if err != nil {
		return fmt.Errorf("keep the snapshot: %w", err)
	}
	return nil
}

// UseSnapshot makes a snapshot that is kept the one that submits are checked
// against.
func (s *Store) UseSnapshot(ctx context.Context, storePath string) error {
	return s.setSource(ctx, &storePath, "")
}

// SourceProblem notes why the source cannot be used as it is now. Submits go on
// with the snapshot that could.
func (s *Store) SourceProblem(ctx context.Context, problem string) error {
	return s.setSource(ctx, nil, problem)
}

func (s *Store) setSource(ctx context.Context, storePath *string, problem string) error {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO source (store_path, problem) VALUES ($1, $2)
		ON CONFLICT (one) DO UPDATE SET
			store_path = coalesce(excluded.store_path, source.store_path), problem = excluded.problem, changed_at = now()
		WHERE (source.store_path, source.problem) IS DISTINCT FROM (coalesce(excluded.store_path, source.store_path), excluded.problem)`,
		storePath, problem)
	if err != nil {
		return fmt.Errorf("note the module source: %w", err)
	}
	return nil
}
