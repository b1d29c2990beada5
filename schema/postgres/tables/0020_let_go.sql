-- Operations that were stored, or buried, before this may have been let go: what became of an older one that is not there, nobody
-- knows. It is raised in the act that removes them.
ALTER TABLE fencegate.own_time ADD COLUMN let_go_before timestamptz NOT NULL DEFAULT 'epoch';

CREATE OR REPLACE FUNCTION fencegate.check_own_time() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.at < OLD.at OR NEW.pass < OLD.pass OR NEW.let_go_before < OLD.let_go_before THEN
        RAISE EXCEPTION 'the ledger''s own time never falls' USING ERRCODE = 'FG011';
    END IF;
    RETURN NULL;
END $$;
