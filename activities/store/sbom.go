package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

// collectLock is the advisory lock that stores of SBOMs share, and that the
// collection of garbage has for itself.
const collectLock = 0x736c697073626f6d // "slipsbom"

const (
	// batchHashes is how many components one statement looks for, and
	// batchBytes about how much one writes or reads.
	batchHashes = 10_000
	batchBytes  = 1 << 20
)

// StageSBOM keeps the SBOM of a node for whoever finishes the build, whose fence
// is asked for. The same again is a success. It returns deployment.ErrFenced.
func (s *Store) StageSBOM(ctx context.Context, ref deployment.Ref, fence uuid.UUID, node string, d *sbom.Document) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock_shared($1)`, int64(collectLock)); err != nil {
			return err
		}
		var held, before bool
		err := tx.QueryRow(ctx, `
			SELECT exists (SELECT FROM builds WHERE deployment_id = $1 AND number = $2 AND fence = $3 AND status = 'running'),
			       exists (SELECT FROM sbom_documents WHERE deployment_id = $1 AND build = $2 AND node = $4)`,
			ref.Deployment, ref.Build, fence, node).Scan(&held, &before)
		if err != nil || !held || before {
			if err == nil && !held {
				err = deployment.ErrFenced
			}
			return err
		}
		ids, err := storeComponents(ctx, tx, d)
		if err != nil {
			return err
		}
		if err := storeDocument(ctx, tx, ref, node, d, ids); err != nil {
			return err
		}
		// The row of the build is locked last, and so for a short time: the
		// renewals of the fence need it.
		tag, err := tx.Exec(ctx, `
			SELECT FROM builds WHERE deployment_id = $1 AND number = $2 AND fence = $3 AND status = 'running' FOR SHARE`,
			ref.Deployment, ref.Build, fence)
		if err == nil && tag.RowsAffected() == 0 {
			err = deployment.ErrFenced
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("stage the SBOM of node %s of %s: %w", node, ref, err)
	}
	return nil
}

// storeComponents sees to it that all components are there, and returns their
// identifiers in the order of the document. It writes them in the order of
// their hashes, so that two stores never wait for each other in a circle.
func storeComponents(ctx context.Context, tx pgx.Tx, d *sbom.Document) ([]int64, error) {
	sorted := make([]int32, d.Len()) // places in the document, by hash
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(a, b int32) int {
		if c := bytes.Compare(d.Hashes[a][:], d.Hashes[b][:]); c != 0 {
			return c
		}
		return int(a - b)
	})
	ids := make([]int64, d.Len())
	distinct := slices.CompactFunc(slices.Clone(sorted), func(a, b int32) bool { return d.Hashes[a] == d.Hashes[b] })
	missing, err := findComponents(ctx, tx, d, distinct, ids)
	if err != nil {
		return nil, fmt.Errorf("look for components: %w", err)
	}
	late, err := insertComponents(ctx, tx, d, missing, ids)
	if err != nil {
		return nil, fmt.Errorf("write components: %w", err)
	}
	if late, err = findComponents(ctx, tx, d, late, ids); err != nil {
		return nil, fmt.Errorf("look for components: %w", err)
	}
	if len(late) > 0 {
		return nil, fmt.Errorf("%d components are neither there nor written", len(late))
	}
	for i, place := range sorted { // those that repeat
		if ids[place] == 0 {
			ids[place] = ids[sorted[i-1]]
		}
	}
	return ids, nil
}

// findComponents fills in the identifiers of the components at places, and
// returns the places of those that are not there.
func findComponents(ctx context.Context, tx pgx.Tx, d *sbom.Document, places []int32, ids []int64) ([]int32, error) {
	var missing []int32
	for batch := range slices.Chunk(places, batchHashes) {
		hashes := make([][]byte, len(batch))
		for i, place := range batch {
			hashes[i] = d.Hashes[place][:]
		}
		rows, err := tx.Query(ctx, `
			SELECT wanted.place, c.id FROM unnest($1::bytea[]) WITH ORDINALITY AS wanted (hash, place)
			JOIN sbom_components c ON sha256(c.text) = wanted.hash`, hashes)
		if err != nil {
			return nil, err
		}
		var place, id int64
		if _, err := pgx.ForEachRow(rows, []any{&place, &id}, func() error {
			ids[batch[place-1]] = id
			return nil
		}); err != nil {
			return nil, err
		}
		for _, place := range batch {
			if ids[place] == 0 {
				missing = append(missing, place)
			}
		}
	}
	return missing, nil
}

// insertComponents writes the components at places, and returns the places of
// those that another store wrote first.
func insertComponents(ctx context.Context, tx pgx.Tx, d *sbom.Document, places []int32, ids []int64) ([]int32, error) {
	if len(places) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `SELECT nextval('sbom_component_ids') FROM generate_series(1, $1)`, len(places))
	if err != nil {
		return nil, err
	}
	fresh, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	given := make(map[int32]int64, len(places))
	for i, place := range slices.Sorted(slices.Values(places)) {
		given[place] = fresh[i]
	}
	var late []int32
	for len(places) > 0 {
		var batch struct {
			ids   []int64
			texts [][]byte
		}
		for size := 0; size < batchBytes && len(batch.ids) < len(places); {
			place := places[len(batch.ids)]
			text := d.Component(int(place))
			batch.ids, batch.texts = append(batch.ids, given[place]), append(batch.texts, text)
			size += len(text)
		}
		rows, err := tx.Query(ctx, `
			INSERT INTO sbom_components (id, text) SELECT * FROM unnest($1::bigint[], $2::bytea[])
			ON CONFLICT DO NOTHING RETURNING id`, batch.ids, batch.texts)
		if err != nil {
			return nil, err
		}
		written, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		var keyed, keys []int64
		for i, place := range places[:len(batch.ids)] {
			if len(written) == 0 || written[0] != batch.ids[i] { // they come back in the order in which they went
				late = append(late, place)
				continue
			}
			written, ids[place] = written[1:], batch.ids[i]
			list, err := sbom.Components(batch.texts[i])
			if err != nil {
				return nil, err
			}
			for _, key := range sbom.Keys(list) {
				keyed, keys = append(keyed, batch.ids[i]), append(keys, key)
			}
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO sbom_component_keys (component_id, keys)
			SELECT id, array_agg(key) FROM unnest($1::bigint[], $2::bigint[]) AS k (id, key) GROUP BY id`, keyed, keys); err != nil {
			return nil, err
		}
		places = places[len(batch.ids):]
	}
	return late, nil
}

