-- The tables of the ledger on SQLite. Same names, columns and meaning as on Postgres, where they are
-- explained; times are microseconds since 1970, ids are text.

CREATE TABLE guard (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    epoch      INTEGER NOT NULL,
    nonce      TEXT    NOT NULL,
    open       INTEGER NOT NULL,
    base       INTEGER NOT NULL,
    floor      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    mark       INTEGER NOT NULL,          -- raised here and in the mint together
    ledger     TEXT    NOT NULL,          -- which ledger this is
    refenced_at INTEGER,
    closed     INTEGER NOT NULL DEFAULT 0 -- whether whoever used it last has closed it; only here
) STRICT;

CREATE TABLE fences (
    resource    TEXT PRIMARY KEY CHECK (
                    length(resource) BETWEEN 1 AND 256
                    AND resource NOT GLOB '*[^A-Za-z0-9._~:@#+=,-]*'
                    AND resource NOT IN ('.', '..')),
    token       INTEGER NOT NULL CHECK (token > 0),
    lock_id     TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    hold        TEXT    NOT NULL CHECK (hold IN ('held', 'draining', 'released', 'broken')),
    ttl_ms      INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL,         -- on the monotonic clock of the running process
    acquired_at INTEGER NOT NULL,
    renewed_at  INTEGER NOT NULL,
    break_due   INTEGER,
    frozen      TEXT,
    protected   TEXT,
    version     INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL,
    objects     INTEGER NOT NULL,
    grants      INTEGER NOT NULL,
    fence_order INTEGER CHECK (fence_order > 0),
    live_token  INTEGER NOT NULL          -- the highest token that was ever in force
) STRICT, WITHOUT ROWID;
CREATE INDEX fences_break_due ON fences (break_due)
    WHERE break_due IS NOT NULL AND hold IN ('held', 'draining');
-- For lists of locks, of which there are few beside resources that are free.
CREATE INDEX fences_taken ON fences (resource) WHERE hold <> 'released';
CREATE INDEX fences_draining ON fences (resource) WHERE hold = 'draining';

CREATE TABLE grants (
    resource      TEXT    NOT NULL,
    token         INTEGER NOT NULL CHECK (token > 0),
    lock_id       TEXT    NOT NULL,
    owner         TEXT    NOT NULL,
    ordinal       INTEGER NOT NULL,
    superseded_by TEXT CHECK (superseded_by IN ('grant', 'transfer', 'fence')),
    superseded_at INTEGER,
    PRIMARY KEY (resource, token)
) STRICT, WITHOUT ROWID;
-- A token names one grant: each seal looks for its number.
CREATE INDEX grants_token ON grants (token);

CREATE TABLE locks (
    id          TEXT PRIMARY KEY,
    resources   TEXT    NOT NULL,         -- a JSON list
    token       INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    ttl_ms      INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    hold_until  INTEGER,
    metadata    TEXT    NOT NULL CHECK (octet_length(metadata) <= 4096),
    fence       INTEGER NOT NULL,
    ended       TEXT CHECK (ended IN ('superseded', 'released', 'broken', 'void')),
    ended_at    INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX locks_ended_at ON locks (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE buried (
    kind      TEXT    NOT NULL CHECK (kind IN ('lock', 'operation')),
    id        TEXT    NOT NULL,
    buried_at INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX buried_at ON buried (buried_at);

CREATE TABLE objects (
    resource     TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    generation   INTEGER NOT NULL,
    content_type TEXT    NOT NULL,
    size         INTEGER NOT NULL,
    sha256       BLOB    NOT NULL,
    written_at   INTEGER NOT NULL,
    body         BLOB,
    blob         TEXT,
    PRIMARY KEY (resource, key),
    CHECK ((body IS NULL) <> (blob IS NULL))
) STRICT;
CREATE INDEX objects_blob ON objects (blob) WHERE blob IS NOT NULL;

CREATE TABLE operations (
    id           TEXT    NOT NULL,
    resource     TEXT    NOT NULL,
    version      INTEGER,
    kind         TEXT    NOT NULL CHECK (
                     kind IN ('put', 'delete', 'delete_all', 'commit')),
    key          TEXT,
    generation   INTEGER NOT NULL,
    created      INTEGER NOT NULL,
    size         INTEGER NOT NULL,
    sha256       BLOB,
    owner        TEXT    NOT NULL,
    committed_at INTEGER NOT NULL,
    did          TEXT CHECK (did NOT GLOB '*[^crdn]*'),
    PRIMARY KEY (id, resource)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX operations_resource_version ON operations (resource, version);

CREATE TABLE idempotency_keys (
    resource    TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    operation   TEXT    NOT NULL,
    stored_at   INTEGER NOT NULL,
    kept_until  INTEGER, -- NULL: as long as the settings say
    PRIMARY KEY (resource, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_stored_at ON idempotency_keys (stored_at) WHERE kept_until IS NULL;
CREATE INDEX idempotency_keys_kept_until ON idempotency_keys (kept_until) WHERE kept_until IS NOT NULL;

CREATE TABLE rejections (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    at            INTEGER NOT NULL,
    resource      TEXT    NOT NULL,
    key           TEXT,
    reason        TEXT    NOT NULL,
    token         INTEGER,
    grants_behind INTEGER,
    superseded_ms INTEGER,
    owner         TEXT,
    request_id    TEXT    NOT NULL,
    times         INTEGER NOT NULL DEFAULT 1,
    minute        INTEGER
) STRICT;
CREATE INDEX rejections_resource ON rejections (resource, number);
CREATE INDEX rejections_reason ON rejections (reason, number);
CREATE INDEX rejections_single ON rejections (number) WHERE minute IS NULL;
CREATE UNIQUE INDEX rejections_counted ON rejections (resource, minute) WHERE minute IS NOT NULL;

-- The belts: what no act does, the database refuses (I2, I6, I10).
CREATE TRIGGER fences_never_removed BEFORE DELETE ON fences
BEGIN
    SELECT RAISE (ABORT, 'rows of fences are never removed');
END;

CREATE TRIGGER fences_only_rise BEFORE UPDATE ON fences
WHEN NEW.token < OLD.token OR NEW.version < OLD.version OR NEW.grants < OLD.grants
     OR NEW.resource <> OLD.resource
BEGIN
    SELECT RAISE (ABORT, 'a fence never falls');
END;

CREATE TRIGGER fences_version_counts_operations AFTER UPDATE ON fences
WHEN NEW.version > OLD.version AND NEW.version - OLD.version <> (
    SELECT count(*) FROM operations o
    WHERE o.resource = NEW.resource AND o.version > OLD.version AND o.version <= NEW.version)
BEGIN
    SELECT RAISE (ABORT, 'a version rises by one per operation');
END;

CREATE TRIGGER guard_only_rises BEFORE UPDATE ON guard
WHEN NEW.floor < OLD.floor OR NEW.epoch < OLD.epoch OR NEW.base < OLD.base
     OR NEW.generation < OLD.generation
BEGIN
    SELECT RAISE (ABORT, 'the guard never falls');
END;

CREATE TRIGGER guard_never_removed BEFORE DELETE ON guard
BEGIN
    SELECT RAISE (ABORT, 'the guard is never removed');
END;
