-- What the PostgreSQL engine asks for itself: its transactions, its schema, its listener.

-- name: begin
-- For this transaction alone, so that a proxy may give each one another connection. The limits
-- bound every statement and every wait for a lock. FULL leaves how the server commits as it is,
-- but for "off". Without the three ways to read a table the planner is left with its indexes, in
-- their order: it cannot choose badly because a table has no statistics yet.
BEGIN;
SELECT set_config('statement_timeout', {milliseconds}, true),
       set_config('lock_timeout', {milliseconds}, true),
       set_config('synchronous_commit',
                  CASE WHEN {relaxed} THEN 'off'
                       WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
                       ELSE current_setting('synchronous_commit') END, true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true);

-- name: now
SELECT extract(epoch FROM clock_timestamp())::double precision AS now;

-- name: notify
SELECT pg_notify(:channel, :payload);

-- name: schema_name
SELECT current_schema() AS name;

-- name: alone
-- Whoever makes the schema does so alone.
SELECT pg_advisory_xact_lock(hashtext('jobq schema'), hashtext(current_schema()));

-- name: tables
SELECT to_regclass('jobq_schema') IS NOT NULL AS ours, to_regclass('jobs') IS NOT NULL AS jobs;

-- name: version
SELECT version, store_id::text AS store_id FROM jobq_schema;

-- name: set_version
INSERT INTO jobq_schema (version) VALUES (:version);

-- name: writers
-- The transactions that have written an event, or are about to, and have not ended yet.
SELECT virtualtransaction AS writer FROM pg_locks
WHERE locktype = 'relation' AND relation = 'events'::regclass AND mode = 'RowExclusiveLock'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND pid IS DISTINCT FROM pg_backend_pid();
