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
    -- A lease belongs to a running job and to no other.
    CHECK ((status = 'running') = (locked_until IS NOT NULL))
) STRICT;

-- What is runnable, and nothing else: their size does not grow with the finished jobs.
CREATE INDEX jobs_ready   ON jobs (rank, seq)     WHERE status = 'queued' AND ready = 1;
CREATE INDEX jobs_delayed ON jobs (run_after)     WHERE status = 'queued' AND ready = 0;
CREATE INDEX jobs_leased  ON jobs (locked_until)  WHERE status = 'running';
CREATE INDEX jobs_listed  ON jobs (status, seq);

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
    error        TEXT
) STRICT;
CREATE INDEX events_of_job ON events (job_id, seq);

-- name: insert_job
INSERT INTO jobs (id, kind, payload, idempotency_key, max_attempts, priority, rank,
                  run_after, ready, created_at)
VALUES (:id, :kind, :payload, :idempotency_key, :max_attempts, :priority, :rank,
        :run_after, :ready, :created_at)
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING *;

-- name: job
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
-- One statement finds the first runnable job and takes it: nothing can come between (G1).
UPDATE jobs
SET status = 'running', attempts = attempts + 1, token = token + 1, worker = :worker,
    locked_until = :locked_until
WHERE seq = (SELECT seq FROM jobs INDEXED BY jobs_ready
             WHERE status = 'queued' AND ready = 1 AND run_after <= :now
             ORDER BY rank, seq LIMIT 1)
RETURNING *;

-- name: first_runnable
SELECT * FROM jobs INDEXED BY jobs_ready
WHERE status = 'queued' AND ready = 1 AND run_after <= :now
ORDER BY rank, seq LIMIT 1;

-- name: set_aside
-- For a row that cannot be handled in the ordinary way.
UPDATE jobs
SET status = 'failed', error = :error, finished_at = :now, worker = NULL, locked_until = NULL
WHERE seq = :seq
RETURNING *;

-- name: insert_attempt
INSERT INTO attempts (job_id, token, number, worker, started_at)
VALUES (:job_id, :token, :number, :worker, :started_at);

-- name: heartbeat
UPDATE jobs SET locked_until = :locked_until
WHERE id = :id AND status = 'running' AND token = :token
RETURNING *;

-- name: end_lease
-- The only way out of running. Status and token say what the writer believes (G3, G6).
UPDATE jobs
SET status = :status, attempts = :attempts, run_after = :run_after, ready = :ready,
    result = :result, error = coalesce(:error, error), finished_at = :finished_at,
    worker = NULL, locked_until = NULL
WHERE id = :id AND status = 'running' AND token = :token
RETURNING *;

-- name: end_attempt
UPDATE attempts SET ended_at = :ended_at, outcome = :outcome, error = :error
WHERE job_id = :job_id AND token = :token AND ended_at IS NULL;

-- name: insert_event
INSERT INTO events (job_id, at, name, status, attempt, token, worker, locked_until, run_after, error)
VALUES (:job_id, :at, :name, :status, :attempt, :token, :worker, :locked_until, :run_after, :error);

-- name: jobs
-- Newest first, a page at a time, beginning below :before.
SELECT * FROM jobs
WHERE seq < :before AND (:kind IS NULL OR kind = :kind)
ORDER BY seq DESC LIMIT :limit;

-- name: jobs_with_status
SELECT * FROM jobs
WHERE status = :status AND seq < :before AND (:kind IS NULL OR kind = :kind)
ORDER BY seq DESC LIMIT :limit;

-- name: attempts
SELECT * FROM attempts WHERE job_id = :job_id ORDER BY token;

-- name: events
SELECT * FROM events WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: events_of_job
SELECT * FROM events WHERE job_id = :job_id AND seq > :after ORDER BY seq LIMIT :limit;

-- name: counts
SELECT status, count(*) AS jobs FROM jobs GROUP BY status;

-- name: oldest_waiting
SELECT min(created_at) AS created_at FROM jobs WHERE status = 'queued';
