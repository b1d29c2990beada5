-- The ledger's own time, by which it forgets. No jump of a clock moves it: the passes of the gateways do, each by no more than
-- the time that has passed since the one before.
CREATE TABLE fencegate.own_time (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT own_time_only_row CHECK (only_row),
    at       timestamptz NOT NULL,
    pass     bigint NOT NULL DEFAULT 0,   -- rises with each pass
    boot     text,                        -- of the machine whose gateway made the last one
    up_us    bigint                       -- the time that this machine had been up by then
);

INSERT INTO fencegate.own_time (at) VALUES (clock_timestamp());

CREATE FUNCTION fencegate.check_own_time() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.at < OLD.at OR NEW.pass < OLD.pass THEN
        RAISE EXCEPTION 'the ledger''s own time never falls' USING ERRCODE = 'FG011';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER own_time_only_rises AFTER UPDATE ON fencegate.own_time
    FOR EACH ROW EXECUTE FUNCTION fencegate.check_own_time();

CREATE TRIGGER own_time_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.own_time
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_removal();
