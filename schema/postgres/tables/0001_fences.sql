-- Guards, fences, grants, locks: what the promise rests on, and the belts that the database itself keeps.
-- schema/README.md explains each table, column and invariant.

-- The schema `fencegate` itself is made by whoever runs the migrations, which keep their own table in it.

-- Guards: what every act checks before it does anything. Seals and writes lock different tables
-- (ROW SHARE), so that an epoch switch, which waits for seals, is not starved by writes.
CREATE TABLE fencegate.seal_guard (
    only_row  boolean PRIMARY KEY DEFAULT true CONSTRAINT seal_guard_only_row CHECK (only_row),
    epoch     bigint  NOT NULL,           -- rises with each new incarnation of the mint
    nonce     uuid    NOT NULL,           -- what the mint must carry
    open      boolean NOT NULL,           -- whether the mint has been seen to carry it
    base      bigint  NOT NULL,           -- token = base + number from the mint
    floor     bigint  NOT NULL,           -- tokens up to this one are void
    timeline  text    NOT NULL,           -- of the primary that this ledger trusts
    system_id bigint  NOT NULL,           -- of the same
    halted    text,                       -- why nothing may be sealed until a re-fence
    ledger    uuid    NOT NULL DEFAULT gen_random_uuid(), -- which ledger this is, for the mint
    acts_min  bigint  NOT NULL DEFAULT 1, -- older acts than these are retired
    access    bigint  NOT NULL DEFAULT 0  -- rises with each change of who may do what
);

CREATE TABLE fencegate.write_guard (
    only_row   boolean PRIMARY KEY DEFAULT true CONSTRAINT write_guard_only_row CHECK (only_row),
    floor      bigint  NOT NULL,
    generation bigint  NOT NULL,          -- rises with each re-fence; part of every ETag
    timeline   text    NOT NULL,
    system_id  bigint  NOT NULL,
    halted     text,                      -- why nothing may be written until a re-fence
    refenced_at timestamptz,              -- the last time
    adoptions  bigint NOT NULL DEFAULT 0, -- rises with each timeline that was taken over without a re-fence
    acts_min   bigint NOT NULL DEFAULT 1,
    access     bigint NOT NULL DEFAULT 0
);

-- Which acts are there, each set in a schema of its own: gateways of two versions work beside each other.
CREATE TABLE fencegate.act_sets (
    number       bigint PRIMARY KEY,      -- fencegate_acts_<number> is the schema
    digest       text   NOT NULL,         -- SHA-256 of their text
    installed_at timestamptz NOT NULL DEFAULT now()
);

-- What may be stored, as domains where it is about one value: they are checked when a value is stored, not, as
-- the constraints of a table are, whenever another column of its row changes.
CREATE DOMAIN fencegate.resource_name AS text COLLATE "C" CONSTRAINT resource_is_a_name CHECK (
    octet_length(VALUE) BETWEEN 1 AND 256
    AND VALUE ~ '^[A-Za-z0-9._~:@#+=,-]+$' AND VALUE NOT IN ('.', '..'));

CREATE DOMAIN fencegate.object_key AS text COLLATE "C" CONSTRAINT object_key_length CHECK (
    octet_length(VALUE) BETWEEN 1 AND 1024);

CREATE DOMAIN fencegate.owner_name AS text CONSTRAINT owner_short CHECK (octet_length(VALUE) <= 256);

CREATE DOMAIN fencegate.positive AS bigint CONSTRAINT is_positive CHECK (VALUE > 0);

CREATE DOMAIN fencegate.natural AS bigint CONSTRAINT is_not_negative CHECK (VALUE >= 0);

CREATE DOMAIN fencegate.hold AS text CONSTRAINT hold_known CHECK (
    VALUE IN ('none', 'held', 'draining', 'released', 'broken'));

CREATE DOMAIN fencegate.supersession AS text CONSTRAINT supersession_known CHECK (
    VALUE IN ('grant', 'transfer', 'fence'));

CREATE DOMAIN fencegate.lock_end AS text CONSTRAINT lock_end_known CHECK (
    VALUE IN ('superseded', 'released', 'broken', 'void'));

