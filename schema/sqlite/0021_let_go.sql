-- Operations that were stored, or buried, before this may have been let go; as on Postgres. Microseconds of Unix time.

ALTER TABLE guard ADD COLUMN let_go_before INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER let_go_only_rises BEFORE UPDATE ON guard WHEN NEW.let_go_before < OLD.let_go_before
BEGIN
    SELECT RAISE(ABORT, 'the ledger''s own time never falls');
END;
