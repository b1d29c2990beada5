-- How and when grants ended. Same columns and meaning as on Postgres, where those of the audit are of grants.

ALTER TABLE fences ADD COLUMN ended_at INTEGER;
ALTER TABLE audit ADD COLUMN previous_end TEXT CHECK (
    previous_end IN ('released', 'broken', 'transferred', 'fenced', 'lapsed', 'void'));
ALTER TABLE audit ADD COLUMN previous_ended_at INTEGER;
