package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

// unchanged are the nodes of a deployment that is up, $1, whose SBOMs slipway
// has no row of: $2 says so.
const unchanged = `
	SELECT e ->> 'name' AS node, $2::text AS reason
	FROM (SELECT action, nodes FROM builds WHERE deployment_id = $1 AND status = 'succeeded' ORDER BY number DESC LIMIT 1) b
	CROSS JOIN jsonb_array_elements(b.nodes) e
	WHERE b.action = 'deploy' AND NOT exists (SELECT FROM sbom_nodes WHERE deployment_id = $1 AND node = e ->> 'name')`

// SBOMs reads the state of the SBOM of each node of a deployment, in the order
// of their names. It returns deployment.ErrUnknown.
func (s *Store) SBOMs(ctx context.Context, id string) ([]deployment.NodeSBOM, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT n.* FROM deployments
		LEFT JOIN LATERAL (
			SELECT n.node, n.reason, n.build, b.finished_at, coalesce(d.spec_version, ''), d.components
			FROM sbom_nodes n
			LEFT JOIN builds b ON b.deployment_id = $1 AND b.number = n.build
			LEFT JOIN sbom_documents d ON d.id = n.document_id
			WHERE n.deployment_id = $1
			UNION ALL
			SELECT node, reason, NULL, NULL, '', NULL FROM (`+unchanged+`) u
		) n ON true
		WHERE deployments.id = $1`, id, sbom.ErrUnchanged.Error())
	if err != nil {
		return nil, fmt.Errorf("read the SBOMs of %s: %w", id, err)
	}
	nodes := []deployment.NodeSBOM{}
	var node, reason, version *string
	var n deployment.NodeSBOM
	tag, err := pgx.ForEachRow(rows, []any{&node, &reason, &n.Build, &n.Time, &version, &n.Components}, func() error {
		if node == nil {
			return nil
		}
		n.Node, n.Reason, n.SpecVersion, n.Status = *node, *reason, *version, deployment.SBOMReady
		if n.Reason != "" {
			n.Status = deployment.SBOMUnavailable
		}
		if n.Time != nil {
			utc := n.Time.UTC()
			n.Time = &utc
		}
		nodes = append(nodes, n)
		n = deployment.NodeSBOM{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the SBOMs of %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return nil, deployment.ErrUnknown
	}
	slices.SortFunc(nodes, func(a, b deployment.NodeSBOM) int { return strings.Compare(a.Node, b.Node) })
	return nodes, nil
}

// stored is a document in the database.
type stored struct {
	deployment.SBOMDocument
	id         int64
	components int
	ids        []byte // see sbom_documents.component_ids
}

// The documents that a node can have.
const (
	current = "document_id"
	earlier = "earlier_id"
)

// selectDocument reads the document of node $3 of deployment $1, see unchanged.
func selectDocument(which string) string {
	return `
		SELECT n.reason, d.id, d.build, d.spec_version, d.sha256, d.size, d.components, d.component_ids
		FROM (
			SELECT ` + which + ` AS document_id, reason FROM sbom_nodes WHERE deployment_id = $1 AND node = $3
			UNION ALL
			SELECT NULL, reason FROM (` + unchanged + `) u WHERE node = $3
		) n
		LEFT JOIN sbom_documents d ON d.id = n.document_id`
}

// scanDocument reads a row of selectDocument. It returns deployment.ErrUnknown
// and deployment.NoSBOM.
func scanDocument(row pgx.Row, id, node string) (stored, error) {
	var (
		d                     = stored{SBOMDocument: deployment.SBOMDocument{Node: node}}
		reason                string
		document, build, size *int64
		components            *int
		version               *string
		hash                  []byte
	)
	err := row.Scan(&reason, &document, &build, &version, &hash, &size, &components, &d.ids)
	switch {
	case err != nil:
		return d, fmt.Errorf("read the SBOM of node %s of %s: %w", node, id, orUnknown(err))
	case document == nil && reason == "":
		return d, deployment.NoSBOM{Reason: "the node had no SBOM before this one"}
	case document == nil:
		return d, deployment.NoSBOM{Reason: reason}
	}
	d.id, d.Build, d.SpecVersion, d.Size, d.components = *document, *build, *version, *size, *components
	copy(d.SHA256[:], hash)
	return d, nil
}

func document(ctx context.Context, q querier, id, node, which string) (stored, error) {
	return scanDocument(q.QueryRow(ctx, selectDocument(which), id, sbom.ErrUnchanged.Error(), node), id, node)
}

// SBOM describes the document of a node. It returns deployment.ErrUnknown, also
// for a node that the deployment does not have, and deployment.NoSBOM.
func (s *Store) SBOM(ctx context.Context, id, node string) (deployment.SBOMDocument, error) {
	d, err := document(ctx, s.pool, id, node, current)
	return d.SBOMDocument, err
}

// smallDocument is the size in bytes up to which a document is read in one round
// trip, with all of its components in memory beside it.
const smallDocument = 8 << 20

// SBOMText puts the document of a node together again. It needs the memory of
// the document and some MiB. It returns what SBOM does.
func (s *Store) SBOMText(ctx context.Context, id, node string) (deployment.SBOMDocument, []byte, error) {
	var d stored
	var text []byte
	var remainder []byte
	source := &components{at: map[int64][2]int{}}
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`)
	batch.Queue(selectDocument(current), id, sbom.ErrUnchanged.Error(), node).QueryRow(func(row pgx.Row) (err error) {
		d, err = scanDocument(row, id, node)
		return err
	})
	batch.Queue(`
		SELECT r.text FROM sbom_nodes n
		JOIN sbom_documents d ON d.id = n.document_id AND d.size <= $3
		JOIN sbom_remainders r ON r.document_id = d.id
		WHERE n.deployment_id = $1 AND n.node = $2 ORDER BY r.part`, id, node, smallDocument).Query(func(rows pgx.Rows) error {
		var part pgtype.DriverBytes
		_, err := pgx.ForEachRow(rows, []any{&part}, func() error {
			remainder = append(remainder, part...)
			return nil
		})
		return err
	})
	// A document has few runs of components that follow each other: looking each
	// component up by itself takes three times as long.
	batch.Queue(`
		SELECT c.id, c.text FROM (
			SELECT min(c) AS first, max(c) AS last FROM (
				SELECT c, c - row_number() OVER (ORDER BY c) AS run FROM sbom_nodes n
				JOIN sbom_documents d ON d.id = n.document_id AND d.size <= $3
				JOIN sbom_document_components u ON u.document_id = d.id
				CROSS JOIN unnest(u.components) AS c
				WHERE n.deployment_id = $1 AND n.node = $2
			) numbered GROUP BY run
		) runs
		JOIN sbom_components c ON c.id BETWEEN runs.first AND runs.last`, id, node, smallDocument).Query(source.keep)
	batch.Queue(`COMMIT`)
	err := s.pool.SendBatch(ctx, batch).Close()
	if err == nil && d.Size <= smallDocument {
		if source.ids, err = decodeIDs(d.ids); err == nil {
			text, err = sbom.Join(make([]byte, 0, d.Size), remainder, func() ([]byte, error) { return source.next(ctx) })
		}
	} else if err == nil {
		// Of one moment again: nothing that is collected meanwhile is missing.
		err = pgx.BeginTxFunc(ctx, s.pool, ofOneMoment, func(tx pgx.Tx) (err error) {
			if d, err = document(ctx, tx, id, node, current); err != nil {
				return err
			}
			text, err = assemble(ctx, tx, d)
			return err
		})
	}
	if err == nil && sha256.Sum256(text) != d.SHA256 {
		err = fmt.Errorf("document %d has another SHA-256 than the file that was stored", d.id)
	}
	if err != nil {
		return deployment.SBOMDocument{}, nil, err
	}
	return d.SBOMDocument, text, nil
}

