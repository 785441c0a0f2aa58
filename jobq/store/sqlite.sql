-- The SQLite store: its schema and every statement that jobq runs on it.
-- The same names stand in the same order in the file of each other engine.
-- `:name` is a parameter. Times are seconds since 1970 (UTC), JSON is text.

-- name: schema
CREATE TABLE jobs (
    seq             INTEGER PRIMARY KEY,        -- the order of arrival
    id              TEXT    NOT NULL UNIQUE,
    kind            TEXT    NOT NULL,
    payload         TEXT    NOT NULL CHECK (json_valid(payload)),
    idempotency_key TEXT    UNIQUE,
    status          TEXT    NOT NULL DEFAULT 'queued'
                    CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    attempts        INTEGER NOT NULL DEFAULT 0,
    max_attempts    INTEGER NOT NULL,
    priority        INTEGER NOT NULL,
    rank            REAL    NOT NULL,           -- created_at, moved ahead by the priority
    run_after       REAL    NOT NULL,
    ready           INTEGER NOT NULL,           -- 0 while run_after lies ahead: see wake_delayed
    token           INTEGER NOT NULL DEFAULT 0, -- grows with each claim, never goes back
    worker          TEXT,
    locked_until    REAL,
    result          TEXT    CHECK (result IS NULL OR json_valid(result)),
    error           TEXT,
    created_at      REAL    NOT NULL,
    finished_at     REAL,
    started_at      REAL,                       -- of the last attempt
    releases        INTEGER NOT NULL DEFAULT 0, -- attempts given back, which do not count
    cancel_requested INTEGER NOT NULL DEFAULT 0, -- while it runs
    progress        TEXT,                       -- JSON: the last that was told
    retry           TEXT,                       -- JSON: the job's own policy, if it has one
    -- A lease belongs to a running job and to no other.
    CHECK ((status = 'running') = (locked_until IS NOT NULL))
) STRICT;

-- What is runnable, and nothing else: their size does not grow with the finished jobs.
CREATE INDEX jobs_ready   ON jobs (rank, seq)     WHERE status = 'queued' AND ready = 1;
CREATE INDEX jobs_delayed ON jobs (run_after)     WHERE status = 'queued' AND ready = 0;
CREATE INDEX jobs_leased  ON jobs (locked_until)  WHERE status = 'running';
CREATE INDEX jobs_listed  ON jobs (status, seq);
CREATE INDEX jobs_of_kind ON jobs (kind, status, seq);
CREATE INDEX jobs_final   ON jobs (finished_at, seq) WHERE finished_at IS NOT NULL;

CREATE TABLE attempts (
    job_id     TEXT    NOT NULL,
    token      INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    worker     TEXT    NOT NULL,
    started_at REAL    NOT NULL,
    ended_at   REAL,
    outcome    TEXT CHECK (outcome IN ('done', 'failed', 'crashed', 'released', 'cancelled')),
    error      TEXT,
    PRIMARY KEY (job_id, token),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given out again
    job_id       TEXT    NOT NULL,
    at           REAL    NOT NULL,
    name         TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    attempt      INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    worker       TEXT,
    locked_until REAL,
    run_after    REAL,
    error        TEXT,
    progress     TEXT                                -- JSON: of a heartbeat that carried one
) STRICT;
CREATE INDEX events_of_job ON events (job_id, seq);

-- What attempts have done once and for all: see Context.once.
CREATE TABLE marks (
    job_id TEXT NOT NULL,
    key    TEXT NOT NULL,
    at     REAL NOT NULL,
    PRIMARY KEY (job_id, key)
) STRICT, WITHOUT ROWID;

-- name: upgrade_from_1
ALTER TABLE jobs ADD COLUMN started_at REAL;
ALTER TABLE jobs ADD COLUMN releases INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN cancel_requested INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN progress TEXT;
ALTER TABLE jobs ADD COLUMN retry TEXT;
ALTER TABLE events ADD COLUMN progress TEXT;
CREATE INDEX jobs_of_kind ON jobs (kind, status, seq);
CREATE INDEX jobs_final ON jobs (finished_at, seq) WHERE finished_at IS NOT NULL;
CREATE TABLE marks (
    job_id TEXT NOT NULL,
    key    TEXT NOT NULL,
    at     REAL NOT NULL,
    PRIMARY KEY (job_id, key)
) STRICT, WITHOUT ROWID;

-- name: insert_job
INSERT INTO jobs (id, kind, payload, idempotency_key, max_attempts, priority, rank,
                  run_after, ready, retry, created_at)