-- A little more than the 4096 bytes of the API: jsonb is written with spaces.
CREATE DOMAIN fencegate.lock_metadata AS jsonb CONSTRAINT lock_metadata_short CHECK (
    jsonb_typeof(VALUE) = 'object' AND octet_length(VALUE::text) <= 4128);

CREATE DOMAIN fencegate.operation_kind AS text CONSTRAINT operation_kind_known CHECK (
    VALUE IN ('put', 'delete', 'delete_all', 'commit', 'buried'));

CREATE DOMAIN fencegate.idempotency_key AS text COLLATE "C" CONSTRAINT idempotency_key_length CHECK (
    octet_length(VALUE) BETWEEN 1 AND 255);

-- Whose keys they are: those that callers name, those of S3's libraries, and those of uploads in parts.
CREATE DOMAIN fencegate.key_space AS text CONSTRAINT key_space_known CHECK (VALUE IN ('native', 'sdk', 'upload'));

-- One row per resource, for ever: the fence. Small, with free space in each page; a renewal updates it in
-- place (HOT).
CREATE TABLE fencegate.fences (
    resource    fencegate.resource_name PRIMARY KEY,
    token       fencegate.natural NOT NULL DEFAULT 0,
    lock_id     uuid,                     -- of the token sealed last
    owner       fencegate.owner_name,
    hold        fencegate.hold NOT NULL DEFAULT 'none',
    ttl_ms      bigint,                   -- how far ahead the deadline was set last
    deadline    timestamptz,              -- liveness only: no admission depends on it
    acquired_at timestamptz,
    renewed_at  timestamptz,
    break_due   timestamptz,              -- when an operator's break takes effect
    frozen      text,                     -- why all writers are stopped
    protected   text,                     -- why the resource must not be deleted
    last_seq    bigint NOT NULL DEFAULT 0, -- the highest number that left no version; others stand in operations
    objects     bigint NOT NULL DEFAULT 0,
    grants      bigint NOT NULL DEFAULT 0,
    -- The highest order of a fence without a lock.
    fence_order fencegate.positive,
    live_token  bigint NOT NULL DEFAULT 0 -- the highest token that was ever in force
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 2000);

-- Which breaks the sweeper has to store; nearly always empty.
CREATE INDEX fences_break_due ON fencegate.fences (break_due)
    WHERE break_due IS NOT NULL AND hold IN ('held', 'draining');

-- For lists of locks, of which there are few beside resources that are free. Its price: what changes `hold` is no update
-- in place.
CREATE INDEX fences_taken ON fencegate.fences (resource) WHERE hold <> 'released' AND hold <> 'none';

-- What was done to locks and resources is numbered in one order, grants and all else.
CREATE SEQUENCE fencegate.audit_numbers;

-- Every token that was sealed for a resource. Only inserted, never changed: what superseded a grant is the next one of the
-- resource. Part of the audit as well, which has no copy of it. The oldest may have been let go; between the oldest that is
-- here and the newest none is missing.
CREATE TABLE fencegate.grants (
    token          fencegate.positive NOT NULL,
    resource       text COLLATE "C" NOT NULL,
    lock_id        uuid   NOT NULL,
    owner          text   NOT NULL,
    ordinal        bigint NOT NULL,       -- 1 for the first grant of the resource, 2 for the next
    leads          boolean NOT NULL DEFAULT true, -- whether the resource is the first of its lock
    how            fencegate.supersession NOT NULL DEFAULT 'grant',
    at             timestamptz NOT NULL,
    previous_owner text,                  -- whose lock it put an end to
    number         bigint NOT NULL DEFAULT nextval('fencegate.audit_numbers'), -- in the audit
    act            xid8   NOT NULL DEFAULT pg_current_xact_id(), -- the transaction that stored it
    PRIMARY KEY (token, resource)
);

-- A token names one grant, on any resource (I15): of a lock on several, its first resource stands for it. The
-- acts look before they grant; this holds should two of them ever look at once.
CREATE UNIQUE INDEX grants_token ON fencegate.grants (token) WHERE leads;