var ofOneMoment = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// assemble reads a document of any size, and only little of it at a time.
func assemble(ctx context.Context, tx pgx.Tx, d stored) ([]byte, error) {
	ids, err := decodeIDs(d.ids)
	if err != nil {
		return nil, fmt.Errorf("put document %d together: %w", d.id, err)
	}
	source := &components{tx: tx, ids: ids}
	if d.components > 0 {
		source.batch = max(1, int(4*batchBytes/(d.Size/int64(d.components)+1)))
	}
	text := make([]byte, 0, d.Size)
	for part := 0; int64(len(text)) < d.Size; part++ {
		var remainder []byte
		err := tx.QueryRow(ctx, `SELECT text FROM sbom_remainders WHERE document_id = $1 AND part = $2`, d.id, part).Scan(&remainder)
		if err == nil {
			text, err = sbom.Join(text, remainder, func() ([]byte, error) { return source.next(ctx) })
		}
		if err != nil {
			return nil, fmt.Errorf("put document %d together: %w", d.id, err)
		}
	}
	return text, nil
}

// components gives the components of a document in their order.
type components struct {
	tx    pgx.Tx // nil: all were kept before
	ids   []int64
	batch int // how many are read at a time
	texts []byte
	at    map[int64][2]int // of each in texts
}

func (c *components) next(ctx context.Context) ([]byte, error) {
	if len(c.ids) == 0 {
		return nil, errors.New("the remainder has more marks than there are components")
	}
	id := c.ids[0]
	span, ok := c.at[id]
	if !ok && c.tx != nil {
		ids := c.ids[:min(c.batch, len(c.ids))]
		c.texts, c.at = c.texts[:0], make(map[int64][2]int, len(ids))
		rows, err := c.tx.Query(ctx, `SELECT id, text FROM sbom_components WHERE id = ANY ($1)`, ids)
		if err == nil {
			err = c.keep(rows)
		}
		if err != nil {
			return nil, err
		}
		span, ok = c.at[id]
	}
	if !ok {
		return nil, fmt.Errorf("component %d is not there", id)
	}
	c.ids = c.ids[1:]
	return c.texts[span[0]:span[1]], nil
}

