-- The credential that took a lock or renewed it last, and the end that it has by itself; as on Postgres.

ALTER TABLE locks ADD COLUMN credential TEXT;

ALTER TABLE locks ADD COLUMN credential_ends INTEGER;