VALUES (:id, :kind, :payload, :idempotency_key, :max_attempts, :priority, :rank,
        :run_after, :ready, :retry, :created_at)
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING id;

-- name: job
SELECT * FROM jobs WHERE id = :id;

-- name: job_to_change
-- The job, as it stays until the transaction ends, but for what that does itself.
SELECT * FROM jobs WHERE id = :id;

-- name: jobs_whose_id_begins
SELECT * FROM jobs WHERE id >= :start AND id < :start || 'g' ORDER BY id LIMIT :limit;

-- name: job_of_key
SELECT * FROM jobs WHERE idempotency_key = :idempotency_key;

-- name: next_due
-- When a claim may first find something: at once, or when a wait or a lease ends.
SELECT CASE
    WHEN EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_ready
                 WHERE status = 'queued' AND ready = 1 AND run_after <= :now) THEN :now
    ELSE (SELECT min(due) FROM (
            SELECT min(run_after) AS due FROM jobs INDEXED BY jobs_delayed
            WHERE status = 'queued' AND ready = 0
            UNION ALL
            SELECT min(locked_until) FROM jobs INDEXED BY jobs_leased
            WHERE status = 'running'))
    END AS due;

-- name: expired
-- Oldest first and a bounded number: a claim does bounded work, and every row has its turn.
SELECT * FROM jobs INDEXED BY jobs_leased
WHERE status = 'running' AND locked_until < :now
ORDER BY locked_until LIMIT :limit;

-- name: wake_delayed
-- Once their time has come, delayed jobs stand in the one order of all runnable jobs.
UPDATE jobs SET ready = 1
WHERE seq IN (SELECT seq FROM jobs INDEXED BY jobs_delayed
              WHERE status = 'queued' AND ready = 0 AND run_after <= :now
              ORDER BY run_after LIMIT :limit);

-- name: claim
-- One statement finds the first runnable jobs and takes them: nothing can come between (G1).
UPDATE jobs
SET status = 'running', attempts = attempts + 1, token = token + 1, worker = :worker,
    locked_until = :now + :lease_seconds, started_at = :now
WHERE seq IN (SELECT seq FROM jobs INDEXED BY jobs_ready
              WHERE status = 'queued' AND ready = 1 AND run_after <= :now
              ORDER BY rank, seq LIMIT :limit)
RETURNING *;

-- name: first_runnable
SELECT * FROM jobs INDEXED BY jobs_ready
WHERE status = 'queued' AND ready = 1 AND run_after <= :now
ORDER BY rank, seq LIMIT 1;

-- name: claim_this
UPDATE jobs
SET status = 'running', attempts = attempts + 1, token = token + 1, worker = :worker,
    locked_until = :now + :lease_seconds, started_at = :now
WHERE seq = :seq AND status = 'queued'
RETURNING *;

-- name: set_aside
-- For a row that cannot be handled in the ordinary way.
UPDATE jobs
SET status = 'failed', error = :error, finished_at = :now, worker = NULL, locked_until = NULL,
    cancel_requested = 0
WHERE seq = :seq
RETURNING *;

-- name: insert_attempt
INSERT INTO attempts (job_id, token, number, worker, started_at)
VALUES (:job_id, :token, :number, :worker, :started_at);

-- name: leased
-- The job as long as it is under this lease; nobody else changes it before the transaction ends.
SELECT * FROM jobs WHERE id = :id AND status = 'running' AND token = :token;

-- name: heartbeat
UPDATE jobs SET locked_until = :locked_until, progress = coalesce(:progress, progress)
WHERE id = :id AND status = 'running' AND token = :token
RETURNING *;

-- name: end_lease
-- The only way out of running. Status and token say what the writer believes (G3, G6).
UPDATE jobs
SET status = :status, attempts = :attempts, run_after = :run_after, ready = :ready,
    result = :result, error = coalesce(:error, error), finished_at = :finished_at,
    releases = :releases, cancel_requested = 0, worker = NULL, locked_until = NULL
WHERE id = :id AND status = 'running' AND token = :token
RETURNING *;

-- name: end_attempt
UPDATE attempts SET ended_at = :ended_at, outcome = :outcome, error = :error
WHERE job_id = :job_id AND token = :token AND ended_at IS NULL;

-- name: insert_event
INSERT INTO events (job_id, at, name, status, attempt, token, worker, locked_until, run_after,
                    error, progress)
VALUES (:job_id, :at, :name, :status, :attempt, :token, :worker, :locked_until, :run_after,
        :error, :progress);

-- name: mark
SELECT * FROM marks WHERE job_id = :job_id AND key = :key;

