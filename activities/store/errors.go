package store

import (
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"slipway.dev/slipway/schema/deployment"
)

// orUnknown makes the absence of a row the error that the rest of slipway
// knows.
func orUnknown(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return deployment.ErrUnknown
	}
	return err
}

func isUndefinedTable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == pgerrcode.UndefinedTable
}
