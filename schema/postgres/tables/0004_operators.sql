-- What operators do, and what all gateways of a ledger have alike.

CREATE DOMAIN fencegate.audit_action AS text CONSTRAINT audit_action_known CHECK (VALUE IN (
    'break', 'broken', 'freeze', 'unfreeze', 'protect', 'unprotect', 'resolve', 'refence', 'epoch', 'adopt', 'agree'));

CREATE DOMAIN fencegate.audit_reason AS text CONSTRAINT audit_reason_short CHECK (
    octet_length(VALUE) BETWEEN 1 AND 1024);

CREATE DOMAIN fencegate.request_id AS text CONSTRAINT request_id_short CHECK (octet_length(VALUE) <= 128);

-- What was done to locks and resources, beside the grants. Written by the acts themselves, never changed.
CREATE TABLE fencegate.audit (
    number     bigint PRIMARY KEY DEFAULT nextval('fencegate.audit_numbers'),
    at         timestamptz NOT NULL,
    action     fencegate.audit_action NOT NULL,
    resource   text COLLATE "C",          -- NULL if it was to the whole ledger
    owner      text,                      -- whose lock was broken
    token      bigint,                    -- of the lock; not shown
    reason     fencegate.audit_reason,
    request_id fencegate.request_id,
    act        xid8 NOT NULL DEFAULT pg_current_xact_id() -- the transaction that stored it
);

CREATE INDEX audit_resource ON fencegate.audit (resource, number);

CREATE INDEX audit_action ON fencegate.audit (action, number);

CREATE FUNCTION fencegate.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed or removed', TG_TABLE_NAME USING ERRCODE = 'FG010';
END $$;

-- History may be let go, and the newest of a resource may not: its version, and its token, must never come again.
CREATE FUNCTION fencegate.keep_newest() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_newest boolean;
BEGIN
    IF TG_TABLE_NAME = 'grants' THEN
        is_newest := OLD.token >= (SELECT f.token FROM fencegate.fences f WHERE f.resource = OLD.resource);
    ELSE
        -- Nested: the other table has no such column.
        is_newest := NOT EXISTS (
            SELECT FROM fencegate.operations o WHERE o.resource = OLD.resource AND o.version > OLD.version);
    END IF;
    IF is_newest THEN
        RAISE EXCEPTION 'the newest row of a resource in % is never removed', TG_TABLE_NAME USING ERRCODE = 'FG010';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER operations_only_grow BEFORE UPDATE OR TRUNCATE ON fencegate.operations
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

-- Those without a version are burials, which are forgotten after a while, and writes that changed nothing.
CREATE TRIGGER operations_keep_newest BEFORE DELETE ON fencegate.operations
    FOR EACH ROW WHEN (OLD.version IS NOT NULL) EXECUTE FUNCTION fencegate.keep_newest();

CREATE TRIGGER grants_only_grow BEFORE UPDATE OR TRUNCATE ON fencegate.grants
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

CREATE TRIGGER grants_keep_newest BEFORE DELETE ON fencegate.grants
    FOR EACH ROW EXECUTE FUNCTION fencegate.keep_newest();

CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON fencegate.audit
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

-- What all gateways of this ledger have alike, by the names of the settings. The values are theirs to read, but for
-- `failover` and `require_lock_id`, which the acts and guard() go by.
CREATE TABLE fencegate.agreed (
    name  text COLLATE "C" PRIMARY KEY CONSTRAINT agreed_name_short CHECK (octet_length(name) BETWEEN 1 AND 64),
    value text NOT NULL CONSTRAINT agreed_value_short CHECK (octet_length(value) <= 64)
);
