-- Who may do what: the rules of access, and whose each token is.

-- The rules, oldest first. The newest are in force; none: everybody may do everything.
CREATE TABLE fencegate.access (
    generation bigint PRIMARY KEY CONSTRAINT access_generation_positive CHECK (generation > 0),
    rules      text NOT NULL CONSTRAINT access_rules_short CHECK (octet_length(rules) <= 1048576),
    sha256     bytea NOT NULL,
    applied_at timestamptz NOT NULL,
    applied_by text,                      -- the principal; NULL where no rules were in force before
    reason     text NOT NULL CONSTRAINT access_reason_short CHECK (octet_length(reason) BETWEEN 1 AND 1024)
);

CREATE TRIGGER access_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON fencegate.access
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

-- Which principal a role of the database is to guard(), by the rules in force.
CREATE TABLE fencegate.access_roles (
    role  name PRIMARY KEY,
    names text COLLATE "C" NOT NULL       -- the principal, and role:NAME for each of its roles, apart by spaces
);

CREATE DOMAIN fencegate.principal_name AS text COLLATE "C" CONSTRAINT principal_is_a_name CHECK (
    octet_length(VALUE) <= 128 AND VALUE ~ '^[A-Za-z0-9][A-Za-z0-9._:/@-]*$');

-- Whose a token is, and who else may write under it: NULL where no rules were in force.
ALTER TABLE fencegate.fences ADD principal fencegate.principal_name, ADD writers text[];
ALTER TABLE fencegate.grants ADD principal fencegate.principal_name, ADD writers text[];
ALTER TABLE fencegate.locks ADD principal fencegate.principal_name, ADD writers text[];
ALTER TABLE fencegate.waiters ADD principal fencegate.principal_name;

ALTER DOMAIN fencegate.audit_action DROP CONSTRAINT audit_action_known;
ALTER DOMAIN fencegate.audit_action ADD CONSTRAINT audit_action_known CHECK (VALUE IN (
    'break', 'broken', 'freeze', 'unfreeze', 'protect', 'unprotect', 'resolve', 'refence', 'epoch', 'adopt', 'agree',
    'access'));
