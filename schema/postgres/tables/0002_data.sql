-- Objects, what was done to them, and which writes were refused.

-- Objects: their bytes, if they are small enough to live here, or the blob that has them.
CREATE TABLE fencegate.objects (
    resource     text COLLATE "C" NOT NULL,
    key          fencegate.object_key NOT NULL,
    version      bigint NOT NULL,         -- of the resource, when it was written
    generation   bigint NOT NULL,         -- of the ledger, when it was written
    content_type text   NOT NULL,
    size         bigint NOT NULL,
    sha256       bytea  NOT NULL,
    written_at   timestamptz NOT NULL,
    body         bytea,
    blob         uuid,                    -- its name in the blob store
    PRIMARY KEY (resource, key),
    CONSTRAINT objects_payload_somewhere CHECK ((body IS NULL) <> (blob IS NULL))
) WITH (fillfactor = 70);

ALTER TABLE fencegate.objects ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE INDEX objects_blob ON fencegate.objects (blob) WHERE blob IS NOT NULL;

-- One row per committed write, and one per resource of a commit, all with its id; never changed, and removed only as
-- history that is let go. And one for each write that was buried, on its first resource: it took no effect, and never
-- will.
CREATE TABLE fencegate.operations (
    id           uuid NOT NULL,
    resource     text COLLATE "C" NOT NULL,
    version      bigint,                  -- the newest is that of its resource; NULL: nothing changed
    kind         fencegate.operation_kind NOT NULL,
    key          text COLLATE "C",
    generation   bigint NOT NULL,
    token        bigint NOT NULL,
    seq          bigint,
    highest_seq  bigint,                  -- under its token so far
    created      boolean NOT NULL,
    size         bigint NOT NULL,
    sha256       bytea,
    owner        text NOT NULL,
    committed_at timestamptz NOT NULL,
    -- Of a commit: what each of its steps on this resource did (created, replaced, deleted, nothing).
    did          text CONSTRAINT operations_did_known CHECK (did ~ '^[crdn]*$'),
    act          xid8 NOT NULL DEFAULT pg_current_xact_id(), -- the transaction that stored it
    PRIMARY KEY (id, resource)
);

CREATE UNIQUE INDEX operations_resource_version ON fencegate.operations (resource, version);

CREATE INDEX operations_buried ON fencegate.operations (committed_at) WHERE kind = 'buried';

-- Those that changed nothing, for the sweeper: all others are found by their events.
CREATE INDEX operations_unnumbered ON fencegate.operations (committed_at) WHERE version IS NULL AND kind <> 'buried';

-- Which operation an idempotency key stands for. Keys of one space are not seen in another; callers cannot choose it.
CREATE TABLE fencegate.idempotency_keys (
    resource    text COLLATE "C" NOT NULL,
    key         fencegate.idempotency_key NOT NULL,
    space       fencegate.key_space NOT NULL DEFAULT 'native',
    fingerprint bytea NOT NULL,
    operation   uuid  NOT NULL,
    stored_at   timestamptz NOT NULL,
    kept_until  timestamptz,              -- NULL: as long as the settings say
    PRIMARY KEY (resource, key, space)
);

-- An operation stays as long as a key stands for it.
CREATE INDEX idempotency_keys_operation ON fencegate.idempotency_keys (operation);

CREATE INDEX idempotency_keys_stored_at ON fencegate.idempotency_keys (stored_at) WHERE kept_until IS NULL;

CREATE INDEX idempotency_keys_kept_until ON fencegate.idempotency_keys (kept_until)
    WHERE kept_until IS NOT NULL;

-- Refused writes, for the operator. Written off the hot path, bounded in number.
CREATE TABLE fencegate.rejections (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL,
    resource      text COLLATE "C" NOT NULL,
    key           text,
    reason        text NOT NULL,
    token         bigint,
    grants_behind bigint,
    superseded_ms bigint,
    owner         text,
    request_id    text NOT NULL,
    times         bigint NOT NULL DEFAULT 1, -- writes that this stands for
    minute        bigint                  -- of those with unknown tokens: all on a resource in it are one row
);

CREATE INDEX rejections_resource ON fencegate.rejections (resource, number);

CREATE INDEX rejections_reason ON fencegate.rejections (reason, number);

CREATE INDEX rejections_single ON fencegate.rejections (number) WHERE minute IS NULL;

CREATE UNIQUE INDEX rejections_counted ON fencegate.rejections (resource, minute) WHERE minute IS NOT NULL;
