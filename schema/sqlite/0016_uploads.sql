-- What S3 needs of objects. Same names, columns and meaning as on Postgres, where they are explained.

ALTER TABLE objects ADD COLUMN about TEXT CHECK (octet_length(about) <= 8192);
ALTER TABLE objects ADD COLUMN parts INTEGER CHECK (parts IS NULL OR blob IS NOT NULL);
ALTER TABLE replaced_versions ADD COLUMN about TEXT;
ALTER TABLE replaced_versions ADD COLUMN parts INTEGER;

CREATE TABLE uploads (
    id           TEXT PRIMARY KEY REFERENCES blob_intents (blob) ON DELETE CASCADE,
    resource     TEXT NOT NULL,
    key          TEXT NOT NULL,
    content_type TEXT NOT NULL,
    about        TEXT,
    principal    TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX uploads_path ON uploads (replace(resource, ':', '/') || '/' || key, id);

CREATE TABLE upload_parts (
    upload    TEXT    NOT NULL,
    number    INTEGER NOT NULL CHECK (number BETWEEN 1 AND 10000),
    blob      TEXT    NOT NULL,
    size      INTEGER NOT NULL,
    sha256    BLOB    NOT NULL,
    checksum  TEXT,
    begun_at  INTEGER NOT NULL,
    stored_at INTEGER NOT NULL,
    PRIMARY KEY (upload, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX upload_parts_blob ON upload_parts (blob);

ALTER TABLE blob_garbage ADD COLUMN may_return INTEGER NOT NULL DEFAULT 0;
CREATE INDEX blob_garbage_may_return ON blob_garbage (blob) WHERE may_return;

CREATE INDEX fences_path ON fences (replace(resource, ':', '/') || '/') WHERE instr(resource, ':') > 0;

DROP VIEW blob_pointers;
CREATE VIEW blob_pointers AS
SELECT blob, resource, key, version, size, sha256, 1 AS current FROM objects WHERE blob IS NOT NULL AND parts IS NULL
UNION ALL
SELECT blob, resource, key, version, size, sha256, 0 FROM replaced_versions WHERE blob IS NOT NULL AND parts IS NULL
UNION ALL
SELECT p.blob, b.resource, b.key, b.version, p.size, p.sha256, 1
FROM upload_parts p JOIN objects b ON b.blob = p.upload
UNION ALL
SELECT p.blob, r.resource, r.key, r.version, p.size, p.sha256, 0
FROM upload_parts p JOIN replaced_versions r ON r.blob = p.upload;
