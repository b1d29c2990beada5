-- Buckets of S3, and what the access keys of S3 are derived from. Same columns and meaning as on Postgres.

CREATE TABLE s3_buckets (
    name       TEXT    PRIMARY KEY CHECK (octet_length(name) BETWEEN 3 AND 63 AND name NOT GLOB '*[^a-z0-9.-]*'),
    depth      INTEGER NOT NULL CHECK (depth BETWEEN 0 AND 3),
    created_at INTEGER NOT NULL,
    deleted    INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER s3_buckets_keep_depth BEFORE UPDATE ON s3_buckets
WHEN OLD.name <> NEW.name OR OLD.depth <> NEW.depth
BEGIN
    SELECT RAISE (ABORT, 'rows of s3_buckets are never changed or removed');
END;

CREATE TRIGGER s3_buckets_never_removed BEFORE DELETE ON s3_buckets
BEGIN
    SELECT RAISE (ABORT, 'rows of s3_buckets are never changed or removed');
END;

CREATE TABLE s3_root (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    root     BLOB    NOT NULL CHECK (length(root) = 32)
) STRICT;

CREATE TRIGGER s3_root_never_changed BEFORE UPDATE ON s3_root
BEGIN
    SELECT RAISE (ABORT, 'rows of s3_root are never changed or removed');
END;

CREATE TRIGGER s3_root_never_removed BEFORE DELETE ON s3_root
BEGIN
    SELECT RAISE (ABORT, 'rows of s3_root are never changed or removed');
END;
