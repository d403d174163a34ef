package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/schema/deployment"
)

// ErrAlreadyExists: slipway knows the deployment, so it cannot be imported.
var ErrAlreadyExists = errors.New("slipway knows this deployment already; submit to it instead")

// Import is an import that passed all checks. It has the deployment in hand.
type Import struct {
	Submit
	// Deploy: it becomes build 1.
	Deploy bool
}

// RecallImport looks for the import that a request became before. It is
// deployment.ErrUnknown when there is none, and ErrOtherConfiguration when that
// one asked for something else.
func (s *Store) RecallImport(ctx context.Context, deploymentID, request string, asked json.RawMessage, deploy bool) (Recorded, error) {
	return recallImport(ctx, s.pool, deploymentID, request, asked, deploy)
}

func recallImport(ctx context.Context, q querier, deploymentID, request string, asked json.RawMessage, deploy bool) (Recorded, error) {
	r := Recorded{Before: true, Evaluation: deployment.EvaluationEvaluated}
	var hash []byte
	var deployed bool
	err := q.QueryRow(ctx, `
		SELECT i.configuration_hash, i.deploy, b.clears FROM imports i
		LEFT JOIN builds b ON b.deployment_id = i.deployment_id AND b.number = 1 AND i.deploy
		WHERE i.deployment_id = $1 AND i.request = $2`, deploymentID, request).Scan(&hash, &deployed, &r.Clears)
	if err != nil {
		return Recorded{}, fmt.Errorf("look for the import: %w", orUnknown(err))
	}
	if sum := sha256.Sum256(asked); !bytes.Equal(hash, sum[:]) || deployed != deploy {
		return Recorded{}, ErrOtherConfiguration
	}
	if deployed {
		r.Build = 1
	}
	return r, nil
}

// Import makes a deployment known, with a configuration and, to deploy it, with
// build 1. The same request again gives what it became before; for any other
// deployment that is known it is ErrAlreadyExists.
func (s *Store) Import(ctx context.Context, in Import) (Recorded, error) {
	var out Recorded
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		asked := in.Asked
		if asked == nil {
			asked = in.Configuration
		}
		tag, err := tx.Exec(ctx, `INSERT INTO deployments (id) VALUES ($1) ON CONFLICT DO NOTHING`, in.Deployment)
		if err != nil {
			return fmt.Errorf("make %s known: %w", in.Deployment, err)
		}
		if tag.RowsAffected() == 0 {
			out, err = recallImport(ctx, tx, in.Deployment, in.Request, asked, in.Deploy)
			if errors.Is(err, deployment.ErrUnknown) {
				return ErrAlreadyExists
			}
			return err
		}
		inHand, err := unprepare(ctx, tx, *in.Prepared)
		if err != nil {
			return fmt.Errorf("let go of the secrets: %w", err)
		}
		if !inHand {
			return ErrInProgress
		}
		sum := sha256.Sum256(asked)
		_, err = tx.Exec(ctx, `
			INSERT INTO imports (deployment_id, request, snapshot, configuration, configuration_hash, deploy, nodes)
			VALUES ($1, $2, $3, $4, $5, $6, (SELECT result::jsonb -> 'nodes' FROM evaluations WHERE key = $7))`,
			in.Deployment, in.Request, in.Snapshot, string(in.Configuration), sum[:], in.Deploy, in.EvaluationKey)
		if err != nil {
			return fmt.Errorf("record the import: %w", err)
		}
		if !in.Deploy {
			out = Recorded{Evaluation: deployment.EvaluationEvaluated}
			return nil
		}
		build := in.Submit
		// A submit may come with the same key, and is another request.
		build.Request = "import/" + in.Request
		if out, err = recordBuild(ctx, tx, build, 1, asked); err != nil {
			return err
		}
		return countBuild(ctx, tx, in.Deployment, []int64{1})
	})
	return out, err
}
