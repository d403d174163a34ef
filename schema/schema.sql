-- What the migrations add up to. Written by `make generate`; a test compares.

CREATE TABLE public.build_log (
    deployment_id text NOT NULL,
    number bigint NOT NULL,
    start bigint NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT build_log_data_check CHECK ((length(data) > 0)),
    CONSTRAINT build_log_start_check CHECK ((start >= 0))
);
ALTER TABLE ONLY public.build_log ALTER COLUMN data SET COMPRESSION lz4;
COMMENT ON TABLE public.build_log IS 'The log of a build in pieces of UTF-8 that follow each other without gaps. Written by the holder of the fence only.';
COMMENT ON COLUMN public.build_log.start IS 'Offset in bytes of the first byte of data.';
CREATE TABLE public.builds (
    deployment_id text NOT NULL,
    number bigint NOT NULL,
    action text NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    workflow_id text NOT NULL,
    request text NOT NULL,
    evaluation text,
    nodes jsonb,
    configuration text,
    configuration_hash bytea,
    snapshot text,
    deployer text,
    deployer_started_at timestamp with time zone,
    fence uuid,
    fence_until timestamp with time zone,
    exit_code integer,
    exit_reason text,
    exit_cancelled boolean,
    sboms jsonb,
    callback text,
    callback_status integer,
    callback_reason text DEFAULT ''::text NOT NULL,
    callback_claimed_at timestamp with time zone,
    callback_url text,
    callback_token text,
    clears jsonb,
    CONSTRAINT builds_action_check CHECK ((action = ANY (ARRAY['deploy'::text, 'destroy'::text]))),
    CONSTRAINT builds_callback_check CHECK ((callback = ANY (ARRAY['refused'::text, 'pending'::text, 'skipped'::text, 'delivered'::text, 'failed'::text]))),
    CONSTRAINT builds_check CHECK (((status = ANY (ARRAY['queued'::text, 'running'::text])) = (finished_at IS NULL))),
    CONSTRAINT builds_check1 CHECK (((status <> 'running'::text) OR (started_at IS NOT NULL))),
    CONSTRAINT builds_check10 CHECK (((callback IS NULL) OR (action = 'destroy'::text))),
    CONSTRAINT builds_check11 CHECK (((callback_url IS NULL) = (callback_token IS NULL))),
    CONSTRAINT builds_check12 CHECK (((callback_url IS NOT NULL) = ((NOT (callback IS DISTINCT FROM 'pending'::text)) AND (callback_claimed_at IS NULL)))),
    CONSTRAINT builds_check2 CHECK (((status <> 'superseded'::text) OR (started_at IS NULL))),
    CONSTRAINT builds_check3 CHECK (((action = 'deploy'::text) = (configuration IS NOT NULL))),
    CONSTRAINT builds_check4 CHECK (((action = 'deploy'::text) = (configuration_hash IS NOT NULL))),
    CONSTRAINT builds_check5 CHECK (((action = 'deploy'::text) = (snapshot IS NOT NULL))),
    CONSTRAINT builds_check6 CHECK (((action = 'deploy'::text) = (evaluation IS NOT NULL))),
    CONSTRAINT builds_check7 CHECK (((fence IS NULL) = (fence_until IS NULL))),
    CONSTRAINT builds_check8 CHECK (((exit_code IS NULL) = (exit_reason IS NULL))),
    CONSTRAINT builds_check9 CHECK (((exit_code IS NULL) = (exit_cancelled IS NULL))),
    CONSTRAINT builds_evaluation_check CHECK ((evaluation = ANY (ARRAY['evaluated'::text, 'skipped'::text]))),
    CONSTRAINT builds_number_check CHECK ((number >= 1)),
    CONSTRAINT builds_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text, 'superseded'::text])))
);
COMMENT ON TABLE public.builds IS 'One run of the deployer for a deployment, from its record to its end.';
COMMENT ON COLUMN public.builds.started_at IS 'When the build got its turn.';
COMMENT ON COLUMN public.builds.request IS 'What makes the request that became this build unique: the hash of an idempotency key, or a UUID.';
COMMENT ON COLUMN public.builds.nodes IS 'Array of {"name", "names"} as the evaluation gave it; null when it was skipped.';
COMMENT ON COLUMN public.builds.configuration IS 'Canonical JSON without secret values. Text, so that a number comes back as it was written.';
COMMENT ON COLUMN public.builds.configuration_hash IS 'SHA-256 of configuration; what an idempotency key is compared by.';
COMMENT ON COLUMN public.builds.snapshot IS 'Store path of the module source that the build deploys.';
COMMENT ON COLUMN public.builds.deployer IS 'Realised deployer of the snapshot, kept by a GC root; a destroy runs it again.';
COMMENT ON COLUMN public.builds.deployer_started_at IS 'When a deployer first ran for this build: from then on something may be up.';
COMMENT ON COLUMN public.builds.fence IS 'The supervisor that may run a deployer for this build.';
COMMENT ON COLUMN public.builds.fence_until IS 'A deployer may run until then, by the clock of the database.';
COMMENT ON COLUMN public.builds.exit_code IS 'Staged by the supervisor before anybody hears of it: a deploy that succeeded is never recorded as failed.';
COMMENT ON COLUMN public.builds.sboms IS 'Array of {"node", "changed", "reason"} as the deployer left it; null when it left none. Staged before exit_code.';
COMMENT ON COLUMN public.builds.callback IS 'What became of the call to the front-end when a destroy reached idle; null when none was asked for.';
COMMENT ON COLUMN public.builds.callback_status IS 'HTTP status that the front-end answered.';
COMMENT ON COLUMN public.builds.callback_claimed_at IS 'When the call was claimed, once and before it was made, so that a crash gives at most one call. URL and token go then.';
COMMENT ON COLUMN public.builds.callback_token IS 'Of the front-end, for one deployment; slipway only stores it and sends it back.';
COMMENT ON COLUMN public.builds.clears IS 'The entries of secrets, as they were at the submit, that go once the deploy runs without them; null where there are none. Names and versions, no values.';
CREATE TABLE public.callback_offers (
    id uuid NOT NULL,
    deployment_id text NOT NULL,
    url text NOT NULL,
    token text NOT NULL,
    offered_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE public.callback_offers IS 'A callback on its way from a request to the build that the request becomes: Temporal sees only the identifier. A row that nobody took goes after some minutes.';
CREATE TABLE public.deployments (
    id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    next_build bigint DEFAULT 1 NOT NULL,
    next_event bigint DEFAULT 1 NOT NULL,
    CONSTRAINT deployments_id_check CHECK ((id ~ '^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$'::text)),
    CONSTRAINT deployments_next_build_check CHECK ((next_build >= 1)),
    CONSTRAINT deployments_next_event_check CHECK ((next_event >= 1))
);
COMMENT ON TABLE public.deployments IS 'A deployment that slipway knows. Its row lock orders all that happens to it: builds, turns, events.';
COMMENT ON COLUMN public.deployments.next_build IS 'Number of the next build.';
COMMENT ON COLUMN public.deployments.next_event IS 'Sequence of the next event of the channel. Raised under the row lock, so that events commit in order.';
CREATE VIEW public.deployment_states AS
 SELECT d.id AS deployment_id,
        CASE
            WHEN (pending.action = 'deploy'::text) THEN 'building'::text
            WHEN (pending.action = 'destroy'::text) THEN 'destroying'::text
            WHEN (finished.status = ANY (ARRAY['failed'::text, 'cancelled'::text])) THEN 'failed'::text
            WHEN (finished.action = 'deploy'::text) THEN 'active'::text
            ELSE 'idle'::text
        END AS state,
    COALESCE(pending.created_at, finished.finished_at, d.created_at) AS since,
        CASE
            WHEN ((pending.status = 'queued'::text) AND (running.number IS NOT NULL)) THEN format('build %s waits for build %s'::text, pending.number, running.number)
            WHEN (pending.status = 'queued'::text) THEN format('build %s is queued'::text, pending.number)
            WHEN (pending.status = 'running'::text) THEN format('build %s runs'::text, pending.number)
            WHEN (finished.status = ANY (ARRAY['failed'::text, 'cancelled'::text])) THEN (format('build %s %s'::text, finished.number, finished.status) ||
            CASE
                WHEN ((finished.reason = ''::text) OR (finished.reason = finished.status)) THEN ''::text
                ELSE (': '::text || finished.reason)
            END)
            ELSE ''::text
        END AS reason,
        CASE
            WHEN (succeeded.action = 'deploy'::text) THEN succeeded.number
            ELSE NULL::bigint
        END AS live
   FROM ((((public.deployments d
     LEFT JOIN LATERAL ( SELECT builds.number,
            builds.action,
            builds.status,
            builds.created_at
           FROM public.builds
          WHERE ((builds.deployment_id = d.id) AND (builds.status = ANY (ARRAY['queued'::text, 'running'::text])))
          ORDER BY builds.number DESC
         LIMIT 1) pending ON (true))
     LEFT JOIN LATERAL ( SELECT builds.number
           FROM public.builds
          WHERE ((builds.deployment_id = d.id) AND (builds.status = 'running'::text))) running ON (true))
     LEFT JOIN LATERAL ( SELECT builds.number,
            builds.action,
            builds.status,
            builds.reason,
            builds.finished_at
           FROM public.builds
          WHERE ((builds.deployment_id = d.id) AND ((builds.status = ANY (ARRAY['succeeded'::text, 'failed'::text])) OR ((builds.status = 'cancelled'::text) AND (builds.started_at IS NOT NULL))))
          ORDER BY builds.finished_at DESC, builds.number DESC
         LIMIT 1) finished ON (true))
     LEFT JOIN LATERAL ( SELECT builds.number,
            builds.action
           FROM public.builds
          WHERE ((builds.deployment_id = d.id) AND (builds.status = 'succeeded'::text))
          ORDER BY builds.number DESC
         LIMIT 1) succeeded ON (true));
CREATE TABLE public.evaluations (
    key text NOT NULL,
    result text,
    refusal jsonb,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT evaluations_check CHECK (((result IS NULL) <> (refusal IS NULL)))
);
COMMENT ON TABLE public.evaluations IS 'What evaluating a configuration gave, so that it happens once. Bounded: the least recently used rows go.';
COMMENT ON COLUMN public.evaluations.key IS 'SHA-256 over snapshot, entry, version of Nix, attribute and canonical configuration.';
CREATE TABLE public.events (
    deployment_id text NOT NULL,
    sequence bigint NOT NULL,
    kind text NOT NULL,
    build bigint DEFAULT 0 NOT NULL,
    status text DEFAULT ''::text NOT NULL,
    data text NOT NULL,
    CONSTRAINT events_kind_check CHECK ((kind = ANY (ARRAY['state'::text, 'build'::text])))
);
COMMENT ON TABLE public.events IS 'The newest events of the channel of each deployment, as they are sent.';
COMMENT ON COLUMN public.events.build IS 'The build of a build event, 0 for a state event.';
CREATE TABLE public.imports (
    deployment_id text NOT NULL,
    request text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    snapshot text NOT NULL,
    configuration text NOT NULL,
    configuration_hash bytea NOT NULL,
    nodes jsonb,
    deploy boolean NOT NULL
);
COMMENT ON TABLE public.imports IS 'How a deployment came to slipway that was imported: once, before all of its builds.';
COMMENT ON COLUMN public.imports.request IS 'What makes the import unique: the hash of an idempotency key, or a UUID.';
COMMENT ON COLUMN public.imports.snapshot IS 'Store path of the module source whose schema accepted the configuration.';
COMMENT ON COLUMN public.imports.configuration IS 'Canonical JSON without secret values: the configuration of the deployment until its first submit.';
COMMENT ON COLUMN public.imports.configuration_hash IS 'SHA-256 of the configuration that was asked for; what an idempotency key is compared by.';
COMMENT ON COLUMN public.imports.nodes IS 'Array of {"name", "names"} as the evaluation gave it.';
COMMENT ON COLUMN public.imports.deploy IS 'Whether the import became build 1.';
CREATE TABLE public.keys (
    name text NOT NULL,
    value bytea NOT NULL
);
COMMENT ON TABLE public.keys IS 'Random keys that all replicas share, such as the one that signs tickets of the channel.';
CREATE TABLE public.preparing (
    deployment_id text NOT NULL,
    workflow_id text NOT NULL,
    run_id text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    import boolean DEFAULT false NOT NULL,
    CONSTRAINT preparing_deployment_id_check CHECK ((deployment_id ~ '^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$'::text))
);
COMMENT ON TABLE public.preparing IS 'Who has the secrets of a deployment in hand, from reading OpenBao until the record of the build, or until they are cleared. One at a time, so that no two submits mix. A sweeper removes the row of a workflow that has ended.';
COMMENT ON COLUMN public.preparing.deployment_id IS 'Of a deployment that may not be known yet.';
COMMENT ON COLUMN public.preparing.import IS 'An import: nobody else may make the deployment known meanwhile.';
CREATE TABLE public.sbom_components (
    id bigint NOT NULL,
    text bytea NOT NULL
);
ALTER TABLE ONLY public.sbom_components ALTER COLUMN text SET COMPRESSION lz4;
COMMENT ON TABLE public.sbom_components IS 'Each component of any SBOM, once. A hash index is half as large as a unique one on 32 bytes, and compares all of them.';
COMMENT ON COLUMN public.sbom_components.id IS 'Given in the order of the document that brought it: such lists take little space.';
COMMENT ON COLUMN public.sbom_components.text IS 'The exact JSON text.';
CREATE SEQUENCE public.sbom_component_ids
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.sbom_component_ids OWNED BY public.sbom_components.id;
CREATE TABLE public.sbom_component_keys (
    component_id bigint NOT NULL,
    keys bigint[] NOT NULL
);
COMMENT ON COLUMN public.sbom_component_keys.keys IS 'The first 8 bytes of SHA-256 over each package URL and name in the component. Whoever looks compares the text.';
CREATE TABLE public.sbom_document_components (
    document_id bigint NOT NULL,
    components bigint[] NOT NULL
);
ALTER TABLE ONLY public.sbom_document_components ALTER COLUMN components SET COMPRESSION lz4;
COMMENT ON TABLE public.sbom_document_components IS 'The components of each document that is not dropped. A component that no row has is garbage.';
CREATE TABLE public.sbom_documents (
    id bigint NOT NULL,
    deployment_id text NOT NULL,
    build bigint NOT NULL,
    node text NOT NULL,
    spec_version text NOT NULL,
    sha256 bytea NOT NULL,
    size bigint NOT NULL,
    components integer NOT NULL,
    component_ids bytea NOT NULL,
    dropped boolean DEFAULT false NOT NULL,
    CONSTRAINT sbom_documents_components_check CHECK ((components >= 0)),
    CONSTRAINT sbom_documents_sha256_check CHECK ((length(sha256) = 32)),
    CONSTRAINT sbom_documents_size_check CHECK ((size > 0))
);
ALTER TABLE ONLY public.sbom_documents ALTER COLUMN component_ids SET COMPRESSION lz4;
COMMENT ON TABLE public.sbom_documents IS 'An SBOM: staged by the supervisor of its build while no row of sbom_nodes names it, dropped when none will again.';
COMMENT ON COLUMN public.sbom_documents.sha256 IS 'Of the whole document, and size its length in bytes.';
COMMENT ON COLUMN public.sbom_documents.component_ids IS 'The components in their order: for each, the zigzag varint of the difference of its id to the one before.';
COMMENT ON COLUMN public.sbom_documents.dropped IS 'To be collected, with the components that no other document has.';
ALTER TABLE public.sbom_documents ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.sbom_documents_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.sbom_nodes (
    deployment_id text NOT NULL,
    node text NOT NULL,
    build bigint,
    reason text DEFAULT ''::text NOT NULL,
    document_id bigint,
    earlier_id bigint,
    CONSTRAINT sbom_nodes_check CHECK (((document_id IS NULL) = (reason <> ''::text))),
    CONSTRAINT sbom_nodes_check1 CHECK (((document_id IS NULL) OR (build IS NOT NULL)))
);
COMMENT ON TABLE public.sbom_nodes IS 'The nodes that a deployer listed, with the SBOM of what runs there or why there is none.';
COMMENT ON COLUMN public.sbom_nodes.build IS 'The build that last changed the node; null when none did since SBOMs are kept.';
COMMENT ON COLUMN public.sbom_nodes.earlier_id IS 'The SBOM that the node had before.';
CREATE TABLE public.sbom_remainders (
    document_id bigint NOT NULL,
    part integer NOT NULL,
    text bytea NOT NULL,
    CONSTRAINT sbom_remainders_part_check CHECK ((part >= 0))
);
ALTER TABLE ONLY public.sbom_remainders ALTER COLUMN text SET COMPRESSION lz4;
COMMENT ON TABLE public.sbom_remainders IS 'An SBOM with a NUL in the place of each component, in parts that follow each other.';
CREATE TABLE public.snapshots (
    store_path text NOT NULL,
    built_at timestamp with time zone DEFAULT now() NOT NULL,
    schema text NOT NULL,
    method text,
    methods text[] NOT NULL,
    renames jsonb NOT NULL,
    deployer text NOT NULL
);
COMMENT ON TABLE public.snapshots IS 'What was evaluated once from a snapshot of the module source.';
COMMENT ON COLUMN public.snapshots.deployer IS 'Path of the realised deployer.';
CREATE TABLE public.source (
    one boolean DEFAULT true NOT NULL,
    store_path text,
    problem text DEFAULT ''::text NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT source_one_check CHECK (one)
);
COMMENT ON TABLE public.source IS 'The snapshot that a submit is checked against: the newest that evaluated, or none yet.';
COMMENT ON COLUMN public.source.problem IS 'Why the source as it is now does not evaluate; empty when it does.';
ALTER TABLE ONLY public.build_log
    ADD CONSTRAINT build_log_pkey PRIMARY KEY (deployment_id, number, start);
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT builds_deployment_id_request_key UNIQUE (deployment_id, request);
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT builds_pkey PRIMARY KEY (deployment_id, number);
ALTER TABLE ONLY public.callback_offers
    ADD CONSTRAINT callback_offers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.deployments
    ADD CONSTRAINT deployments_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.evaluations
    ADD CONSTRAINT evaluations_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (deployment_id, sequence);
ALTER TABLE ONLY public.imports
    ADD CONSTRAINT imports_pkey PRIMARY KEY (deployment_id);
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.preparing
    ADD CONSTRAINT preparing_pkey PRIMARY KEY (deployment_id);
ALTER TABLE ONLY public.sbom_component_keys
    ADD CONSTRAINT sbom_component_keys_pkey PRIMARY KEY (component_id);
ALTER TABLE ONLY public.sbom_components
    ADD CONSTRAINT sbom_components_once EXCLUDE USING hash (sha256(text) WITH =);
ALTER TABLE ONLY public.sbom_components
    ADD CONSTRAINT sbom_components_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.sbom_document_components
    ADD CONSTRAINT sbom_document_components_pkey PRIMARY KEY (document_id);
ALTER TABLE ONLY public.sbom_documents
    ADD CONSTRAINT sbom_documents_deployment_id_build_node_key UNIQUE (deployment_id, build, node);
ALTER TABLE ONLY public.sbom_documents
    ADD CONSTRAINT sbom_documents_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.sbom_nodes
    ADD CONSTRAINT sbom_nodes_document_id_key UNIQUE (document_id);
ALTER TABLE ONLY public.sbom_nodes
    ADD CONSTRAINT sbom_nodes_earlier_id_key UNIQUE (earlier_id);
ALTER TABLE ONLY public.sbom_nodes
    ADD CONSTRAINT sbom_nodes_pkey PRIMARY KEY (deployment_id, node);
ALTER TABLE ONLY public.sbom_remainders
    ADD CONSTRAINT sbom_remainders_pkey PRIMARY KEY (document_id, part);
ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (store_path);
ALTER TABLE ONLY public.source
    ADD CONSTRAINT source_pkey PRIMARY KEY (one);
CREATE INDEX builds_calling ON public.builds USING btree (finished_at) WHERE ((callback = 'pending'::text) AND (finished_at IS NOT NULL));
CREATE INDEX builds_deployed ON public.builds USING btree (deployment_id, number DESC) WHERE ((action = 'deploy'::text) AND (deployer_started_at IS NOT NULL));
CREATE INDEX builds_finished ON public.builds USING btree (deployment_id, finished_at DESC, number DESC) WHERE ((status = ANY (ARRAY['succeeded'::text, 'failed'::text])) OR ((status = 'cancelled'::text) AND (started_at IS NOT NULL)));
CREATE UNIQUE INDEX builds_one_running ON public.builds USING btree (deployment_id) WHERE (status = 'running'::text);
CREATE INDEX builds_pending ON public.builds USING btree (deployment_id, number DESC) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));
CREATE INDEX builds_submitted ON public.builds USING btree (deployment_id, number DESC) WHERE (action = 'deploy'::text);
CREATE INDEX builds_succeeded ON public.builds USING btree (deployment_id, number DESC) WHERE (status = 'succeeded'::text);
CREATE INDEX evaluations_used_at ON public.evaluations USING btree (used_at);
CREATE INDEX sbom_component_keys_keys ON public.sbom_component_keys USING gin (keys) WITH (fastupdate=off);
CREATE INDEX sbom_document_components_components ON public.sbom_document_components USING gin (components) WITH (fastupdate=off);
CREATE INDEX sbom_documents_dropped ON public.sbom_documents USING btree (id) WHERE dropped;
ALTER TABLE ONLY public.build_log
    ADD CONSTRAINT build_log_deployment_id_number_fkey FOREIGN KEY (deployment_id, number) REFERENCES public.builds(deployment_id, number);
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT builds_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES public.deployments(id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES public.deployments(id);
ALTER TABLE ONLY public.imports
    ADD CONSTRAINT imports_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES public.deployments(id);
ALTER TABLE ONLY public.sbom_document_components
    ADD CONSTRAINT sbom_document_components_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.sbom_documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sbom_documents
    ADD CONSTRAINT sbom_documents_deployment_id_build_fkey FOREIGN KEY (deployment_id, build) REFERENCES public.builds(deployment_id, number);
ALTER TABLE ONLY public.sbom_nodes
    ADD CONSTRAINT sbom_nodes_deployment_id_build_fkey FOREIGN KEY (deployment_id, build) REFERENCES public.builds(deployment_id, number);
ALTER TABLE ONLY public.sbom_nodes
    ADD CONSTRAINT sbom_nodes_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.sbom_documents(id);
ALTER TABLE ONLY public.sbom_nodes
    ADD CONSTRAINT sbom_nodes_earlier_id_fkey FOREIGN KEY (earlier_id) REFERENCES public.sbom_documents(id);
ALTER TABLE ONLY public.sbom_remainders
    ADD CONSTRAINT sbom_remainders_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.sbom_documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.source
    ADD CONSTRAINT source_store_path_fkey FOREIGN KEY (store_path) REFERENCES public.snapshots(store_path);
