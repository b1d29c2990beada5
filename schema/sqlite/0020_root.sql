-- The root of S3 keys does not stand in the ledger any more, but in a file beside it: whoever reads a copy of the ledger could
-- make the key of any lock (I18). A start moves there what an older gateway left here. Of the file the ledger has a digest.

DROP TRIGGER s3_root_never_removed;

ALTER TABLE guard ADD COLUMN s3_root_digest TEXT;

CREATE TRIGGER s3_root_digest_stays BEFORE UPDATE OF s3_root_digest ON guard
WHEN OLD.s3_root_digest IS NOT NULL AND NEW.s3_root_digest IS NOT OLD.s3_root_digest
BEGIN
    SELECT RAISE (ABORT, 'the digest of the root of S3 keys never changes');
END;
