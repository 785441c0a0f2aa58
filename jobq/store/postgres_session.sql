-- What the PostgreSQL engine asks for itself: its transactions, its schema, its listener.

-- name: begin
-- For this transaction alone, so that a proxy may give each one another connection. The limits
-- bound every statement, every wait for a lock, and how long a client that has vanished may keep its
-- locks. FULL leaves how the server commits as it is, but for "off". Without the three ways to read
-- a table the planner is left with its indexes, in their order: it cannot choose badly because a
-- table has no statistics yet. The time comes with it.
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT set_config('statement_timeout', {milliseconds}, true),
       set_config('lock_timeout', {milliseconds}, true),
       set_config('idle_in_transaction_session_timeout', {idle}, true),
       set_config('synchronous_commit',
                  CASE WHEN {relaxed} THEN 'off'
                       WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
                       ELSE current_setting('synchronous_commit') END, true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true),
       extract(epoch FROM clock_timestamp())::double precision AS now;

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
-- From the catalogue: to_regclass answers from what the session knew before it waited for its turn,
-- and looks into every schema of search_path.
SELECT coalesce(bool_or(relname = 'jobq_schema'), false) AS ours, count(*) > 0 AS jobs,
       string_agg(relname, ', ' ORDER BY relname) AS names
FROM pg_class
WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
      AND relname IN ('jobs', 'attempts', 'events', 'marks', 'jobq_schema');

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

-- name: backend
SELECT pg_backend_pid() AS pid;
