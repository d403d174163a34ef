-- +goose Up

-- What SBOMs are kept as. Their texts are bytea, so that every byte comes back.
CREATE TABLE sbom_components (
    id   bigint PRIMARY KEY,
    text bytea NOT NULL,
    CONSTRAINT sbom_components_once EXCLUDE USING hash (sha256(text) WITH =)
);
ALTER TABLE sbom_components ALTER COLUMN text SET COMPRESSION lz4;
COMMENT ON TABLE sbom_components IS
    'Each component of any SBOM, once. A hash index is half as large as a unique one on 32 bytes, and compares all of them.';
COMMENT ON COLUMN sbom_components.id IS 'Given in the order of the document that brought it: such lists take little space.';
COMMENT ON COLUMN sbom_components.text IS 'The exact JSON text.';
CREATE SEQUENCE sbom_component_ids OWNED BY sbom_components.id;

CREATE TABLE sbom_documents (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    deployment_id text NOT NULL,
    build         bigint NOT NULL,
    node          text NOT NULL,
    spec_version  text NOT NULL,
    sha256        bytea NOT NULL CHECK (length(sha256) = 32),
    size          bigint NOT NULL CHECK (size > 0),
    components    integer NOT NULL CHECK (components >= 0),
    component_ids bytea NOT NULL,
    dropped       boolean NOT NULL DEFAULT false,
    UNIQUE (deployment_id, build, node),
    FOREIGN KEY (deployment_id, build) REFERENCES builds (deployment_id, number)
);
ALTER TABLE sbom_documents ALTER COLUMN component_ids SET COMPRESSION lz4;
COMMENT ON TABLE sbom_documents IS
    'An SBOM: staged by the supervisor of its build while no row of sbom_nodes names it, dropped when none will again.';
COMMENT ON COLUMN sbom_documents.sha256 IS 'Of the whole document, and size its length in bytes.';
COMMENT ON COLUMN sbom_documents.component_ids IS
    'The components in their order: for each, the zigzag varint of the difference of its id to the one before.';
COMMENT ON COLUMN sbom_documents.dropped IS 'To be collected, with the components that no other document has.';
CREATE INDEX sbom_documents_dropped ON sbom_documents (id) WHERE dropped;

CREATE TABLE sbom_remainders (
    document_id bigint NOT NULL REFERENCES sbom_documents (id) ON DELETE CASCADE,
    part        integer NOT NULL CHECK (part >= 0),
    text        bytea NOT NULL,
    PRIMARY KEY (document_id, part)
);
ALTER TABLE sbom_remainders ALTER COLUMN text SET COMPRESSION lz4;
COMMENT ON TABLE sbom_remainders IS
    'An SBOM with a NUL in the place of each component, in parts that follow each other.';

CREATE TABLE sbom_nodes (
    deployment_id text NOT NULL,
    node          text NOT NULL,
    build         bigint,
    reason        text NOT NULL DEFAULT '',
    document_id   bigint UNIQUE REFERENCES sbom_documents (id),
    earlier_id    bigint UNIQUE REFERENCES sbom_documents (id),
    PRIMARY KEY (deployment_id, node),
    FOREIGN KEY (deployment_id, build) REFERENCES builds (deployment_id, number),
    CHECK ((document_id IS NULL) = (reason <> '')),
    CHECK (document_id IS NULL OR build IS NOT NULL)
);
COMMENT ON TABLE sbom_nodes IS 'The nodes that a deployer listed, with the SBOM of what runs there or why there is none.';
COMMENT ON COLUMN sbom_nodes.build IS 'The build that last changed the node; null when none did since SBOMs are kept.';
COMMENT ON COLUMN sbom_nodes.earlier_id IS 'The SBOM that the node had before.';

-- What components are found by, and documents by their components.
CREATE TABLE sbom_component_keys (
    component_id bigint PRIMARY KEY,
    keys         bigint[] NOT NULL
);
COMMENT ON COLUMN sbom_component_keys.keys IS
    'The first 8 bytes of SHA-256 over each package URL and name in the component. Whoever looks compares the text.';
CREATE INDEX sbom_component_keys_keys ON sbom_component_keys USING gin (keys) WITH (fastupdate = off);

CREATE TABLE sbom_document_components (
    document_id bigint PRIMARY KEY REFERENCES sbom_documents (id) ON DELETE CASCADE,
    components  bigint[] NOT NULL
);
ALTER TABLE sbom_document_components ALTER COLUMN components SET COMPRESSION lz4;
COMMENT ON TABLE sbom_document_components IS
    'The components of each document that is not dropped. A component that no row has is garbage.';
-- No pending list: each look would read all of it.
CREATE INDEX sbom_document_components_components ON sbom_document_components USING gin (components) WITH (fastupdate = off);

ALTER TABLE builds ADD COLUMN sboms jsonb;
COMMENT ON COLUMN builds.sboms IS
    'Array of {"node", "changed", "reason"} as the deployer left it; null when it left none. Staged before exit_code.';

-- +goose Down
ALTER TABLE builds DROP COLUMN sboms;
DROP TABLE sbom_document_components, sbom_component_keys, sbom_nodes, sbom_remainders, sbom_documents, sbom_components CASCADE;
