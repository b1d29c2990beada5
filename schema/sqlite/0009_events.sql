-- The feed of committed writes. There is one writer, so the acts number their writes themselves.

CREATE TABLE events (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    operation TEXT NOT NULL,
    resource  TEXT                        -- of a commit, which has one event per resource
) STRICT;

-- Where each generation but the first began: beyond that number, events that were read in an earlier
-- generation may have been lost, and other ones have their numbers.
CREATE TABLE events_rewound (
    generation INTEGER PRIMARY KEY,
    number     INTEGER NOT NULL
) STRICT;

CREATE TRIGGER guard_begins_generation AFTER UPDATE ON guard
WHEN NEW.generation > OLD.generation
BEGIN
    INSERT INTO events_rewound (generation, number)
    SELECT NEW.generation, coalesce(max(number), 0) FROM events;
END;

CREATE TRIGGER events_never_changed BEFORE UPDATE ON events
BEGIN
    SELECT RAISE (ABORT, 'rows of events are never changed or removed');
END;

-- How far history has been let go (the setting `history_kept`).
CREATE TABLE history (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    events   INTEGER NOT NULL,            -- up to this number there are none
    token    INTEGER NOT NULL             -- the highest token whose grant is gone
) STRICT;

INSERT INTO history (only_row, events, token) VALUES (1, 0, 0);

CREATE INDEX operations_unnumbered ON operations (committed_at) WHERE version IS NULL;
CREATE INDEX idempotency_keys_operation ON idempotency_keys (operation);
CREATE INDEX audit_grant ON audit (resource, token) WHERE action IN ('grant', 'transfer', 'fence');
CREATE INDEX grants_superseded_at ON grants (superseded_at) WHERE superseded_at IS NOT NULL;

CREATE TRIGGER history_only_rises BEFORE UPDATE ON history
WHEN NEW.events < OLD.events OR NEW.token < OLD.token
BEGIN
    SELECT RAISE (ABORT, 'what was let go does not come back');
END;

CREATE TRIGGER events_only_as_history BEFORE DELETE ON events
WHEN OLD.number > (SELECT events FROM history)
BEGIN
    SELECT RAISE (ABORT, 'rows of events are removed only as history that is let go');
END;

CREATE TRIGGER operations_keep_newest BEFORE DELETE ON operations
WHEN OLD.version IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM operations o WHERE o.resource = OLD.resource AND o.version > OLD.version)
BEGIN
    SELECT RAISE (ABORT, 'the newest operation of a resource is never removed');
END;

CREATE TRIGGER grants_keep_newest BEFORE DELETE ON grants
WHEN NOT EXISTS (SELECT 1 FROM grants g WHERE g.resource = OLD.resource AND g.token > OLD.token)
BEGIN
    SELECT RAISE (ABORT, 'the newest grant of a resource is never removed');
END;