// keep takes rows of an id and a text. They are not scanned: there are many, and
// the text need not be copied twice.
func (c *components) keep(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		row := rows.RawValues()
		id := int64(binary.BigEndian.Uint64(row[0]))
		c.at[id] = [2]int{len(c.texts), len(c.texts) + len(row[1])}
		c.texts = append(c.texts, row[1]...)
	}
	return rows.Err()
}

// SBOMDiff compares the SBOM of a node with the earlier one: their top-level
// components, each once. It returns what SBOM does, and deployment.NoSBOM where
// there is no earlier one.
func (s *Store) SBOMDiff(ctx context.Context, id, node string) (deployment.SBOMDiff, error) {
	var diff deployment.SBOMDiff
	err := pgx.BeginTxFunc(ctx, s.pool, ofOneMoment, func(tx pgx.Tx) error {
		now, err := document(ctx, tx, id, node, current)
		if err != nil {
			return err
		}
		before, err := document(ctx, tx, id, node, earlier)
		if err != nil {
			return err
		}
		added, err := without(now.ids, before.ids)
		if err != nil {
			return err
		}
		removed, err := without(before.ids, now.ids)
		if err != nil {
			return err
		}
		come, err := describe(ctx, tx, added)
		if err != nil {
			return err
		}
		gone, err := describe(ctx, tx, removed)
		if err != nil {
			return err
		}
		diff = sbom.Diff(come, gone)
		diff.Node, diff.Build, diff.Before = node, now.Build, before.Build
		return nil
	})
	return diff, err
}

// without are the components of one list that another does not have.
func without(of, other []byte) ([]int64, error) {
	ids, err := decodeIDs(of)
	if err != nil {
		return nil, err
	}
	others, err := decodeIDs(other)
	if err != nil {
		return nil, err
	}
	has := make(map[int64]bool, len(others))
	for _, id := range others {
		has[id] = true
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id int64) bool { return has[id] }), nil
}

func describe(ctx context.Context, tx pgx.Tx, ids []int64) ([]deployment.SBOMComponent, error) {
	list := make([]deployment.SBOMComponent, 0, len(ids))
	err := eachComponent(ctx, tx, ids, func(_ int64, all []deployment.SBOMComponent) {
		list = append(list, all[0])
	})
	return list, err
}

type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// eachComponent gives what each component is known by to do, with those in it.
func eachComponent(ctx context.Context, q queryer, ids []int64, do func(id int64, all []deployment.SBOMComponent)) error {
	rows, err := q.Query(ctx, `SELECT id, text FROM sbom_components WHERE id = ANY ($1)`, ids)
	if err != nil {
		return fmt.Errorf("read components: %w", err)
	}
	var id int64
	var text pgtype.DriverBytes
	_, err = pgx.ForEachRow(rows, []any{&id, &text}, func() error {
		all, err := sbom.Components(text)
		if err == nil {
			do(id, all)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read components: %w", err)
	}
	return nil
}

// ComponentUses lists the nodes that have a component which the query is after,
// at any depth of their SBOM: at most limit, in the order of deployments and
// nodes, of all deployments or, where ids is not nil, of those.
func (s *Store) ComponentUses(ctx context.Context, query deployment.ComponentQuery, ids []string, limit int) ([]deployment.ComponentUse, error) {
	rows, err := s.pool.Query(ctx, `SELECT component_id FROM sbom_component_keys WHERE keys @> ARRAY[$1::bigint]`, sbom.Key(query))
	if err != nil {
		return nil, fmt.Errorf("look for components: %w", err)
	}
	candidates, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for components: %w", err)
	}
	found := map[int64][]deployment.SBOMComponent{}
	if err := eachComponent(ctx, s.pool, candidates, func(id int64, all []deployment.SBOMComponent) {
		for _, c := range all {
			if sbom.Matches(query, c) && !slices.Contains(found[id], c) {
				found[id] = append(found[id], c)
			}
		}
	}); err != nil {
		return nil, err
	}
	wanted := make([]int64, 0, len(found))
	for id := range found {
		wanted = append(wanted, id)
	}
	rows, err = s.pool.Query(ctx, `
		SELECT n.deployment_id, n.node, n.build, ARRAY(SELECT unnest(c.components) INTERSECT SELECT unnest($1::bigint[]))
		FROM sbom_document_components c JOIN sbom_nodes n ON n.document_id = c.document_id
		WHERE c.components && $1::bigint[] AND ($2::text[] IS NULL OR n.deployment_id = ANY ($2))
		ORDER BY n.deployment_id, n.node LIMIT $3`, wanted, ids, limit)
	if err != nil {
		return nil, fmt.Errorf("look for nodes: %w", err)
	}
	uses := []deployment.ComponentUse{}
	var use deployment.ComponentUse
	var has []int64
	_, err = pgx.ForEachRow(rows, []any{&use.Deployment, &use.Node, &use.Build, &has}, func() error {
		var here []deployment.SBOMComponent
		for _, id := range has {
			here = append(here, found[id]...)
		}
		slices.SortFunc(here, sbom.Compare)
		for _, use.Component = range slices.Compact(here) {
			if len(uses) < limit {
				uses = append(uses, use)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for nodes: %w", err)
	}
	return uses, nil
}
