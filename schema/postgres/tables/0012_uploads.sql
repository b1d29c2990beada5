-- What S3 needs of objects: what it tells of them, uploads in parts, and its order of lists.

-- A key of S3 may be empty inside its resource: the marker of a directory that is a resource.
ALTER DOMAIN fencegate.object_key DROP CONSTRAINT object_key_length;
ALTER DOMAIN fencegate.object_key ADD CONSTRAINT object_key_length CHECK (octet_length(VALUE) <= 1024);

CREATE DOMAIN fencegate.object_about AS text CONSTRAINT object_about_short CHECK (octet_length(VALUE) <= 8192);

-- parts: of how many parts it consists, NULL if it was not uploaded in parts. Its blob is the upload then, which is no blob
-- in the store: its parts are. Its sha256 is that of the digests of its parts.
ALTER TABLE fencegate.objects ADD about fencegate.object_about, ADD parts int,
    ADD CONSTRAINT objects_parts_of_upload CHECK (parts IS NULL OR blob IS NOT NULL);
ALTER TABLE fencegate.replaced_versions ADD about fencegate.object_about, ADD parts int;

-- Uploads in parts that go on. Each has an intent and goes with it: whoever takes that, be it to complete the upload, to
-- abort it or to give it up, decides over the parts as well (I19).
CREATE TABLE fencegate.uploads (
    id           uuid PRIMARY KEY REFERENCES fencegate.blob_intents (blob) ON DELETE CASCADE,
    resource     text COLLATE "C" NOT NULL,
    key          fencegate.object_key NOT NULL,
    content_type text NOT NULL,
    about        fencegate.object_about,
    principal    fencegate.principal_name
);

CREATE INDEX uploads_path ON fencegate.uploads
    ((translate(resource, ':', '/') || '/' || key) COLLATE "C", id);

-- Parts of uploads that go on, and of those that are objects or were. They have the fate of their upload.
CREATE TABLE fencegate.upload_parts (
    upload    uuid NOT NULL,
    number    int  NOT NULL CONSTRAINT upload_parts_number CHECK (number BETWEEN 1 AND 10000),
    blob      uuid NOT NULL,
    size      bigint NOT NULL,
    sha256    bytea NOT NULL,
    checksum  text CONSTRAINT upload_parts_checksum_short CHECK (octet_length(checksum) <= 256),
    begun_at  timestamptz NOT NULL,     -- of two under one number the one counts that was begun last
    stored_at timestamptz NOT NULL,
    PRIMARY KEY (upload, number)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX upload_parts_blob ON fencegate.upload_parts (blob);

-- Whether a copy of the ledger from before may have it in an upload that goes on, which anybody may complete: then it
-- becomes due only the rollback horizon later.
ALTER TABLE fencegate.blob_garbage ADD may_return boolean NOT NULL DEFAULT false;

CREATE INDEX blob_garbage_may_return ON fencegate.blob_garbage (blob) WHERE may_return;

-- Lists of buckets look for the next resource by its place among whole keys. Names are never changed.
CREATE INDEX fences_path ON fencegate.fences ((translate(resource, ':', '/') || '/') COLLATE "C")
    WHERE position(':' IN resource) > 0;
