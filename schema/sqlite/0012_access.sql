-- Who may do what: the rules of access, and whose each token is. Same columns and meaning as on Postgres; writers are a
-- JSON list.

CREATE TABLE access (
    generation INTEGER PRIMARY KEY CHECK (generation > 0),
    rules      TEXT    NOT NULL CHECK (octet_length(rules) <= 1048576),
    sha256     BLOB    NOT NULL,
    applied_at INTEGER NOT NULL,
    applied_by TEXT,
    reason     TEXT    NOT NULL CHECK (octet_length(reason) BETWEEN 1 AND 1024)
) STRICT;

CREATE TRIGGER access_never_changed BEFORE UPDATE ON access
BEGIN
    SELECT RAISE (ABORT, 'rows of access are never changed or removed');
END;

CREATE TRIGGER access_never_removed BEFORE DELETE ON access
BEGIN
    SELECT RAISE (ABORT, 'rows of access are never changed or removed');
END;

ALTER TABLE guard ADD COLUMN access INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER guard_access_only_rises BEFORE UPDATE ON guard
WHEN NEW.access < OLD.access
BEGIN
    SELECT RAISE (ABORT, 'the guard never falls');
END;

ALTER TABLE fences ADD COLUMN principal TEXT;
ALTER TABLE fences ADD COLUMN writers TEXT;
ALTER TABLE grants ADD COLUMN principal TEXT;
ALTER TABLE grants ADD COLUMN writers TEXT;
ALTER TABLE locks ADD COLUMN principal TEXT;
ALTER TABLE locks ADD COLUMN writers TEXT;

-- The audit knows one action more: SQLite changes no condition of a table, so there is a new one.
CREATE TABLE audit_with_access (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    at             INTEGER NOT NULL,
    action         TEXT    NOT NULL CHECK (action IN (
                       'grant', 'transfer', 'break', 'broken', 'freeze', 'unfreeze', 'protect',
                       'unprotect', 'fence', 'resolve', 'refence', 'epoch', 'adopt', 'agree', 'access')),
    resource       TEXT,
    owner          TEXT,
    previous_owner TEXT,
    token          INTEGER,
    reason         TEXT CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 1024),
    request_id     TEXT CHECK (length(request_id) <= 128)
) STRICT;

INSERT INTO audit_with_access SELECT * FROM audit ORDER BY number;
DROP TABLE audit;
ALTER TABLE audit_with_access RENAME TO audit;

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
