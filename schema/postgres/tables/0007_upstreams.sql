-- Upstreams whose guarantee is `drained`: an intent is committed before anything is forwarded and closed
-- by the upstream's answer, and no newer lock is in force while one of an older token is open (I13).

-- Intents, open or closed. Closed ones are kept as long as idempotency keys, so that their callers may ask
-- what came of them, and none is opened again by a statement that comes late.
CREATE TABLE fencegate.upstream_intents (
    operation  uuid PRIMARY KEY,
    resource   text COLLATE "C" NOT NULL,
    token      bigint NOT NULL CONSTRAINT upstream_intents_token_positive CHECK (token > 0),
    owner      text NOT NULL,             -- whose token it is
    upstream   text COLLATE "C" NOT NULL,
    method     text NOT NULL,
    path       text NOT NULL,
    gateway    uuid NOT NULL,             -- that forwards it
    opened_at  timestamptz NOT NULL,
    closes_at  timestamptz,               -- counts as closed from then on, whatever became of it
    -- Who closed it: its gateway, which has the upstream's answer or knows that nothing was sent; or, without
    -- knowing what came of it, an operator or its time.
    closed     text CONSTRAINT upstream_intents_closed_known
               CHECK (closed IN ('answered', 'unsent', 'resolved', 'elapsed')),
    closed_at  timestamptz,
    status     int,                       -- of the answer
    reason     text,                      -- of the operator
    CONSTRAINT upstream_intents_closed_whole CHECK ((closed IS NULL) = (closed_at IS NULL)),
    CONSTRAINT upstream_intents_status_of_answer
        CHECK ((status IS NOT NULL) = (closed IS NOT DISTINCT FROM 'answered'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 2000);

CREATE INDEX upstream_intents_resource ON fencegate.upstream_intents (resource) WHERE closed IS NULL;

CREATE INDEX upstream_intents_opened_at ON fencegate.upstream_intents (opened_at, operation)
    WHERE closed IS NULL;

CREATE INDEX upstream_intents_closes_at ON fencegate.upstream_intents (closes_at)
    WHERE closed IS NULL AND closes_at IS NOT NULL;

CREATE INDEX upstream_intents_closed_at ON fencegate.upstream_intents (closed_at)
    WHERE closed IS NOT NULL;

-- Upstreams as gateways register them at their start. Never removed: intents may be lost in the next
-- re-fence, which puts all of them in doubt.
CREATE TABLE fencegate.drained_upstreams (
    name                text COLLATE "C" NOT NULL,
    resource_prefix     text COLLATE "C" NOT NULL,
    max_effect_delay_ms bigint,           -- after it nothing that was forwarded has an effect any more
    doubt_floor         bigint,           -- resources that had a lock in force since are above this
    doubt_since         timestamptz,
    PRIMARY KEY (name, resource_prefix),
    CONSTRAINT drained_upstreams_doubt_whole CHECK ((doubt_floor IS NULL) = (doubt_since IS NULL))
);

CREATE TRIGGER drained_upstreams_never_removed BEFORE DELETE OR TRUNCATE ON fencegate.drained_upstreams
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_removal();

-- Which locks are not in force yet; nearly always empty.
CREATE INDEX fences_draining ON fencegate.fences (resource) WHERE hold = 'draining';
