-- Refuses entries of the audit below its first: they would be older than all that the tree over it has. What is there
-- already is not looked at, so that the lock on the table is a short one; `fencegate audit verify` finds it.

ALTER TABLE fencegate.audit ADD CONSTRAINT audit_number_counts CHECK (number > 0) NOT VALID;

ALTER TABLE fencegate.grants ADD CONSTRAINT grants_number_counts CHECK (number > 0) NOT VALID;
