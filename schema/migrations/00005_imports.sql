-- +goose Up

CREATE TABLE imports (
    deployment_id      text PRIMARY KEY REFERENCES deployments (id),
    request            text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    snapshot           text NOT NULL,
    configuration      text NOT NULL,
    configuration_hash bytea NOT NULL,
    nodes              jsonb,
    deploy             boolean NOT NULL
);
COMMENT ON TABLE imports IS
    'How a deployment came to slipway that was imported: once, before all of its builds.';
COMMENT ON COLUMN imports.request IS
    'What makes the import unique: the hash of an idempotency key, or a UUID.';
COMMENT ON COLUMN imports.snapshot IS 'Store path of the module source whose schema accepted the configuration.';
COMMENT ON COLUMN imports.configuration IS
    'Canonical JSON without secret values: the configuration of the deployment until its first submit.';
COMMENT ON COLUMN imports.configuration_hash IS
    'SHA-256 of the configuration that was asked for; what an idempotency key is compared by.';
COMMENT ON COLUMN imports.nodes IS 'Array of {"name", "names"} as the evaluation gave it.';
COMMENT ON COLUMN imports.deploy IS 'Whether the import became build 1.';

ALTER TABLE preparing ADD COLUMN import boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN preparing.import IS 'An import: nobody else may make the deployment known meanwhile.';

-- +goose Down
ALTER TABLE preparing DROP COLUMN import;
DROP TABLE imports;
