-- The tables of the ledger. schema/README.md explains each table, column and invariant.

-- The schema `fencegate` itself is made by whoever runs the migrations, which keep their own table in it.

-- Guards: what every act checks before it does anything. Seals and writes share-lock different
-- rows, so that an epoch switch, which waits for seals, is not starved by writes.
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
    ledger    uuid    NOT NULL DEFAULT gen_random_uuid()  -- which ledger this is, for the mint
);

CREATE TABLE fencegate.write_guard (
    only_row   boolean PRIMARY KEY DEFAULT true CONSTRAINT write_guard_only_row CHECK (only_row),
    floor      bigint  NOT NULL,
    generation bigint  NOT NULL,          -- rises with each re-fence; part of every ETag
    timeline   text    NOT NULL,
    system_id  bigint  NOT NULL,
    halted     text,                      -- why nothing may be written until a re-fence
    refenced_at timestamptz,              -- the last time
    adoptions  bigint NOT NULL DEFAULT 0  -- rises with each timeline that was taken over without a re-fence
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
    VALUE IN ('put', 'delete', 'delete_all', 'commit'));
CREATE DOMAIN fencegate.idempotency_key AS text COLLATE "C" CONSTRAINT idempotency_key_length CHECK (
    octet_length(VALUE) BETWEEN 1 AND 255);

-- One row per resource, for ever: the fence. Small and updated in place (HOT): no index on what
-- changes, and free space in each page.
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
    version     bigint NOT NULL DEFAULT 0,
    last_seq    bigint NOT NULL DEFAULT 0,
    objects     bigint NOT NULL DEFAULT 0,
    grants      bigint NOT NULL DEFAULT 0,
    -- The highest order of a fence without a lock.
    fence_order fencegate.positive,
    live_token  bigint NOT NULL DEFAULT 0 -- the highest token that was ever in force
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 2000);

-- Which breaks the sweeper has to store; nearly always empty.
CREATE INDEX fences_break_due ON fencegate.fences (break_due)
    WHERE break_due IS NOT NULL AND hold IN ('held', 'draining');

-- For lists of locks, of which there are few beside resources that are free.
CREATE INDEX fences_taken ON fencegate.fences (resource) WHERE hold <> 'released' AND hold <> 'none';

-- Every (resource, token) that was ever sealed. A token that is not here was never sealed.
CREATE TABLE fencegate.grants (
    resource      text COLLATE "C" NOT NULL,
    token         fencegate.positive NOT NULL,
    lock_id       uuid   NOT NULL,
    owner         text   NOT NULL,
    ordinal       bigint NOT NULL,        -- 1 for the first grant of the resource, 2 for the next
    leads         boolean NOT NULL DEFAULT true, -- whether the resource is the first of its lock
    superseded_by fencegate.supersession,
    superseded_at timestamptz,
    PRIMARY KEY (resource, token)
);
-- A token names one grant, on any resource (I15): of a lock on several, its first resource stands for it. The
-- acts look before they grant; this holds should two of them ever look at once.
CREATE UNIQUE INDEX grants_token ON fencegate.grants (token) WHERE leads;

