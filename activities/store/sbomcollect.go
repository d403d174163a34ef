package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// collectBatch is how many components are looked at with the lock of the
	// collection, which stores wait for meanwhile.
	collectBatch = 500
	// collectPatience is how long stores that run, and with them those that
	// come, may hold up each other and the collection; then it is left for the
	// next time.
	collectPatience = "500ms"
)

// CollectSBOMs removes the documents that were dropped, and the components that
// only they had. What a store that runs wants stays; one that comes waits for a
// few hundred looks at an index at most. Several may run at once.
func (s *Store) CollectSBOMs(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, `SELECT id FROM sbom_documents WHERE dropped ORDER BY id`)
	if err != nil {
		return fmt.Errorf("list the SBOMs that were dropped: %w", err)
	}
	dropped, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("list the SBOMs that were dropped: %w", err)
	}
	for _, document := range dropped {
		err := s.collect(ctx, document)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == pgerrcode.LockNotAvailable {
			return nil // next time
		}
		if err != nil {
			return fmt.Errorf("collect SBOM %d: %w", document, err)
		}
	}
	return nil
}

func (s *Store) collect(ctx context.Context, document int64) error {
	var encoded []byte
	err := s.pool.QueryRow(ctx, `SELECT component_ids FROM sbom_documents WHERE id = $1`, document).Scan(&encoded)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // another one was faster
	}
	if err != nil {
		return err
	}
	ids, err := decodeIDs(encoded)
	if err != nil {
		return err
	}
	slices.Sort(ids)
	// Most are used by others, which needs no lock to be seen: a document that
	// is dropped after that brings its components here itself.
	var unused []int64
	for batch := range slices.Chunk(slices.Compact(ids), collectBatch) {
		rows, err := s.pool.Query(ctx, `SELECT id FROM unnest($1::bigint[]) AS c (id) WHERE `+isUnused, batch)
		if err != nil {
			return err
		}
		some, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		unused = append(unused, some...)
	}
	for batch := range slices.Chunk(unused, collectBatch) {
		if err := s.removeComponents(ctx, batch); err != nil {
			return err
		}
	}
	_, err = s.pool.Exec(ctx, `DELETE FROM sbom_documents WHERE id = $1`, document)
	return err
}

// isUnused: no document has component c.id. Dropped ones have no row there.
const isUnused = `NOT exists (SELECT FROM sbom_document_components d WHERE d.components @> ARRAY[c.id])`

func (s *Store) removeComponents(ctx context.Context, ids []int64) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '`+collectPatience+`'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(collectLock)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			WITH removed AS (DELETE FROM sbom_components c WHERE id = ANY ($1) AND `+isUnused+` RETURNING id)
			DELETE FROM sbom_component_keys USING removed WHERE component_id = removed.id`, ids)
		return err
	})
}
