-- The root of S3 keys does not stand in the ledger any more: whoever reads a dump, a replica or a backup could make the key of
-- any lock (I18). The first gateway that has it from its settings takes away what an older one left here. `agreed` has its digest.
DROP TRIGGER s3_root_never_changed ON fencegate.s3_root;

CREATE TRIGGER s3_root_never_changed BEFORE UPDATE OR TRUNCATE ON fencegate.s3_root
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();
