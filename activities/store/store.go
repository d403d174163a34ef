package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/prometheus/client_golang/prometheus"

	"slipway.dev/slipway/schema"
	"slipway.dev/slipway/schema/deployment"
)

// Store is the PostgreSQL database of slipway.
type Store struct {
	pool *pgxpool.Pool
	// durations are those of the builds that ended here.
	durations *prometheus.HistogramVec
}

// Open makes a pool of connections to url (postgres://…). It connects when it
// is first used: a database that is away at start comes later.
func Open(ctx context.Context, url string, connections int32) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error of the parser can hold the password.
		return nil, errors.New("the database URL is not of the form postgres://user:password@host:port/database")
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &Store{pool: pool, durations: newDurations()}, nil
}

// Warm makes a first connection, if the database answers, and has it prepare
// what a supervisor asks for, which takes the server longer than the answers: the
// same is asked of no build.
func (s *Store) Warm(ctx context.Context) {
	var none deployment.Ref
	_, _ = s.AcquireFence(ctx, none, uuid.Nil)
	_ = s.AppendLog(ctx, none, uuid.Nil, 0, nil)
	_ = s.StageExit(ctx, none, uuid.Nil, deployment.Exit{})
}

// Close closes all connections.
func (s *Store) Close() { s.pool.Close() }

// Ready says whether the database answers and has the schema that this
// program needs.
func (s *Store) Ready(ctx context.Context) error {
	var version int64
	err := s.pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&version)
	if isUndefinedTable(err) {
		return errors.New("the database has no schema yet: run `slipway migrate`")
	}
	if err != nil {
		return fmt.Errorf("the database does not answer: %w", err)
	}
	if newest, err := newestMigration(); err != nil {
		return err
	} else if version < newest {
		return fmt.Errorf("the database is at migration %d, this program needs %d: run `slipway migrate`", version, newest)
	}
	return nil
}

// Migrate brings the schema of the database up to date and returns the version
// that it has then. Programs that migrate at the same time wait for each other.
func (s *Store) Migrate(ctx context.Context) (int64, error) {
	db := stdlib.OpenDBFromPool(s.pool)
	defer func() { _ = db.Close() }() // the pool stays open
	provider, err := migrations(db)
	if err != nil {
		return 0, err
	}
	if _, err := provider.Up(ctx); err != nil {
		return 0, fmt.Errorf("migrate the database: %w", err)
	}
	return provider.GetDBVersion(ctx)
}

func migrations(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(schema.Migrations, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, fmt.Errorf("make the lock of the migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return provider, nil
}

func newestMigration() (int64, error) {
	names, err := fs.Glob(schema.Migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		newest = max(newest, version)
	}
	return newest, nil
}

// transact runs do in one transaction under the lock of the deployment's row.
// It returns deployment.ErrUnknown where there is none.
func (s *Store) transact(ctx context.Context, deploymentID string, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var id string
		err := tx.QueryRow(ctx, `SELECT id FROM deployments WHERE id = $1 FOR UPDATE`, deploymentID).Scan(&id)
		if err := orUnknown(err); err != nil {
			return fmt.Errorf("lock deployment %s: %w", deploymentID, err)
		}
		return do(tx)
	})
}
