-- The credential that took a lock or renewed it last, by the name under which the rules of access can revoke it, and the end
-- that it has by itself, of a token or a certificate. What the credential has made ends with it: the lock, and its key of S3.

ALTER TABLE fencegate.locks ADD COLUMN credential text, ADD COLUMN credential_ends_us bigint;