-- Tokens and numbers of a resource rise together.
CREATE UNIQUE INDEX grants_resource ON fencegate.grants (resource, number);

CREATE UNIQUE INDEX grants_number ON fencegate.grants (number);

-- Most are grants; whoever asks for the others must not read through all of them.
CREATE INDEX grants_other ON fencegate.grants (how, number) WHERE how <> 'grant';

-- Locks by id, while they live and for a day after they ended. An id names one grant for ever.
CREATE TABLE fencegate.locks (
    id          uuid PRIMARY KEY,
    resources   text[] NOT NULL,
    token       bigint NOT NULL,
    owner       text   NOT NULL,
    ttl_ms      bigint NOT NULL,          -- 3153600000000 (100 years) for ever
    acquired_at timestamptz NOT NULL,
    hold_until  timestamptz,              -- when it must have ended, however often it is renewed
    metadata    fencegate.lock_metadata NOT NULL DEFAULT '{}',
    fence       boolean NOT NULL DEFAULT false, -- a fence without a lock: never renewed
    gateway     uuid,                     -- at which its caller waits until it is in force
    ended       fencegate.lock_end,
    ended_at    timestamptz
);

CREATE INDEX locks_ended_at ON fencegate.locks (ended_at) WHERE ended_at IS NOT NULL;

-- Ids of locks and operations that took no effect and never will.
CREATE TABLE fencegate.buried (
    kind      text NOT NULL CONSTRAINT buried_kind_known CHECK (kind IN ('lock', 'operation')),
    id        uuid NOT NULL,
    buried_at timestamptz NOT NULL,
    PRIMARY KEY (kind, id)
);

CREATE INDEX buried_at ON fencegate.buried (buried_at);

-- The belts: what no act does, the database refuses (I2, I6, I10).
CREATE FUNCTION fencegate.refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never removed', TG_TABLE_NAME USING ERRCODE = 'FG010';
END $$;

CREATE TRIGGER fences_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.fences
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_removal();

CREATE FUNCTION fencegate.check_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.resource <> OLD.resource OR NEW.token < OLD.token OR NEW.grants < OLD.grants THEN
        RAISE EXCEPTION 'a fence never falls' USING ERRCODE = 'FG011';
    END IF;
    RETURN NULL;
END $$;

-- Only where there is something to say: the call of a function for each row would cost a grant more than all else that
-- is done to its fence.
CREATE TRIGGER fences_only_rise AFTER UPDATE ON fencegate.fences FOR EACH ROW
    WHEN (NEW.resource <> OLD.resource OR NEW.token < OLD.token OR NEW.grants < OLD.grants)
    EXECUTE FUNCTION fencegate.check_fence();

CREATE FUNCTION fencegate.check_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.floor < OLD.floor THEN
        RAISE EXCEPTION 'the floor never falls' USING ERRCODE = 'FG011';
    END IF;
    IF NEW.acts_min < OLD.acts_min THEN
        RAISE EXCEPTION 'acts that were retired stay retired' USING ERRCODE = 'FG011';
    END IF;
    IF NEW.access < OLD.access THEN
        RAISE EXCEPTION 'the generation of access never falls' USING ERRCODE = 'FG011';
    END IF;
    IF TG_TABLE_NAME = 'write_guard' THEN
        IF NEW.generation < OLD.generation OR NEW.adoptions < OLD.adoptions THEN
            RAISE EXCEPTION 'generation and adoptions never fall' USING ERRCODE = 'FG011';
        END IF;
    END IF;
    IF TG_TABLE_NAME = 'seal_guard' THEN
        -- Nested: the other table has no such columns.
        IF NEW.epoch < OLD.epoch OR NEW.base < OLD.base THEN
            RAISE EXCEPTION 'the epoch and its base never fall' USING ERRCODE = 'FG011';
        END IF;
    END IF;
    RETURN NEW;
END $$;

-- Acts lock the table of their guard and not its row. So whoever changes the row, by hand or otherwise, waits for
-- the acts under way, and those that come later wait for it.
CREATE FUNCTION fencegate.wait_for_acts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('LOCK TABLE fencegate.%I IN EXCLUSIVE MODE', TG_TABLE_NAME);
    RETURN NULL;
