-- The audit. Same columns and meaning as on Postgres.

CREATE TABLE audit (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    at             INTEGER NOT NULL,
    action         TEXT    NOT NULL CHECK (action IN (
                       'grant', 'transfer', 'break', 'broken', 'freeze', 'unfreeze', 'protect',
                       'unprotect', 'fence', 'resolve', 'refence', 'epoch', 'adopt', 'agree')),
    resource       TEXT,
    owner          TEXT,
    previous_owner TEXT,
    token          INTEGER,
    reason         TEXT CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 1024),
    request_id     TEXT CHECK (length(request_id) <= 128)
) STRICT;
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
