-- How and when grants ended. The fence keeps when its last lock was given back or broken; which of the two, `hold` says. The
-- next grant takes that along, or says how it put an end to a lock that stood until then. None of both where older gateways
-- ended the lock, or granted the next.

CREATE DOMAIN fencegate.grant_end AS text CONSTRAINT grant_end_known CHECK (
    VALUE IN ('released', 'broken', 'transferred', 'fenced', 'lapsed', 'void'));

ALTER TABLE fencegate.fences ADD COLUMN ended_at timestamptz;

ALTER TABLE fencegate.grants ADD COLUMN previous_end fencegate.grant_end, ADD COLUMN previous_ended_at timestamptz;
