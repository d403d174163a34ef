-- +goose Up

CREATE TABLE deployments (
    id          text PRIMARY KEY CHECK (id ~ '^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$'),
    created_at  timestamptz NOT NULL DEFAULT now(),
    next_build  bigint NOT NULL DEFAULT 1 CHECK (next_build >= 1),
    next_event  bigint NOT NULL DEFAULT 1 CHECK (next_event >= 1)
);
COMMENT ON TABLE deployments IS
    'A deployment that slipway knows. Its row lock orders all that happens to it: builds, turns, events.';
COMMENT ON COLUMN deployments.next_build IS 'Number of the next build.';
COMMENT ON COLUMN deployments.next_event IS
    'Sequence of the next event of the channel. Raised under the row lock, so that events commit in order.';

CREATE TABLE builds (
    deployment_id       text NOT NULL REFERENCES deployments (id),
    number              bigint NOT NULL CHECK (number >= 1),
    action              text NOT NULL CHECK (action IN ('deploy', 'destroy')),
    status              text NOT NULL DEFAULT 'queued'
        CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'superseded')),
    reason              text NOT NULL DEFAULT '',
    created_at          timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    finished_at         timestamptz,
    cancel_requested_at timestamptz,
    workflow_id         text NOT NULL,
    request             text NOT NULL,
    -- What a submit gave.
    evaluation          text CHECK (evaluation IN ('evaluated', 'skipped')),
    nodes               jsonb,
    configuration       text,
    configuration_hash  bytea,
    snapshot            text,
    -- What the deployer left.
    deployer            text,
    deployer_started_at timestamptz,
    fence               uuid,
    fence_until         timestamptz,
    exit_code           integer,
    exit_reason         text,
    exit_cancelled      boolean,
    PRIMARY KEY (deployment_id, number),
    UNIQUE (deployment_id, request),
    CHECK ((status IN ('queued', 'running')) = (finished_at IS NULL)),
    CHECK (status <> 'running' OR started_at IS NOT NULL),
    CHECK (status <> 'superseded' OR started_at IS NULL),
    CHECK ((action = 'deploy') = (configuration IS NOT NULL)),
    CHECK ((action = 'deploy') = (configuration_hash IS NOT NULL)),
    CHECK ((action = 'deploy') = (snapshot IS NOT NULL)),
    CHECK ((action = 'deploy') = (evaluation IS NOT NULL)),
    CHECK ((fence IS NULL) = (fence_until IS NULL)),
    CHECK ((exit_code IS NULL) = (exit_reason IS NULL)),
    CHECK ((exit_code IS NULL) = (exit_cancelled IS NULL))
);
COMMENT ON TABLE builds IS 'One run of the deployer for a deployment, from its record to its end.';
COMMENT ON COLUMN builds.started_at IS 'When the build got its turn.';
COMMENT ON COLUMN builds.request IS
    'What makes the request that became this build unique: the hash of an idempotency key, or a UUID.';
COMMENT ON COLUMN builds.nodes IS 'Array of {"name", "names"} as the evaluation gave it; null when it was skipped.';
COMMENT ON COLUMN builds.configuration IS
    'Canonical JSON without secret values. Text, so that a number comes back as it was written.';
COMMENT ON COLUMN builds.configuration_hash IS 'SHA-256 of configuration; what an idempotency key is compared by.';
COMMENT ON COLUMN builds.snapshot IS 'Store path of the module source that the build deploys.';
COMMENT ON COLUMN builds.deployer IS 'Realised deployer of the snapshot, kept by a GC root; a destroy runs it again.';
COMMENT ON COLUMN builds.deployer_started_at IS 'When a deployer first ran for this build: from then on something may be up.';
COMMENT ON COLUMN builds.fence IS 'The supervisor that may run a deployer for this build.';
COMMENT ON COLUMN builds.fence_until IS 'A deployer may run until then, by the clock of the database.';
COMMENT ON COLUMN builds.exit_code IS
    'Staged by the supervisor before anybody hears of it: a deploy that succeeded is never recorded as failed.';

-- At most one build of a deployment runs.
CREATE UNIQUE INDEX builds_one_running ON builds (deployment_id) WHERE status = 'running';
CREATE INDEX builds_pending ON builds (deployment_id, number DESC) WHERE status IN ('queued', 'running');
CREATE INDEX builds_finished ON builds (deployment_id, finished_at DESC, number DESC)
    WHERE status IN ('succeeded', 'failed') OR (status = 'cancelled' AND started_at IS NOT NULL);
CREATE INDEX builds_succeeded ON builds (deployment_id, number DESC) WHERE status = 'succeeded';
CREATE INDEX builds_submitted ON builds (deployment_id, number DESC) WHERE action = 'deploy';
CREATE INDEX builds_deployed ON builds (deployment_id, number DESC)
    WHERE action = 'deploy' AND deployer_started_at IS NOT NULL;

