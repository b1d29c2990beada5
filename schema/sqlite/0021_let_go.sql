-- Operations that were stored, or buried, before this may have been let go; as on Postgres. Microseconds of Unix time.

ALTER TABLE guard ADD COLUMN let_go INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER let_go_only_rises BEFORE UPDATE ON guard WHEN NEW.let_go < OLD.let_go
BEGIN
    SELECT RAISE(ABORT, 'history that was let go does not come back');
END;
