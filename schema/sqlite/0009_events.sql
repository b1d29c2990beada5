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

CREATE TRIGGER events_never_removed BEFORE DELETE ON events
BEGIN
    SELECT RAISE (ABORT, 'rows of events are never changed or removed');
END;
