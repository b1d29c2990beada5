-- What principals have in the ledger. Same columns and meaning as on Postgres, but counted at once: there is one writer. Locks
-- are counted when somebody asks.

ALTER TABLE objects ADD COLUMN principal TEXT;

CREATE TABLE stocks (
    principal TEXT PRIMARY KEY,
    resources INTEGER NOT NULL DEFAULT 0,
    keys      INTEGER NOT NULL DEFAULT 0,
    bytes     INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TRIGGER objects_put AFTER INSERT ON objects
WHEN NEW.principal IS NOT NULL
BEGIN
    INSERT INTO stocks (principal, keys, bytes) VALUES (NEW.principal, 1, NEW.size)
    ON CONFLICT (principal) DO UPDATE SET keys = keys + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER objects_deleted AFTER DELETE ON objects
WHEN OLD.principal IS NOT NULL
BEGIN
    UPDATE stocks SET keys = keys - 1, bytes = bytes - OLD.size WHERE principal = OLD.principal;
END;

CREATE TRIGGER objects_replaced AFTER UPDATE ON objects
WHEN OLD.principal IS NOT NEW.principal OR OLD.size <> NEW.size
BEGIN
    UPDATE stocks SET keys = keys - 1, bytes = bytes - OLD.size WHERE principal = OLD.principal;
    INSERT INTO stocks (principal, keys, bytes) SELECT NEW.principal, 1, NEW.size WHERE NEW.principal IS NOT NULL
    ON CONFLICT (principal) DO UPDATE SET keys = keys + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER fences_first_raised AFTER INSERT ON fences
WHEN NEW.principal IS NOT NULL
BEGIN
    INSERT INTO stocks (principal, resources) VALUES (NEW.principal, 1)
    ON CONFLICT (principal) DO UPDATE SET resources = resources + 1;
END;