func storeDocument(ctx context.Context, tx pgx.Tx, ref deployment.Ref, node string, d *sbom.Document, ids []int64) error {
	distinct := slices.Clone(ids)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	var document int64
	err := tx.QueryRow(ctx, `
		WITH document AS (
			INSERT INTO sbom_documents (deployment_id, build, node, spec_version, sha256, size, components, component_ids)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id
		), components AS (
			INSERT INTO sbom_document_components (document_id, components) SELECT id, $9 FROM document
		)
		SELECT id FROM document`,
		ref.Deployment, ref.Build, node, d.SpecVersion, d.SHA256[:], d.Size, d.Len(), encodeIDs(ids), distinct).Scan(&document)
	if err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	part, size := 0, 0
	text := make([]byte, 0, min(batchBytes, int(d.Size)))
	flush := func() error {
		_, err := tx.Exec(ctx, `INSERT INTO sbom_remainders (document_id, part, text) VALUES ($1, $2, $3)`, document, part, text)
		part, text = part+1, text[:0]
		return err
	}
	for piece := range d.Remainder() {
		for len(piece) > 0 {
			n := min(len(piece), batchBytes-len(text))
			text, piece, size = append(text, piece[:n]...), piece[n:], size+n
			if len(text) == batchBytes {
				if err := flush(); err != nil {
					return fmt.Errorf("write the remainder: %w", err)
				}
			}
		}
	}
	if len(text) > 0 {
		if err := flush(); err != nil {
			return fmt.Errorf("write the remainder: %w", err)
		}
	}
	return nil
}

