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
    closed     TEXT CHECK (closed IN ('answered', 'unsent', 'resolved', 'elapsed')),
    closed_at  INTEGER,
    status     INTEGER,
    reason     TEXT,
    CHECK ((closed IS NULL) = (closed_at IS NULL)),
    CHECK ((status IS NOT NULL) = (closed IS 'answered'))
) STRICT, WITHOUT ROWID;
CREATE INDEX upstream_intents_resource ON upstream_intents (resource) WHERE closed IS NULL;
CREATE INDEX upstream_intents_opened_at ON upstream_intents (opened_at, operation)
    WHERE closed IS NULL;
CREATE INDEX upstream_intents_closes_at ON upstream_intents (closes_at)
    WHERE closed IS NULL AND closes_at IS NOT NULL;
CREATE INDEX upstream_intents_closed_at ON upstream_intents (closed_at) WHERE closed IS NOT NULL;

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