-- name: insert_mark
INSERT INTO marks (job_id, key, at) VALUES (:job_id, :key, :at)
ON CONFLICT (job_id, key) DO NOTHING;

-- name: cancel_queued
UPDATE jobs SET status = 'cancelled', finished_at = :now
WHERE id = :id AND status = 'queued'
RETURNING *;

-- name: request_cancel
UPDATE jobs SET cancel_requested = 1
WHERE id = :id AND status = 'running'
RETURNING *;

-- name: retry
-- An operator's way out of a final state, the only one. The token goes on, so that a worker which
-- still believes in an earlier lease stays refused (G6).
UPDATE jobs
SET status = 'queued', attempts = 0, releases = 0, run_after = 0, ready = 1, finished_at = NULL
WHERE seq = :seq AND status IN ('failed', 'cancelled')
RETURNING *;

-- name: places_with_status
SELECT seq FROM jobs WHERE status = :status AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: places_of_kind_with_status
SELECT seq FROM jobs
WHERE kind = :kind AND status = :status AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- name: final_before
-- The jobs that became final before a time, first ones first, beginning after a place in that order.
SELECT seq, id, finished_at FROM jobs INDEXED BY jobs_final
WHERE finished_at IS NOT NULL AND finished_at < :before
      AND (finished_at, seq) > (:after_time, :after_seq)
ORDER BY finished_at, seq LIMIT :limit;

-- name: delete_job
-- A key is kept as long as was promised, and the job with it (G5).
DELETE FROM jobs
WHERE seq = :seq AND finished_at IS NOT NULL AND finished_at < :before
      AND (:status IS NULL OR status = :status)
      AND (idempotency_key IS NULL OR created_at < :key_before);

-- name: delete_attempts
DELETE FROM attempts WHERE job_id = :job_id;

-- name: delete_events
DELETE FROM events WHERE job_id = :job_id;

-- name: delete_marks
DELETE FROM marks WHERE job_id = :job_id;

-- name: jobs
-- Newest first, a page at a time, beginning below :before.
SELECT * FROM jobs WHERE seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: jobs_with_status
SELECT * FROM jobs WHERE status = :status AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: jobs_of_kind
-- A page of each status, and of these the first page: else a rare kind would cost a look at all jobs.
WITH page (seq) AS (
    SELECT * FROM (SELECT seq FROM jobs WHERE kind = :kind AND status = 'queued' AND seq < :before
                   ORDER BY seq DESC LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seq FROM jobs WHERE kind = :kind AND status = 'running' AND seq < :before
                   ORDER BY seq DESC LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seq FROM jobs WHERE kind = :kind AND status = 'done' AND seq < :before
                   ORDER BY seq DESC LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seq FROM jobs WHERE kind = :kind AND status = 'failed' AND seq < :before
                   ORDER BY seq DESC LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT seq FROM jobs WHERE kind = :kind AND status = 'cancelled' AND seq < :before
                   ORDER BY seq DESC LIMIT :limit))
SELECT * FROM jobs WHERE seq IN (SELECT seq FROM page) ORDER BY seq DESC LIMIT :limit;

-- name: jobs_of_kind_with_status
SELECT * FROM jobs
WHERE kind = :kind AND status = :status AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- name: unfinished
-- Whether any job is queued or running: one look, so that none can slip from one to the other.
SELECT EXISTS (SELECT 1 FROM jobs WHERE status = 'queued')
    OR EXISTS (SELECT 1 FROM jobs WHERE status = 'running') AS found;

-- name: attempt
SELECT * FROM attempts WHERE job_id = :job_id AND token = :token;

-- name: attempts
SELECT * FROM attempts WHERE job_id = :job_id ORDER BY token;

-- name: events
SELECT * FROM events WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: events_of_job
SELECT * FROM events WHERE job_id = :job_id AND seq > :after ORDER BY seq LIMIT :limit;

-- name: last_event
SELECT coalesce(max(seq), 0) AS seq FROM events;

-- name: counts
SELECT kind, status, count(*) AS jobs FROM jobs GROUP BY kind, status;

-- name: oldest_waiting
-- In the order of arrival: to look at the time of each would cost more, the longer the queue.
SELECT created_at FROM jobs WHERE status = 'queued' ORDER BY seq LIMIT 1;

-- name: finished_since
SELECT count(*) AS jobs FROM jobs INDEXED BY jobs_final
WHERE finished_at IS NOT NULL AND finished_at >= :since;

-- name: run_times
SELECT avg(finished_at - started_at) AS seconds
FROM (SELECT finished_at, started_at FROM jobs
      WHERE kind = :kind AND status = 'done'
      ORDER BY seq DESC LIMIT :limit);
