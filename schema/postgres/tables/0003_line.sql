-- Who waits for which resources.

-- Gateways with waiters. One without heartbeat for 5 s is taken for dead.
CREATE TABLE fencegate.gateways (
    id      uuid PRIMARY KEY,
    seen_at timestamptz NOT NULL,
    able    boolean NOT NULL              -- whether it can have numbers minted
);

-- One ticket per waiter over all its resources: one total order, so waiters cannot deadlock.
CREATE SEQUENCE fencegate.tickets;

CREATE TABLE fencegate.waiters (
    ticket     bigint PRIMARY KEY,
    lock_id    uuid   NOT NULL UNIQUE,    -- the id that the lock will have
    resources  text[] NOT NULL,
    owner      text   NOT NULL,
    joined_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    gateway    uuid   NOT NULL,           -- that serves its caller
    kept_until timestamptz,               -- until when the place is kept, if the caller is gone
    called_at  timestamptz                -- when it was told that it is its turn
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX waiters_kept_until ON fencegate.waiters (kept_until) WHERE kept_until IS NOT NULL;

CREATE INDEX waiters_gateway ON fencegate.waiters (gateway);

-- The line of each resource.
CREATE TABLE fencegate.waiter_resources (
    resource text COLLATE "C" NOT NULL,
    ticket   bigint NOT NULL,
    place    bigint NOT NULL,             -- 1 more than that of the last one when it joined
    PRIMARY KEY (resource, ticket)
);
