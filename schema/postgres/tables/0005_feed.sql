-- The feed of committed writes. schema/README.md tells how its events are numbered.

-- The generation comes first because transaction ids start anew in another database system, where no
-- ledger goes on without a re-fence. Of all operations: few have no version, and a condition would be
-- prepared anew by each statement that stores some.
CREATE INDEX operations_act ON fencegate.operations (generation, act);

-- Without gaps, from 1, or from the first one that was not let go.
CREATE TABLE fencegate.events (
    number    bigint PRIMARY KEY CONSTRAINT events_number_positive CHECK (number > 0),
    operation uuid NOT NULL,
    resource  text COLLATE "C"            -- of a commit, which has one event per resource
);

-- How far the numbering has come.
CREATE TABLE fencegate.events_mark (
    only_row   boolean PRIMARY KEY DEFAULT true CONSTRAINT events_mark_only_row CHECK (only_row),
    number     bigint NOT NULL,           -- of the last event
    generation bigint NOT NULL,           -- of the ledger; operations of earlier ones are all numbered
    seen       pg_snapshot NOT NULL       -- whatever this sees of this generation is numbered
) WITH (fillfactor = 50);

-- Where each generation but the first began: beyond that number, events that were read in an earlier
-- generation may have been lost, and other ones have their numbers.
CREATE TABLE fencegate.events_rewound (
    generation bigint PRIMARY KEY,
    number     bigint NOT NULL
);

-- Holds nothing: whoever has locked it numbers. A table of its own, so that no vacuum of one that changes
-- comes between; not an advisory lock, which any role that may connect could hold, and so stop the feed and
-- every re-fence.
CREATE TABLE fencegate.events_turn ();

INSERT INTO fencegate.events_mark (number, generation, seen)
SELECT 0, g.generation, '3:3:' FROM fencegate.write_guard g;

CREATE TRIGGER events_only_grow BEFORE UPDATE OR TRUNCATE ON fencegate.events
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

-- How far history has been let go. Beside what this says, the newest operation and the newest grant of each resource are
-- there.
CREATE TABLE fencegate.history (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT history_only_row CHECK (only_row),
    events   bigint NOT NULL DEFAULT 0,   -- up to this number there are none
    grants   bigint NOT NULL DEFAULT 0,   -- up to this number of the audit, those that another one superseded are gone
    token    bigint NOT NULL DEFAULT 0    -- the highest token whose grant is gone
) WITH (fillfactor = 50);

INSERT INTO fencegate.history DEFAULT VALUES;

CREATE FUNCTION fencegate.check_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.events < OLD.events OR NEW.grants < OLD.grants OR NEW.token < OLD.token THEN
        RAISE EXCEPTION 'what was let go does not come back' USING ERRCODE = 'FG011';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION fencegate.keep_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.number > (SELECT h.events FROM fencegate.history h) THEN
        RAISE EXCEPTION 'rows of events are removed only as history that is let go' USING ERRCODE = 'FG010';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER events_only_as_history BEFORE DELETE ON fencegate.events
    FOR EACH ROW EXECUTE FUNCTION fencegate.keep_events();

CREATE TRIGGER history_only_rises BEFORE UPDATE ON fencegate.history
    FOR EACH ROW EXECUTE FUNCTION fencegate.check_history();

CREATE FUNCTION fencegate.check_events_mark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number < OLD.number OR NEW.generation < OLD.generation THEN
        RAISE EXCEPTION 'the numbers of events never fall' USING ERRCODE = 'FG011';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER events_mark_only_rises BEFORE UPDATE ON fencegate.events_mark
    FOR EACH ROW EXECUTE FUNCTION fencegate.check_events_mark();
