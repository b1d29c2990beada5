-- The Merkle tree over the audit: what shows that an entry was changed or removed.

-- How far it has come.
CREATE TABLE fencegate.audit_tree (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT audit_tree_only_row CHECK (only_row),
    size     bigint NOT NULL DEFAULT 0,   -- how many leaves it has
    upto     bigint NOT NULL DEFAULT 0,   -- all entries up to this number are in it
    roots    bytea  NOT NULL DEFAULT '',  -- of its complete subtrees, the largest first
    note     text CONSTRAINT audit_note_short CHECK (octet_length(note) <= 16384), -- its checkpoint, signed
    witnessed text CONSTRAINT audit_witnessed_short CHECK (octet_length(witnessed) <= 16384) -- the newest that a witness signed
) WITH (fillfactor = 50);

INSERT INTO fencegate.audit_tree DEFAULT VALUES;

-- What it keeps of each entry, 256 in a row: also of those that were let go.
CREATE TABLE fencegate.audit_tiles (
    tile    bigint PRIMARY KEY CONSTRAINT audit_tile_positive CHECK (tile >= 0),
    numbers bigint[]  NOT NULL CONSTRAINT audit_tile_small CHECK (cardinality(numbers) BETWEEN 1 AND 256),
    grants  boolean[] NOT NULL,           -- which of them are grants
    digests bytea     NOT NULL,           -- SHA-256 of the fields of each
    root    bytea,                        -- over all of them, once the tile is full
    CONSTRAINT audit_tile_whole CHECK (
        cardinality(grants) = cardinality(numbers) AND octet_length(digests) = 32 * cardinality(numbers)
        AND (root IS NOT NULL) = (cardinality(numbers) = 256))
);

CREATE FUNCTION fencegate.check_audit_tree() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.size < OLD.size OR NEW.upto < OLD.upto THEN
        RAISE EXCEPTION 'the tree of the audit only grows' USING ERRCODE = 'FG011';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER audit_tree_only_grows BEFORE UPDATE ON fencegate.audit_tree
    FOR EACH ROW EXECUTE FUNCTION fencegate.check_audit_tree();

CREATE FUNCTION fencegate.check_audit_tile() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.tile <> OLD.tile OR substr(NEW.digests, 1, octet_length(OLD.digests)) <> OLD.digests
       OR NEW.numbers[:cardinality(OLD.numbers)] <> OLD.numbers THEN
        RAISE EXCEPTION 'the tiles of the audit only grow' USING ERRCODE = 'FG010';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER audit_tiles_only_grow BEFORE UPDATE ON fencegate.audit_tiles
    FOR EACH ROW EXECUTE FUNCTION fencegate.check_audit_tile();

CREATE TRIGGER audit_tiles_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.audit_tiles
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_removal();

CREATE TRIGGER audit_tree_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.audit_tree
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_removal();

-- Who asked for what an entry says, and how, as JSON: principal, credential, peer, ids of the request. NULL for what a
-- gateway did by itself.
CREATE DOMAIN fencegate.asked AS text CONSTRAINT asked_short CHECK (octet_length(VALUE) <= 4096);
ALTER TABLE fencegate.audit ADD asked fencegate.asked, DROP act;
ALTER TABLE fencegate.grants ADD asked fencegate.asked, DROP act;

ALTER DOMAIN fencegate.audit_action DROP CONSTRAINT audit_action_known;
ALTER DOMAIN fencegate.audit_action ADD CONSTRAINT audit_action_known CHECK (VALUE IN (
    'break', 'broken', 'freeze', 'unfreeze', 'protect', 'unprotect', 'resolve', 'refence', 'epoch', 'adopt', 'agree',
    'access', 'denied', 'auth-failed', 'fork'));