-- The rule of schema/deployment, in SQL: the state of a deployment follows
-- from its builds.
CREATE VIEW deployment_states AS
SELECT d.id AS deployment_id,
       CASE
           WHEN pending.action = 'deploy' THEN 'building'
           WHEN pending.action = 'destroy' THEN 'destroying'
           WHEN finished.status IN ('failed', 'cancelled') THEN 'failed'
           WHEN finished.action = 'deploy' THEN 'active'
           ELSE 'idle'
       END AS state,
       COALESCE(pending.created_at, finished.finished_at, d.created_at) AS since,
       CASE
           WHEN pending.status = 'queued' AND running.number IS NOT NULL
               THEN format('build %s waits for build %s', pending.number, running.number)
           WHEN pending.status = 'queued' THEN format('build %s is queued', pending.number)
           WHEN pending.status = 'running' THEN format('build %s runs', pending.number)
           WHEN finished.status IN ('failed', 'cancelled')
               THEN format('build %s %s', finished.number, finished.status)
                    || CASE WHEN finished.reason IN ('', finished.status) THEN '' ELSE ': ' || finished.reason END
           ELSE ''
       END AS reason,
       CASE WHEN succeeded.action = 'deploy' THEN succeeded.number END AS live
FROM deployments d
LEFT JOIN LATERAL (
    SELECT number, action, status, created_at FROM builds
    WHERE deployment_id = d.id AND status IN ('queued', 'running')
    ORDER BY number DESC LIMIT 1
) pending ON true
LEFT JOIN LATERAL (
    SELECT number FROM builds WHERE deployment_id = d.id AND status = 'running'
) running ON true
LEFT JOIN LATERAL (
    SELECT number, action, status, reason, finished_at FROM builds
    WHERE deployment_id = d.id
      AND (status IN ('succeeded', 'failed') OR (status = 'cancelled' AND started_at IS NOT NULL))
    ORDER BY finished_at DESC, number DESC LIMIT 1
) finished ON true
LEFT JOIN LATERAL (
    SELECT number, action FROM builds
    WHERE deployment_id = d.id AND status = 'succeeded'
    ORDER BY number DESC LIMIT 1
) succeeded ON true;

CREATE TABLE build_log (
    deployment_id text NOT NULL,
    number        bigint NOT NULL,
    start         bigint NOT NULL CHECK (start >= 0),
    data          bytea NOT NULL CHECK (length(data) > 0),
    PRIMARY KEY (deployment_id, number, start),
    FOREIGN KEY (deployment_id, number) REFERENCES builds (deployment_id, number)
);
COMMENT ON TABLE build_log IS
    'The log of a build in pieces of UTF-8 that follow each other without gaps. Written by the holder of the fence only.';
COMMENT ON COLUMN build_log.start IS 'Offset in bytes of the first byte of data.';
ALTER TABLE build_log ALTER COLUMN data SET COMPRESSION lz4;

CREATE TABLE events (
    deployment_id text NOT NULL REFERENCES deployments (id),
    sequence      bigint NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('state', 'build')),
    build         bigint NOT NULL DEFAULT 0,
    status        text NOT NULL DEFAULT '',
    data          text NOT NULL,
    PRIMARY KEY (deployment_id, sequence)
);
COMMENT ON TABLE events IS 'The newest events of the channel of each deployment, as they are sent.';
COMMENT ON COLUMN events.build IS 'The build of a build event, 0 for a state event.';

CREATE TABLE snapshots (
    store_path    text PRIMARY KEY,
    built_at      timestamptz NOT NULL DEFAULT now(),
    schema        text NOT NULL,
    method        text,
    methods       text[] NOT NULL,
    renames       jsonb NOT NULL,
    deployer      text NOT NULL
);
COMMENT ON TABLE snapshots IS 'What was evaluated once from a snapshot of the module source.';
COMMENT ON COLUMN snapshots.deployer IS 'Path of the realised deployer.';

CREATE TABLE source (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    store_path text REFERENCES snapshots (store_path),
    problem    text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE source IS
    'The snapshot that a submit is checked against: the newest that evaluated, or none yet.';
COMMENT ON COLUMN source.problem IS 'Why the source as it is now does not evaluate; empty when it does.';

CREATE TABLE evaluations (
    key        text PRIMARY KEY,
    result     text,
    refusal    jsonb,
    used_at    timestamptz NOT NULL DEFAULT now(),
    CHECK ((result IS NULL) <> (refusal IS NULL))
);
COMMENT ON TABLE evaluations IS
    'What evaluating a configuration gave, so that it happens once. Bounded: the least recently used rows go.';
COMMENT ON COLUMN evaluations.key IS
    'SHA-256 over snapshot, entry, version of Nix, attribute and canonical configuration.';
CREATE INDEX evaluations_used_at ON evaluations (used_at);

CREATE TABLE keys (
    name  text PRIMARY KEY,
    value bytea NOT NULL
);
COMMENT ON TABLE keys IS 'Random keys that all replicas share, such as the one that signs tickets of the channel.';

-- +goose Down
DROP TABLE keys, evaluations, source, snapshots, events, build_log CASCADE;
DROP VIEW deployment_states;
DROP TABLE builds, deployments CASCADE;
