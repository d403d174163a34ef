-- +goose Up

ALTER TABLE builds
    ADD COLUMN callback text CHECK (callback IN ('refused', 'pending', 'skipped', 'delivered', 'failed')),
    ADD COLUMN callback_status integer,
    ADD COLUMN callback_reason text NOT NULL DEFAULT '',
    ADD COLUMN callback_claimed_at timestamptz,
    ADD COLUMN callback_url text,
    ADD COLUMN callback_token text,
    ADD CHECK (callback IS NULL OR action = 'destroy'),
    ADD CHECK ((callback_url IS NULL) = (callback_token IS NULL)),
    ADD CHECK ((callback_url IS NOT NULL) = (callback IS NOT DISTINCT FROM 'pending' AND callback_claimed_at IS NULL));
COMMENT ON COLUMN builds.callback IS 'What became of the call to the front-end when a destroy reached idle; null when none was asked for.';
COMMENT ON COLUMN builds.callback_status IS 'HTTP status that the front-end answered.';
COMMENT ON COLUMN builds.callback_claimed_at IS
    'When the call was claimed, once and before it was made, so that a crash gives at most one call. URL and token go then.';
COMMENT ON COLUMN builds.callback_token IS 'Of the front-end, for one deployment; slipway only stores it and sends it back.';

CREATE TABLE callback_offers (
    id            uuid PRIMARY KEY,
    deployment_id text NOT NULL,
    url           text NOT NULL,
    token         text NOT NULL,
    offered_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE callback_offers IS
    'A callback on its way from a request to the build that the request becomes: Temporal sees only the identifier. A row that nobody took goes after some minutes.';

CREATE INDEX builds_calling ON builds (finished_at) WHERE callback = 'pending' AND finished_at IS NOT NULL;

-- +goose Down
DROP TABLE callback_offers;
ALTER TABLE builds DROP COLUMN callback, DROP COLUMN callback_status, DROP COLUMN callback_reason,
    DROP COLUMN callback_claimed_at, DROP COLUMN callback_url, DROP COLUMN callback_token;
