-- Upstreams whose guarantee is `drained`. Same columns and meaning as on Postgres.

CREATE TABLE upstream_intents (
    operation  TEXT PRIMARY KEY,
    resource   TEXT    NOT NULL,
    token      INTEGER NOT NULL CHECK (token > 0),
    owner      TEXT    NOT NULL,
    upstream   TEXT    NOT NULL,
    method     TEXT    NOT NULL,
    path       TEXT    NOT NULL,
    gateway    TEXT    NOT NULL,
    opened_at  INTEGER NOT NULL,
    closes_at  INTEGER,
    sent_again INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX upstream_intents_resource ON upstream_intents (resource);
CREATE INDEX upstream_intents_opened_at ON upstream_intents (opened_at, operation);

CREATE TABLE drained_upstreams (
    name                TEXT NOT NULL,
    resource_prefix     TEXT NOT NULL,
    max_effect_delay_ms INTEGER,
    doubt_floor         INTEGER,
    doubt_since         INTEGER,
    PRIMARY KEY (name, resource_prefix),
    CHECK ((doubt_floor IS NULL) = (doubt_since IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER drained_upstreams_never_removed BEFORE DELETE ON drained_upstreams
BEGIN
    SELECT RAISE (ABORT, 'rows of drained_upstreams are never removed');
END;
