-- +goose Up

CREATE TABLE preparing (
    deployment_id text PRIMARY KEY CHECK (deployment_id ~ '^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$'),
    workflow_id   text NOT NULL,
    run_id        text NOT NULL,
    since         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE preparing IS
    'Who has the secrets of a deployment in hand, from reading OpenBao until the record of the build, or until they are cleared. One at a time, so that no two submits mix. A sweeper removes the row of a workflow that has ended.';
COMMENT ON COLUMN preparing.deployment_id IS 'Of a deployment that may not be known yet.';

-- +goose Down
DROP TABLE preparing;
