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

-- But for burials, which are forgotten after a while.
CREATE TRIGGER operations_only_grow BEFORE UPDATE OR TRUNCATE ON fencegate.operations
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

CREATE TRIGGER operations_stay BEFORE DELETE ON fencegate.operations
    FOR EACH ROW WHEN (OLD.kind <> 'buried') EXECUTE FUNCTION fencegate.refuse_change();

CREATE TRIGGER grants_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON fencegate.grants
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON fencegate.audit
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

-- What all gateways of this ledger have alike, by the names of the settings. The values are theirs to read, but for
-- `failover` and `require_lock_id`, which the acts and guard() go by.
CREATE TABLE fencegate.agreed (
    name  text COLLATE "C" PRIMARY KEY CONSTRAINT agreed_name_short CHECK (octet_length(name) BETWEEN 1 AND 64),
    value text NOT NULL CONSTRAINT agreed_value_short CHECK (octet_length(value) <= 64)
);
