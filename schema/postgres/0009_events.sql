-- The feed of committed writes: numbers given after commit, by one step at a time.
--
-- A number taken inside the act would be seen out of order: the act that took the higher one commits
-- first, a reader passes it, and the lower one is skipped for ever. So an act only leaves its
-- transaction id, and a step that is a transaction of its own numbers whatever has been committed since
-- the step before. What that is, the snapshots of the two steps tell exactly, however long an act was
-- under way: every transaction that the last one did not see was either in progress then (xip), or
-- began later (xmax and above). No queue to fill and to empty, and a write pays for one index entry.

ALTER TABLE fencegate.operations ADD COLUMN act xid8 NOT NULL DEFAULT pg_current_xact_id();

-- The generation comes first because transaction ids start anew in another database system, where no
-- ledger goes on without a re-fence. Of all operations: few have no version, and a condition would be
-- prepared anew by each statement that stores some.
CREATE INDEX operations_act ON fencegate.operations (generation, act);

-- Without gaps, from 1.
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

CREATE TRIGGER events_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON fencegate.events
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

CREATE FUNCTION fencegate.check_events_mark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number < OLD.number OR NEW.generation < OLD.generation THEN
        RAISE EXCEPTION 'the numbers of events never fall' USING ERRCODE = 'FG011';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER events_mark_only_rises BEFORE UPDATE ON fencegate.events_mark
    FOR EACH ROW EXECUTE FUNCTION fencegate.check_events_mark();

-- Numbers what was committed since the last step, and returns how much that was. The caller has taken
-- the lock of the numbering in an earlier statement, so that this sees what the last step did; it is
-- held to commit. Within a resource the order is that of the versions, and as far as that allows the
-- order of time; what has a lower version is never missing, for it was committed before.
CREATE FUNCTION fencegate.number_committed() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mark    fencegate.events_mark;
    began   xid8;
    running xid8[];
    added   bigint;
BEGIN
    SELECT * INTO mark FROM fencegate.events_mark;
    began := pg_snapshot_xmax(mark.seen);
    running := ARRAY(SELECT pg_snapshot_xip(mark.seen));
    -- One statement, whose snapshot is both what it finds and what it stores. Materialized, so that no
    -- plan goes through all operations for the sake of their order.
    WITH fresh AS MATERIALIZED (
        SELECT o.id, o.resource, o.version, o.committed_at, o.kind FROM fencegate.operations o
        WHERE o.generation = mark.generation AND o.version IS NOT NULL AND o.act >= began
        UNION ALL
        SELECT o.id, o.resource, o.version, o.committed_at, o.kind FROM fencegate.operations o
        WHERE o.generation = mark.generation AND o.version IS NOT NULL AND o.act = ANY (running)),
    timed AS (
        SELECT f.id, f.resource, f.version, f.kind,
               max(f.committed_at) OVER (PARTITION BY f.resource ORDER BY f.version) AS at
        FROM fresh f),
    numbered AS (
        INSERT INTO fencegate.events (number, operation, resource)
        SELECT mark.number + row_number() OVER (ORDER BY d.at, d.resource, d.version), d.id,
               CASE WHEN d.kind = 'commit' THEN d.resource END
        FROM timed d
        RETURNING number),
    counted AS (SELECT count(*) AS events FROM numbered)
    UPDATE fencegate.events_mark m
    SET number = m.number + c.events, seen = pg_current_snapshot()
    FROM counted c WHERE c.events > 0
    RETURNING c.events INTO added;
    RETURN coalesce(added, 0);
END $$;

-- One step of the numbering, unless another gateway is at it (not whole). Returns how far it has come.
-- Takes no row lock and writes nothing if nothing was committed.
CREATE FUNCTION fencegate.number_events(p_seen bigint)
RETURNS TABLE (generation bigint, last bigint, whole boolean) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    turn boolean := true;
BEGIN
    BEGIN
        LOCK TABLE fencegate.events_turn IN EXCLUSIVE MODE NOWAIT;
    EXCEPTION WHEN lock_not_available THEN
        turn := false;
    END;
    IF turn THEN
        -- Not on a ledger that may have lost commits: the re-fence says which numbers are new.
        PERFORM fencegate.assert_place(g.timeline, g.system_id, g.halted, p_seen)
        FROM fencegate.write_guard g;
        PERFORM fencegate.number_committed();
    END IF;
    RETURN QUERY SELECT m.generation, m.number, turn FROM fencegate.events_mark m;
END $$;

-- A re-fence begins a generation. It has waited for all writes under way, so that every operation of
-- the old one is numbered here, and counts as new.
CREATE FUNCTION fencegate.begin_generation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE fencegate.events_turn IN EXCLUSIVE MODE;
    INSERT INTO fencegate.events_rewound (generation, number)
    SELECT NEW.generation, m.number FROM fencegate.events_mark m;
    PERFORM fencegate.number_committed();
    UPDATE fencegate.events_mark m SET generation = NEW.generation, seen = pg_current_snapshot();
    RETURN NULL;
END $$;
CREATE TRIGGER write_guard_begins_generation AFTER UPDATE ON fencegate.write_guard
    FOR EACH ROW WHEN (NEW.generation > OLD.generation)
    EXECUTE FUNCTION fencegate.begin_generation();