// StageSBOMs keeps what the deployer said about its nodes, whose SBOMs are
// staged already. It returns deployment.ErrFenced.
func (s *Store) StageSBOMs(ctx context.Context, ref deployment.Ref, fence uuid.UUID, entries []sbom.Entry) error {
	type listed struct {
		Node    string `json:"node"`
		Changed bool   `json:"changed"`
		Reason  string `json:"reason"`
	}
	list := make([]listed, len(entries))
	for i, e := range entries {
		list[i] = listed{Node: e.Node, Changed: e.Changed, Reason: e.Problem}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("write the nodes of %s: %w", ref, err)
	}
	tag, err := s.pool.Exec(ctx, `
		UPDATE builds SET sboms = $4 WHERE deployment_id = $1 AND number = $2 AND fence = $3 AND status = 'running'`,
		ref.Deployment, ref.Build, fence, string(text))
	if err == nil && tag.RowsAffected() == 0 {
		err = deployment.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("stage the nodes of %s: %w", ref, err)
	}
	return nil
}

// takeSBOMs makes what is staged with a build that just ended the SBOMs of its
// deployment, and drops the documents that nobody needs any more. It moves no
// document: whoever finishes a build has seconds for it.
func takeSBOMs(ctx context.Context, tx pgx.Tx, ref deployment.Ref) error {
	_, err := tx.Exec(ctx, `
		DELETE FROM sbom_nodes n USING builds b
		WHERE b.deployment_id = $1 AND b.number = $2 AND b.status = 'succeeded' AND n.deployment_id = $1
		  AND (b.action = 'destroy'
		       OR b.sboms IS NOT NULL AND NOT exists (SELECT FROM jsonb_array_elements(b.sboms) e WHERE e ->> 'node' = n.node))`,
		ref.Deployment, ref.Build)
	if err != nil {
		return fmt.Errorf("remove nodes that are gone: %w", err)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO sbom_nodes AS n (deployment_id, node, build, document_id, reason)
		SELECT $1, e.node, CASE WHEN e.changed THEN b.number END, d.id,
		       CASE WHEN NOT e.changed THEN $3 WHEN d.id IS NULL THEN coalesce(nullif(e.reason, ''), $4) ELSE '' END
		FROM builds b
		CROSS JOIN jsonb_to_recordset(b.sboms) AS e (node text, changed boolean, reason text)
		LEFT JOIN sbom_documents d ON d.deployment_id = $1 AND d.build = $2 AND d.node = e.node AND e.changed
		WHERE b.deployment_id = $1 AND b.number = $2 AND b.status = 'succeeded' AND b.action = 'deploy'
		ON CONFLICT (deployment_id, node) DO UPDATE SET
			build = excluded.build, document_id = excluded.document_id, reason = excluded.reason,
			earlier_id = coalesce(n.document_id, n.earlier_id)
		WHERE excluded.build IS NOT NULL`,
		ref.Deployment, ref.Build, sbom.ErrUnchanged.Error(), sbom.ErrNotGiven.Error())
	if err != nil {
		return fmt.Errorf("take the staged SBOMs: %w", err)
	}
	_, err = tx.Exec(ctx, `
		WITH dropped AS (
			UPDATE sbom_documents d SET dropped = true
			WHERE deployment_id = $1 AND NOT dropped
			  AND NOT exists (SELECT FROM sbom_nodes WHERE document_id = d.id)
			  AND NOT exists (SELECT FROM sbom_nodes WHERE earlier_id = d.id)
			RETURNING id)
		DELETE FROM sbom_document_components USING dropped WHERE document_id = dropped.id`, ref.Deployment)
	if err != nil {
		return fmt.Errorf("drop SBOMs: %w", err)
	}
	return nil
}

// encodeIDs is the form of sbom_documents.component_ids.
func encodeIDs(ids []int64) []byte {
	encoded := make([]byte, 0, 2*len(ids))
	before := int64(0)
	for _, id := range ids {
		encoded = binary.AppendVarint(encoded, id-before)
		before = id
	}
	return encoded
}

func decodeIDs(encoded []byte) ([]int64, error) {
	ids := make([]int64, 0, len(encoded))
	for id := int64(0); len(encoded) > 0; {
		difference, n := binary.Varint(encoded)
		if n <= 0 {
			return nil, errors.New("the list of components is cut off")
		}
		id += difference
		ids, encoded = append(ids, id), encoded[n:]
	}
	return ids, nil
}
