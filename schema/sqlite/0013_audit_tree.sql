-- The Merkle tree over the audit. Same columns and meaning as on Postgres; numbers and kinds are JSON lists.

CREATE TABLE audit_tree (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    size     INTEGER NOT NULL,
    upto     INTEGER NOT NULL,
    roots    BLOB    NOT NULL,
    note     TEXT,
    witnessed TEXT
) STRICT;

INSERT INTO audit_tree (only_row, size, upto, roots) VALUES (1, 0, 0, x'');

CREATE TABLE audit_tiles (
    tile    INTEGER PRIMARY KEY CHECK (tile >= 0),
    numbers TEXT    NOT NULL,
    grants  TEXT    NOT NULL,
    digests BLOB    NOT NULL,
    root    BLOB
) STRICT;

CREATE TRIGGER audit_tree_only_grows BEFORE UPDATE ON audit_tree
WHEN NEW.size < OLD.size OR NEW.upto < OLD.upto
BEGIN
    SELECT RAISE (ABORT, 'the tree of the audit only grows');
END;

CREATE TRIGGER audit_tiles_only_grow BEFORE UPDATE ON audit_tiles
WHEN NEW.tile <> OLD.tile OR substr(NEW.digests, 1, length(OLD.digests)) <> OLD.digests
BEGIN
    SELECT RAISE (ABORT, 'the tiles of the audit only grow');
END;

CREATE TRIGGER audit_tiles_never_removed BEFORE DELETE ON audit_tiles
BEGIN
    SELECT RAISE (ABORT, 'rows of audit_tiles are never removed');
END;

CREATE TRIGGER audit_tree_never_removed BEFORE DELETE ON audit_tree
BEGIN
    SELECT RAISE (ABORT, 'rows of audit_tree are never removed');
END;

-- Up to which number of the audit grants were let go that others of their resource followed.
ALTER TABLE history ADD COLUMN grants INTEGER NOT NULL DEFAULT 0;

-- The audit knows more: SQLite changes no condition of a table, so there is a new one.
CREATE TABLE audit_with_asked (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    at             INTEGER NOT NULL,
    action         TEXT    NOT NULL CHECK (action IN (
                       'grant', 'transfer', 'break', 'broken', 'freeze', 'unfreeze', 'protect',
                       'unprotect', 'fence', 'resolve', 'refence', 'epoch', 'adopt', 'agree', 'access', 'denied',
                       'auth-failed', 'fork')),
    resource       TEXT,
    owner          TEXT,
    previous_owner TEXT,
    token          INTEGER,
    reason         TEXT CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 1024),
    request_id     TEXT CHECK (length(request_id) <= 128),
    asked          TEXT CHECK (octet_length(asked) <= 4096), -- who asked for it, and how, as JSON
    lock           TEXT,    -- of a grant: the digest of the lock's id,
    ordinal        INTEGER, -- which of its resource it is,
    leads          INTEGER, -- whether that is the first of its lock,
    principal      TEXT,    -- whose it is,
    writers        TEXT     -- and who else may write under it
) STRICT;

INSERT INTO audit_with_asked SELECT *, NULL, NULL, NULL, NULL, NULL, NULL FROM audit ORDER BY number;
DROP TABLE audit;
ALTER TABLE audit_with_asked RENAME TO audit;

CREATE INDEX audit_resource ON audit (resource, number);
CREATE INDEX audit_other_than_grants ON audit (action, number) WHERE action <> 'grant';

CREATE TRIGGER audit_never_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE (ABORT, 'rows of audit are never changed or removed');
END;

-- But for grants that history lets go.
CREATE TRIGGER audit_never_removed BEFORE DELETE ON audit
WHEN OLD.action NOT IN ('grant', 'transfer', 'fence')
BEGIN
    SELECT RAISE (ABORT, 'rows of audit are never changed or removed');
END;