-- Locks by id, while they live and for a day after they ended. An id names one grant for ever.
CREATE TABLE fencegate.locks (
    id          uuid PRIMARY KEY,
    resources   text[] NOT NULL,
    token       bigint NOT NULL,
    owner       text   NOT NULL,
    ttl_ms      bigint NOT NULL,          -- fencegate.infinite_ms() for ever
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

-- Objects: their bytes, if they are small enough to live here, or the blob that has them.
CREATE TABLE fencegate.objects (
    resource     text COLLATE "C" NOT NULL,
    key          fencegate.object_key NOT NULL,
    version      bigint NOT NULL,         -- of the resource, when it was written
    generation   bigint NOT NULL,         -- of the ledger, when it was written
    content_type text   NOT NULL,
    size         bigint NOT NULL,
    sha256       bytea  NOT NULL,
    written_at   timestamptz NOT NULL,
    body         bytea,
    blob         uuid,                    -- its name in the blob store
    PRIMARY KEY (resource, key),
    CONSTRAINT objects_payload_somewhere CHECK ((body IS NULL) <> (blob IS NULL))
) WITH (fillfactor = 70);
ALTER TABLE fencegate.objects ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX objects_blob ON fencegate.objects (blob) WHERE blob IS NOT NULL;

-- One row per committed write, and one per resource of a commit, all with its id; never changed.
CREATE TABLE fencegate.operations (
    id           uuid NOT NULL,
    resource     text COLLATE "C" NOT NULL,
    version      bigint,                  -- NULL for a delete of nothing
    kind         fencegate.operation_kind NOT NULL,
    key          text COLLATE "C",
    generation   bigint NOT NULL,
    token        bigint NOT NULL,
    seq          bigint,
    created      boolean NOT NULL,
    size         bigint NOT NULL,
    sha256       bytea,
    owner        text NOT NULL,
    committed_at timestamptz NOT NULL,
    -- Of a commit: what each of its steps on this resource did (created, replaced, deleted, nothing).
    did          text CONSTRAINT operations_did_known CHECK (did ~ '^[crdn]*$'),
    PRIMARY KEY (id, resource)
);
CREATE UNIQUE INDEX operations_resource_version ON fencegate.operations (resource, version);

-- Which operation an idempotency key stands for.
CREATE TABLE fencegate.idempotency_keys (
    resource    text COLLATE "C" NOT NULL,
    key         fencegate.idempotency_key NOT NULL,
    fingerprint bytea NOT NULL,
    operation   uuid  NOT NULL,
    stored_at   timestamptz NOT NULL,
    kept_until  timestamptz,              -- NULL: as long as the settings say
    PRIMARY KEY (resource, key)
);
CREATE INDEX idempotency_keys_stored_at ON fencegate.idempotency_keys (stored_at) WHERE kept_until IS NULL;
CREATE INDEX idempotency_keys_kept_until ON fencegate.idempotency_keys (kept_until)
    WHERE kept_until IS NOT NULL;

-- Refused writes, for the operator. Written off the hot path, bounded in number.
CREATE TABLE fencegate.rejections (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL,
    resource      text COLLATE "C" NOT NULL,
    key           text,
    reason        text NOT NULL,
    token         bigint,
    grants_behind bigint,
    superseded_ms bigint,
    owner         text,
    request_id    text NOT NULL,
    times         bigint NOT NULL DEFAULT 1, -- writes that this stands for
    minute        bigint                  -- of those with unknown tokens: all on a resource in it are one row
);
CREATE INDEX rejections_resource ON fencegate.rejections (resource, number);
CREATE INDEX rejections_reason ON fencegate.rejections (reason, number);
CREATE INDEX rejections_single ON fencegate.rejections (number) WHERE minute IS NULL;
CREATE UNIQUE INDEX rejections_counted ON fencegate.rejections (resource, minute) WHERE minute IS NOT NULL;

-- Gateways with waiters. One without heartbeat for 5 s is taken for dead.
CREATE TABLE fencegate.gateways (
    id      uuid PRIMARY KEY,
    seen_at timestamptz NOT NULL,
    able    boolean NOT NULL              -- whether it can have numbers minted
);

-- One ticket per waiter over all its resources: one total order, so waiters cannot deadlock.
CREATE SEQUENCE fencegate.tickets;

CREATE TABLE fencegate.waiters (
    ticket     bigint PRIMARY KEY,
    lock_id    uuid   NOT NULL UNIQUE,    -- the id that the lock will have
    resources  text[] NOT NULL,
    owner      text   NOT NULL,
    joined_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    gateway    uuid   NOT NULL,           -- that serves its caller
    kept_until timestamptz,               -- until when the place is kept, if the caller is gone
    called_at  timestamptz                -- when it was told that it is its turn
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX waiters_kept_until ON fencegate.waiters (kept_until) WHERE kept_until IS NOT NULL;
CREATE INDEX waiters_gateway ON fencegate.waiters (gateway);

-- The line of each resource.
CREATE TABLE fencegate.waiter_resources (
    resource text COLLATE "C" NOT NULL,
    ticket   bigint NOT NULL,
    place    bigint NOT NULL,             -- 1 more than that of the last one when it joined
    PRIMARY KEY (resource, ticket)
);

-- The belts: what no act does, the database refuses (I2, I6, I10).
CREATE FUNCTION fencegate.refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never removed', TG_TABLE_NAME USING ERRCODE = 'FG010';
END $$;

CREATE TRIGGER fences_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.fences
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_removal();

-- A version rises by the number of operation rows written with it. Their numbers are distinct, so where it
-- rises by one it is enough that the last one is there: one look for all rows of a statement, which every
-- write pays. Where it rises by more, they are counted.
CREATE FUNCTION fencegate.check_last_operation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Not an anti-join, which could be planned to read all operations.
    IF EXISTS (SELECT FROM after a
               WHERE a.version > 0 AND (
                   SELECT o.version FROM fencegate.operations o
                   WHERE o.resource = a.resource AND o.version = a.version) IS NULL) THEN
        RAISE EXCEPTION 'a version rises by one per operation' USING ERRCODE = 'FG012';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION fencegate.check_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.resource <> OLD.resource OR NEW.token < OLD.token OR NEW.version < OLD.version
       OR NEW.grants < OLD.grants THEN
        RAISE EXCEPTION 'a fence never falls' USING ERRCODE = 'FG011';
    END IF;
    IF NEW.version - OLD.version <> (
           SELECT count(*) FROM fencegate.operations o
           WHERE o.resource = NEW.resource
             AND o.version > OLD.version AND o.version <= NEW.version) THEN
        RAISE EXCEPTION 'a version rises by one per operation' USING ERRCODE = 'FG012';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER fences_last_operation AFTER UPDATE ON fencegate.fences
    REFERENCING NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.check_last_operation();
-- Only where there is something to say: the call of a function for each row would cost a write more than
-- all else that is done to its fence.
CREATE TRIGGER fences_only_rise AFTER UPDATE ON fencegate.fences FOR EACH ROW
    WHEN (NEW.resource <> OLD.resource OR NEW.token < OLD.token OR NEW.grants < OLD.grants
          OR NEW.version NOT BETWEEN OLD.version AND OLD.version + 1)
    EXECUTE FUNCTION fencegate.check_fence();

CREATE FUNCTION fencegate.check_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.floor < OLD.floor THEN
        RAISE EXCEPTION 'the floor never falls' USING ERRCODE = 'FG011';
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

INSERT INTO fencegate.seal_guard (epoch, nonce, open, base, floor, timeline, system_id)
VALUES (0, gen_random_uuid(), false, 0, 0, fencegate.current_timeline(), fencegate.current_system_id());
INSERT INTO fencegate.write_guard (floor, generation, timeline, system_id)
VALUES (0, 0, fencegate.current_timeline(), fencegate.current_system_id());
