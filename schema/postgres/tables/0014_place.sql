-- Tells a ledger that went back by its content and by its server, not by its position alone.

-- Milestones, which the gateways leave while something is committed, about one a second; etcd knows the newest. A ledger
-- without it has lost commits, wherever its log is.
CREATE TABLE fencegate.milestones (
    number bigint PRIMARY KEY,
    id     uuid NOT NULL,
    xid    bigint NOT NULL,               -- of the transaction that left it
    at     timestamptz NOT NULL
);

-- The newest one is read about once a second, and a day of them is let go row by row.
ALTER TABLE fencegate.milestones SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The object ids of the database and of the fences, as one number: a logical restore and a copy of the database do not
-- keep them. A session stays in its database, so it looks that one up once.
CREATE FUNCTION fencegate.current_tables() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF coalesce(current_setting('fencegate.database', true), '') = '' THEN
        PERFORM set_config('fencegate.database', d.oid::text, false)
        FROM pg_database d WHERE d.datname = current_database();
    END IF;
    RETURN current_setting('fencegate.database')::bigint << 32 | 'fencegate.fences'::regclass::oid::bigint;
END $$;

-- The start of the server and the ids of the tables, as the guards know them.
ALTER TABLE fencegate.seal_guard
    ADD COLUMN started timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    ADD COLUMN tables  bigint NOT NULL DEFAULT fencegate.current_tables();
ALTER TABLE fencegate.write_guard
    ADD COLUMN started timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    ADD COLUMN tables  bigint NOT NULL DEFAULT fencegate.current_tables();
ALTER TABLE fencegate.seal_guard ALTER COLUMN started DROP DEFAULT, ALTER COLUMN tables DROP DEFAULT;
ALTER TABLE fencegate.write_guard ALTER COLUMN started DROP DEFAULT, ALTER COLUMN tables DROP DEFAULT;