END $$;

CREATE TRIGGER seal_guard_waits_for_acts BEFORE UPDATE ON fencegate.seal_guard
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.wait_for_acts();

CREATE TRIGGER write_guard_waits_for_acts BEFORE UPDATE ON fencegate.write_guard
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.wait_for_acts();

CREATE TRIGGER seal_guard_only_rises BEFORE UPDATE ON fencegate.seal_guard
    FOR EACH ROW EXECUTE FUNCTION fencegate.check_guard();

CREATE TRIGGER write_guard_only_rises BEFORE UPDATE ON fencegate.write_guard
    FOR EACH ROW EXECUTE FUNCTION fencegate.check_guard();

CREATE TRIGGER seal_guard_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.seal_guard
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_removal();

CREATE TRIGGER write_guard_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.write_guard
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_removal();

-- Where this ledger lives. The file name of the current WAL position shows the timeline at once
-- after a promotion; pg_control_checkpoint() still shows the old one until the next checkpoint.
CREATE FUNCTION fencegate.current_timeline() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8);
END $$;

-- A server has one system id for as long as it runs, so a session of it reads the file that holds it once, and
-- keeps it in the setting fencegate.system_id.
CREATE FUNCTION fencegate.current_system_id() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF coalesce(current_setting('fencegate.system_id', true), '') = '' THEN
        PERFORM set_config('fencegate.system_id', system_identifier::text, false)
        FROM pg_control_system();
    END IF;
    RETURN current_setting('fencegate.system_id');
END $$;

-- The file in which Postgres keeps where this server's history left each earlier timeline; NULL on the first one.
-- Reading it takes a right that only superusers have. docs/postgres.md tells them how to lend it, by making this very
-- function their own: so it calls nothing that somebody else could change.
CREATE FUNCTION fencegate.timeline_history() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN pg_read_file('pg_wal/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || '.history',
                        0, 1048576, true);
END $$;

INSERT INTO fencegate.seal_guard (epoch, nonce, open, base, floor, timeline, system_id)
VALUES (0, gen_random_uuid(), false, 0, 0, fencegate.current_timeline(), fencegate.current_system_id());

INSERT INTO fencegate.write_guard (floor, generation, timeline, system_id)
VALUES (0, 0, fencegate.current_timeline(), fencegate.current_system_id());

-- The gate of a fence. Rows are not granted in the order of asking: guarded transactions of users that
-- share a fence could keep an act out for ever, each beginning before the last one ends. So acts on a lane share
-- the gate until they end, and guarded transactions pass it alone, and let it go at once: they wait there, for
-- a while, if an act waits for the fence. Acts do not wait for each other there, but for a transaction that is
-- just passing. Rows of a table that nobody else has a right on, not advisory locks, which any role that may
-- connect could hold.
CREATE TABLE fencegate.gates (slot int PRIMARY KEY);

INSERT INTO fencegate.gates SELECT generate_series(0, 4095);

-- What stands for the ids that no row has yet: a row for each of so many classes of them. Two ids of one class
-- are taken for busy, or wait for each other, as one id would; no more than that.
CREATE TABLE fencegate.lock_id_slots (slot int PRIMARY KEY);

INSERT INTO fencegate.lock_id_slots SELECT generate_series(0, 16383);

CREATE FUNCTION fencegate.millis(p_interval interval) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM p_interval) * 1000)::bigint
$$;

-- By way of an interval: extract from a timestamptz is not immutable, and would keep the planner from putting
-- the body in the place of the call, which then is parsed anew each time.
CREATE FUNCTION fencegate.micros(p_time timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM p_time - timestamptz 'epoch') * 1000000)::bigint
$$;

-- The adoptions, for gateways that have missed one.
CREATE TABLE fencegate.adoptions (
    number      bigint PRIMARY KEY,       -- write_guard.adoptions since
    generation  bigint NOT NULL,
    former      text NOT NULL,            -- the timeline before
    timeline    text NOT NULL,
    left_at     bigint NOT NULL,          -- where the timeline before ended, as a position to insert at
    adopted_at  timestamptz NOT NULL
);
