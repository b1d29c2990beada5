-- The Merkle tree over the audit. Same columns and meaning as on Postgres; numbers and kinds are JSON lists.

CREATE TABLE audit_tree (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    size     INTEGER NOT NULL,
    upto     INTEGER NOT NULL,
    roots    BLOB    NOT NULL,
    note     TEXT
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

-- Who asked for what an entry says, and how, as JSON; and what else a grant is.
ALTER TABLE audit ADD COLUMN asked TEXT CHECK (octet_length(asked) <= 4096);
ALTER TABLE audit ADD COLUMN lock TEXT;
ALTER TABLE audit ADD COLUMN ordinal INTEGER;
ALTER TABLE audit ADD COLUMN leads INTEGER;
ALTER TABLE audit ADD COLUMN principal TEXT;
ALTER TABLE audit ADD COLUMN writers TEXT;
