-- What principals have in the ledger, so that what their roles allow can be held against it.

-- Who put what is there now; NULL where no rules were in force.
ALTER TABLE fencegate.objects ADD principal text COLLATE "C";

-- As it was counted last. Objects count for who put them, a resource for who was the first to lock it.
CREATE TABLE fencegate.stocks (
    principal text COLLATE "C" PRIMARY KEY,
    locks     bigint NOT NULL DEFAULT 0,  -- that are in force
    resources bigint NOT NULL DEFAULT 0,
    keys      bigint NOT NULL DEFAULT 0,
    bytes     bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

CREATE INDEX stocks_of_holders ON fencegate.stocks (principal) WHERE locks <> 0;

-- What has changed since: whoever writes adds a row, so that nobody waits for anybody.
CREATE TABLE fencegate.stock_changes (
    principal text COLLATE "C" NOT NULL,
    resources bigint NOT NULL DEFAULT 0,
    keys      bigint NOT NULL DEFAULT 0,
    bytes     bigint NOT NULL DEFAULT 0
);

-- When it was counted last; whoever counts holds the row.
CREATE TABLE fencegate.stocks_counted (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT stocks_counted_only_row CHECK (only_row),
    at       timestamptz NOT NULL
);

INSERT INTO fencegate.stocks_counted (at) VALUES (timestamptz 'epoch');

-- With the rights of the owner: whoever may change the one may not be granted the other yet.
CREATE FUNCTION fencegate.note_object() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO fencegate.stock_changes (principal, keys, bytes)
    SELECT c.principal, sum(c.keys), sum(c.bytes)
    FROM (VALUES (CASE WHEN TG_OP <> 'INSERT' THEN OLD.principal END, -1,
                  CASE WHEN TG_OP <> 'INSERT' THEN -OLD.size END),
                 (CASE WHEN TG_OP <> 'DELETE' THEN NEW.principal END, 1,
                  CASE WHEN TG_OP <> 'DELETE' THEN NEW.size END)) c (principal, keys, bytes)
    WHERE c.principal IS NOT NULL
    GROUP BY c.principal;
    RETURN NULL;
END $$;

CREATE TRIGGER objects_put AFTER INSERT ON fencegate.objects FOR EACH ROW
    WHEN (NEW.principal IS NOT NULL) EXECUTE FUNCTION fencegate.note_object();

CREATE TRIGGER objects_replaced AFTER UPDATE ON fencegate.objects FOR EACH ROW
    WHEN (OLD.principal IS DISTINCT FROM NEW.principal OR OLD.size <> NEW.size AND NEW.principal IS NOT NULL)
    EXECUTE FUNCTION fencegate.note_object();

CREATE TRIGGER objects_deleted AFTER DELETE ON fencegate.objects FOR EACH ROW
    WHEN (OLD.principal IS NOT NULL) EXECUTE FUNCTION fencegate.note_object();

CREATE FUNCTION fencegate.note_resource() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO fencegate.stock_changes (principal, resources) VALUES (NEW.principal, 1);
    RETURN NULL;
END $$;

CREATE TRIGGER fences_first_raised AFTER UPDATE ON fencegate.fences FOR EACH ROW
    WHEN (OLD.grants = 0 AND NEW.grants > 0 AND NEW.principal IS NOT NULL) EXECUTE FUNCTION fencegate.note_resource();
