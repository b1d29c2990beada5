-- The role that gateways serve with, where they are not to own what they write: it changes no history, and removes none but
-- through acts.prune and acts.forget_burials, which keep to what is agreed, nor changes that but through acts.agree. Run this after each `fencegate migrate`, as the
-- owner of the schema or, better, as a superuser, who can also let it read what failovers need:
--
--     psql "$OWNER_URL" -v ON_ERROR_STOP=1 -f schema/postgres/roles.sql
--     psql "$OWNER_URL" -c "CREATE ROLE gateway LOGIN PASSWORD '...' IN ROLE fencegate_gateway"
--
-- docs/audit.md says what this is good for.

DO $$
DECLARE
    place record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'fencegate_gateway') THEN
        CREATE ROLE fencegate_gateway NOLOGIN;
    END IF;
    FOR place IN SELECT n.nspname FROM pg_namespace n
                 WHERE n.nspname = 'fencegate' OR n.nspname ~ '^fencegate_acts_[0-9]+$' LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO fencegate_gateway', place.nspname);
        EXECUTE format('GRANT EXECUTE ON ALL ROUTINES IN SCHEMA %I TO fencegate_gateway', place.nspname);
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO fencegate_gateway', place.nspname);
    END LOOP;
    -- Reads the file in which Postgres keeps where a timeline began, and how far the server and its standbys are.
    IF (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
        ALTER FUNCTION fencegate.timeline_history() OWNER TO CURRENT_USER;
        ALTER FUNCTION fencegate.timeline_history() SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
        IF NOT pg_has_role('fencegate_gateway', 'pg_monitor', 'MEMBER') THEN
            GRANT pg_monitor TO fencegate_gateway;
        END IF;
    END IF;
END $$;

-- It takes the next number of a sequence, and sets none.
REVOKE UPDATE ON ALL SEQUENCES IN SCHEMA fencegate FROM fencegate_gateway;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA fencegate TO fencegate_gateway;

-- Tables that are only ever added to: grants, writes, the audit, its leaves, events, rules. So are the fence,
-- which rises, and buckets, whose depth stays.
GRANT INSERT ON fencegate.access, fencegate.adoptions, fencegate.events, fencegate.events_rewound,
    fencegate.operations TO fencegate_gateway;
GRANT INSERT, UPDATE ON fencegate.fences, fencegate.audit_tiles, fencegate.drained_upstreams, fencegate.s3_buckets
    TO fencegate_gateway;

-- The number of an entry of the audit is the sequence's: nothing is added where something stood before.
REVOKE INSERT ON fencegate.audit, fencegate.grants FROM fencegate_gateway;
DO $$
DECLARE
    place record;
BEGIN
    FOR place IN SELECT a.attrelid::regclass AS name, string_agg(quote_ident(a.attname), ', ') AS columns FROM pg_attribute a
                 WHERE a.attrelid IN ('fencegate.audit'::regclass, 'fencegate.grants'::regclass)
                   AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'number' GROUP BY a.attrelid LOOP
        EXECUTE format('GRANT INSERT (%s) ON %s TO fencegate_gateway', place.columns, place.name);
    END LOOP;
END $$;

-- What stands as it is, and changes. (To lock a row or table is to have the right to change it.)
GRANT UPDATE ON fencegate.seal_guard, fencegate.write_guard, fencegate.audit_tree, fencegate.events_mark,
    fencegate.events_turn, fencegate.gates, fencegate.lock_id_slots, fencegate.own_time, fencegate.stocks_counted TO fencegate_gateway;

-- What comes and goes: no history.
GRANT INSERT, UPDATE, DELETE ON fencegate.access_roles, fencegate.blob_garbage, fencegate.blob_intents, fencegate.blob_pins,
    fencegate.blob_store, fencegate.buried, fencegate.gateways, fencegate.idempotency_keys, fencegate.locks,
    fencegate.milestones, fencegate.objects, fencegate.rejections, fencegate.replaced_versions, fencegate.stocks, fencegate.upload_parts,
    fencegate.uploads, fencegate.upstream_intents, fencegate.waiters, fencegate.waiter_resources TO fencegate_gateway;

-- The root of S3 keys, which older gateways left here, is taken away by those that have it from their settings.
REVOKE INSERT ON fencegate.s3_root FROM fencegate_gateway;
GRANT DELETE ON fencegate.s3_root TO fencegate_gateway;

-- What triggers note with the owner's rights, and is taken away once it is added up.
GRANT DELETE ON fencegate.stock_changes TO fencegate_gateway;
