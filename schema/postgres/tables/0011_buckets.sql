-- Buckets of S3, and what the access keys of S3 are derived from.

CREATE DOMAIN fencegate.bucket_name AS text COLLATE "C" CONSTRAINT bucket_is_a_name CHECK (
    VALUE ~ '^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$');

-- How each bucket names the resources of its objects: so that all gateways agree on it, and no setting can move objects
-- between locks. A bucket that was deleted stays, so that its name never gets another depth.
CREATE TABLE fencegate.s3_buckets (
    name       fencegate.bucket_name PRIMARY KEY,
    depth      int NOT NULL CONSTRAINT s3_buckets_depth_known CHECK (depth BETWEEN 0 AND 3),
    created_at timestamptz NOT NULL,      -- the last time, if it was deleted before
    deleted    boolean NOT NULL DEFAULT false
);

CREATE TRIGGER s3_buckets_keep_depth BEFORE UPDATE ON fencegate.s3_buckets
    FOR EACH ROW WHEN (OLD.name <> NEW.name OR OLD.depth <> NEW.depth)
    EXECUTE FUNCTION fencegate.refuse_change();

CREATE TRIGGER s3_buckets_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.s3_buckets
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

-- Whoever reads this can make the key of any lock (I18).
CREATE TABLE fencegate.s3_root (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT s3_root_only_row CHECK (only_row),
    root     bytea NOT NULL CONSTRAINT s3_root_whole CHECK (octet_length(root) = 32)
);

CREATE TRIGGER s3_root_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON fencegate.s3_root
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();
