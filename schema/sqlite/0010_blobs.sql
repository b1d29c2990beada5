-- Blobs on SQLite. Same names, columns and meaning as on Postgres, where they are explained.

CREATE TABLE blob_intents (
    blob     TEXT PRIMARY KEY,
    begun_at INTEGER NOT NULL,
    handle   TEXT CHECK (octet_length(handle) <= 4096)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_intents_begun_at ON blob_intents (begun_at);

CREATE TABLE replaced_versions (
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
    replaced_at  INTEGER NOT NULL,
    PRIMARY KEY (resource, key, version, generation),
    CHECK ((body IS NULL) <> (blob IS NULL))
) STRICT;
CREATE INDEX replaced_versions_inline ON replaced_versions (replaced_at) WHERE blob IS NULL;
CREATE INDEX replaced_versions_blobs ON replaced_versions (replaced_at) WHERE blob IS NOT NULL;
CREATE INDEX replaced_versions_blob ON replaced_versions (blob) WHERE blob IS NOT NULL;

CREATE TABLE blob_garbage (
    blob    TEXT PRIMARY KEY,
    handle  TEXT,
    due_at  INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_garbage_due_at ON blob_garbage (due_at);

CREATE TABLE blob_pins (
    blob       TEXT PRIMARY KEY,
    keep_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE blob_store (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    store    TEXT    NOT NULL
) STRICT;

CREATE VIEW blob_pointers AS
SELECT blob, resource, key, version, size, sha256, 1 AS current FROM objects WHERE blob IS NOT NULL
UNION ALL
SELECT blob, resource, key, version, size, sha256, 0 FROM replaced_versions WHERE blob IS NOT NULL;
