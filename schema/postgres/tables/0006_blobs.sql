-- Blobs: payloads too large for the ledger. Which are on their way, which versions were replaced, and
-- which are garbage. `gateway/core/src/ports/uploads.rs` gives the five rules that make deleting safe.

-- A blob that is being uploaded, or was and has not been committed yet. The act that points at the
-- blob deletes the row; so does the sweeper, once the upload has taken too long. One of the two.
CREATE TABLE fencegate.blob_intents (
    blob     uuid PRIMARY KEY,
    begun_at timestamptz NOT NULL,
    handle   text CONSTRAINT blob_intents_handle_short CHECK (octet_length(handle) <= 4096)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX blob_intents_begun_at ON fencegate.blob_intents (begun_at);

-- Versions of objects that are no longer the current ones: those with blobs, for as long as readers,
-- a failover or a restore may need them; others if replaced versions are kept at all.
CREATE TABLE fencegate.replaced_versions (
    resource     text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    generation   bigint NOT NULL,
    content_type text   NOT NULL,
    size         bigint NOT NULL,
    sha256       bytea  NOT NULL,
    written_at   timestamptz NOT NULL,
    body         bytea,
    blob         uuid,
    replaced_at  timestamptz NOT NULL,
    replaced_lsn pg_lsn NOT NULL,         -- about where the log was then, for synchronous standbys
    PRIMARY KEY (resource, key, version, generation),
    CONSTRAINT replaced_versions_payload_somewhere CHECK ((body IS NULL) <> (blob IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05);

ALTER TABLE fencegate.replaced_versions ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE INDEX replaced_versions_inline ON fencegate.replaced_versions (replaced_at) WHERE blob IS NULL;

CREATE INDEX replaced_versions_blobs ON fencegate.replaced_versions (replaced_at) WHERE blob IS NOT NULL;

CREATE INDEX replaced_versions_blob ON fencegate.replaced_versions (blob) WHERE blob IS NOT NULL;

-- Blobs that nothing points at, nor ever will again. Deleted twice: a paused gateway may finish its
-- upload after the first time.
CREATE TABLE fencegate.blob_garbage (
    blob    uuid PRIMARY KEY,
    handle  text,                         -- of the unfinished upload, if there was one
    due_at  timestamptz NOT NULL,
    deleted boolean NOT NULL DEFAULT false -- whether it has been deleted once
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX blob_garbage_due_at ON fencegate.blob_garbage (due_at);

-- Blobs that are being read from for long.
CREATE TABLE fencegate.blob_pins (
    blob       uuid PRIMARY KEY,
    keep_until timestamptz NOT NULL
);

-- Which store the blobs are in; the store's mark names the ledger.
CREATE TABLE fencegate.blob_store (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT blob_store_only_row CHECK (only_row),
    store    uuid NOT NULL
);
