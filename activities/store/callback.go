package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/schema/deployment"
)

// OfferCallback keeps the callback of a request until the request is recorded
// (RecordDestroy), and returns what the offer is known by.
func (s *Store) OfferCallback(ctx context.Context, deploymentID, url, token string) (offer string, err error) {
	offer = uuid.NewString()
	_, err = s.pool.Exec(ctx, `INSERT INTO callback_offers (id, deployment_id, url, token) VALUES ($1, $2, $3, $4)`,
		offer, deploymentID, url, token)
	if err != nil {
		return "", fmt.Errorf("keep a callback of %s: %w", deploymentID, err)
	}
	return offer, nil
}

// DropOffers deletes the offers that nobody took within age.
func (s *Store) DropOffers(ctx context.Context, age time.Duration) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM callback_offers WHERE offered_at < clock_timestamp() - $1::interval`, age); err != nil {
		return fmt.Errorf("delete callbacks that nobody took: %w", err)
	}
	return nil
}

// takeCallback makes an offer the callback of a destroy that is queued or runs,
// in place of an earlier one, and reports whether it is.
func takeCallback(ctx context.Context, tx pgx.Tx, ref deployment.Ref, offer string) (bool, error) {
	if offer == "" {
		return false, nil
	}
	tag, err := tx.Exec(ctx, `
		WITH taken AS (DELETE FROM callback_offers WHERE id = $3 AND deployment_id = $1 RETURNING url, token)
		UPDATE builds SET callback = 'pending', callback_reason = '', callback_url = url, callback_token = token FROM taken
		WHERE builds.deployment_id = $1 AND number = $2 AND status IN ('queued', 'running')`, ref.Deployment, ref.Build, offer)
	if err != nil {
		return false, fmt.Errorf("take the callback of build %s: %w", ref, err)
	}
	if tag.RowsAffected() > 0 {
		return true, nil
	}
	// The same request again, whose answer was lost.
	var taken bool
	err = tx.QueryRow(ctx, `SELECT coalesce(callback <> 'refused', false) FROM builds WHERE deployment_id = $1 AND number = $2`,
		ref.Deployment, ref.Build).Scan(&taken)
	if err != nil {
		return false, fmt.Errorf("look at the callback of build %s: %w", ref, err)
	}
	return taken, nil
}

func dropOffer(ctx context.Context, tx pgx.Tx, offer string) error {
	if offer == "" {
		return nil
	}
	if _, err := tx.Exec(ctx, `DELETE FROM callback_offers WHERE id = $1`, offer); err != nil {
		return fmt.Errorf("delete a callback: %w", err)
	}
	return nil
}

// skipCallback gives up the callback of a destroy that did not succeed.
func skipCallback(ctx context.Context, tx pgx.Tx, ref deployment.Ref) error {
	_, err := settleCallback(ctx, tx, ref, deployment.Callback{State: deployment.CallbackSkipped, Reason: "the destroy did not succeed"})
	return err
}

// ClaimCallback gives the right to make the callback of a destroy that has
// succeeded, once ever: URL and token leave the row with it. Where a later build
// has run or may run the deployment is about to live again, and nobody gets it.
func (s *Store) ClaimCallback(ctx context.Context, ref deployment.Ref) (deployment.Claim, error) {
	var claim deployment.Claim
	err := s.transact(ctx, ref.Deployment, func(tx pgx.Tx) error {
		var later bool
		err := tx.QueryRow(ctx, `
			SELECT callback_url, callback_token, `+livesAgain+`
			FROM builds WHERE deployment_id = $1 AND number = $2 AND callback_url IS NOT NULL AND status = 'succeeded'`,
			ref.Deployment, ref.Build).Scan(&claim.URL, &claim.Token, &later)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			claim.Instead = &deployment.Callback{State: deployment.CallbackFailed,
				Reason: "slipway was interrupted while it called; the call may have been made"}
			return nil
		case err != nil:
			return fmt.Errorf("look at the callback of build %s: %w", ref, err)
		case later:
			claim = deployment.Claim{Instead: &deployment.Callback{State: deployment.CallbackSkipped,
				Reason: "there is a later build"}}
			return nil
		}
		_, err = tx.Exec(ctx, `
			UPDATE builds SET callback_claimed_at = clock_timestamp(), callback_url = NULL, callback_token = NULL
			WHERE deployment_id = $1 AND number = $2`, ref.Deployment, ref.Build)
		if err != nil {
			return fmt.Errorf("claim the callback of build %s: %w", ref, err)
		}
		return nil
	})
	if err != nil {
		return deployment.Claim{}, err
	}
	return claim, nil
}

// SettleCallback notes what became of a callback. One that is settled stays as
// it is.
func (s *Store) SettleCallback(ctx context.Context, ref deployment.Ref, callback deployment.Callback) error {
	return s.transact(ctx, ref.Deployment, func(tx pgx.Tx) error {
		settled, err := settleCallback(ctx, tx, ref, callback)
		if err != nil || !settled {
			return err
		}
		return publish(ctx, tx, ref.Deployment, ref.Build)
	})
}

func settleCallback(ctx context.Context, tx pgx.Tx, ref deployment.Ref, callback deployment.Callback) (bool, error) {
	tag, err := tx.Exec(ctx, `
		UPDATE builds SET callback = $3, callback_status = nullif($4, 0), callback_reason = $5, callback_url = NULL, callback_token = NULL
		WHERE deployment_id = $1 AND number = $2 AND callback = 'pending'`,
		ref.Deployment, ref.Build, callback.State, callback.Status, callback.Reason)
	if err != nil {
		return false, fmt.Errorf("settle the callback of build %s: %w", ref, err)
	}
	return tag.RowsAffected() > 0, nil
}

// Calling lists the destroys that ended longer than age ago and whose callback
// is not settled.
func (s *Store) Calling(ctx context.Context, age time.Duration) ([]Pending, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT deployment_id, number, workflow_id, false FROM builds
		WHERE callback = 'pending' AND finished_at < clock_timestamp() - $1::interval ORDER BY finished_at`, age)
	if err != nil {
		return nil, fmt.Errorf("list the callbacks that are not settled: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Pending, err error) {
		return p, row.Scan(&p.Deployment, &p.Build, &p.WorkflowID, &p.CancelRequested)
	})
}
