-- What the doctor asks a SQLite store. Nothing here changes a row, and nothing names an index, for
-- one may be missing. Times are seconds since 1970 (UTC).

-- name: application_id
PRAGMA application_id;

-- name: schema_version
PRAGMA user_version;

-- name: journal_mode
PRAGMA journal_mode;

-- name: data_version
PRAGMA data_version;

-- name: checkpoint
-- Moves what is committed from the log into the file, as any commit does now and then, but waits
-- for nobody: how far it comes tells whether a reader is in the way.
PRAGMA main.wal_checkpoint(PASSIVE);

-- name: quick_check
PRAGMA quick_check(1);

-- name: parts
SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\_%' ESCAPE '\';

-- name: newest_event
SELECT at FROM events ORDER BY seq DESC LIMIT 1;

-- name: abandoned
-- Jobs whose lease ran out before a time, and that no claim has swept since.
SELECT count(*) AS jobs, min(locked_until) AS since FROM jobs
WHERE status = 'running' AND locked_until < :before;

-- name: running
SELECT count(*) AS jobs FROM jobs WHERE status = 'running' AND locked_until >= :now;

-- name: waiting
SELECT count(*) AS jobs, min(max(created_at, run_after)) AS since FROM jobs
WHERE status = 'queued' AND max(created_at, run_after) < :before;
