-- The ledger's own time, by which it forgets; as on Postgres. Microseconds of Unix time.

ALTER TABLE guard ADD COLUMN own_time INTEGER NOT NULL DEFAULT 0;

ALTER TABLE guard ADD COLUMN pass INTEGER NOT NULL DEFAULT 0;

ALTER TABLE guard ADD COLUMN boot TEXT;

ALTER TABLE guard ADD COLUMN up_us INTEGER;

UPDATE guard SET own_time = CAST(unixepoch('subsec') * 1000000 AS INTEGER);

CREATE TRIGGER own_time_only_rises BEFORE UPDATE ON guard WHEN NEW.own_time < OLD.own_time OR NEW.pass < OLD.pass
BEGIN
    SELECT RAISE(ABORT, 'the ledger''s own time never falls');
END;
