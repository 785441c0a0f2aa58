"""What PostgreSQL reads for each statement, in a store with 100,000 finished jobs.

Once without statistics, as after a bulk load or before the first ANALYZE, and once with them.
"""

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from jobq import Store, open_store
from jobq.lab.waiting import wait_until
from jobq.store.engine import named_statements

if TYPE_CHECKING:
    from jobq.lab.pgserver import Server

FINISHED, WAITING = 100_000, 2_000  # jobs; so many are ready, so many delayed, so many leased
LIMIT = 5  # rows that a statement may change or give
READ = 25  # rows that it may read for that
NOW = 1_000_000.0
STATEMENTS = named_statements("postgres.sql")
DEFINITIONS = {name for name in STATEMENTS if name.startswith(("schema", "upgrade_"))}
UNBOUNDED = {"counts"}  # counting every job reads an index of every job

FILL = """
ALTER TABLE jobs SET (autovacuum_enabled = off);
ALTER TABLE attempts SET (autovacuum_enabled = off);
ALTER TABLE events SET (autovacuum_enabled = off);
INSERT INTO jobs (id, kind, payload, idempotency_key, status, max_attempts, priority, rank,
                  run_after, ready, created_at, started_at, finished_at, token, worker,
                  locked_until)
SELECT to_hex(n), 'nap', '{{}}', CASE WHEN n % 10 = 0 THEN 'key-' || n END, status, 3, 0, n,
       CASE status WHEN 'delayed' THEN n ELSE 0 END, status <> 'delayed', n, n,
       CASE WHEN status IN ('done', 'failed') THEN n + 1 END, 1,
       CASE status WHEN 'running' THEN 'w' END, CASE status WHEN 'running' THEN n END
FROM (SELECT n, CASE WHEN n > {finished} + 2 * {waiting} THEN 'running'
                     WHEN n > {finished} THEN 'queued'
                     WHEN n % 2 = 0 THEN 'failed' ELSE 'done' END AS status
      FROM generate_series(1, {finished} + 3 * {waiting}) AS n) AS numbers;
UPDATE jobs SET ready = false, run_after = seq WHERE seq > {finished} + {waiting}
                                                 AND status = 'queued';
UPDATE jobs SET kind = 'rare', status = 'cancelled' WHERE seq <= 3;
INSERT INTO attempts (job_id, token, number, worker, started_at, ended_at, outcome)
SELECT id, 1, 1, 'w', created_at, finished_at, CASE WHEN finished_at IS NOT NULL THEN 'done' END
FROM jobs;
INSERT INTO events (job_id, at, name, status, attempt, token)
SELECT id, created_at, 'enqueued', 'queued', 0, 0 FROM jobs;
INSERT INTO marks (job_id, key, at) SELECT id, 'mark', 0 FROM jobs;
"""


@pytest.fixture(scope="module")
def beside(pg_server: "Server") -> Iterator[psycopg.Connection[Any]]:
    """Return a connection of another program's, to a new schema."""
    url = f"{pg_server.url()}?options=-csearch_path%3Dlarge"
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("CREATE SCHEMA large")
        yield connection
        connection.execute("DROP SCHEMA large CASCADE")


@pytest.fixture(scope="module")
def large(pg_server: "Server", beside: psycopg.Connection[Any]) -> Iterator[Store]:
    """Return a store with very many jobs, about which the server knows nothing yet."""
    with closing(open_store(f"{pg_server.url()}?options=-csearch_path%3Dlarge")) as store:
        numbers = {"finished": sql.Literal(FINISHED), "waiting": sql.Literal(WAITING)}
        beside.execute(sql.SQL(FILL).format(**numbers))
        yield store


@pytest.fixture(scope="module")
def analyzed(large: Store) -> Store:
    """Return the same store, once the server has gathered statistics."""
    with large.transaction() as tx:
        tx.execute("ANALYZE jobs, attempts, events, marks")
    return large


LEASED = f"{FINISHED + 2 * WAITING + 7:x}"  # the id of a running job
# What each statement is given, unless its name is in the next table.
USUAL: dict[str, Any] = {
    "id": LEASED,
    "job_id": LEASED,
    "token": 1,
    "now": NOW,
    "limit": LIMIT,
    "before": 50_000,
    "after": 50_000,
    "after_time": 20_000.0,
    "after_seq": 20_000,
    "since": 10.0 * NOW,
    "seq": 77,
    "kind": "nap",
    "status": "failed",
    "key": "mark",
    "idempotency_key": "key-50000",
    "worker": "w2",
    "locked_until": NOW,
    "lease_seconds": 10.0,
    "test_now": None,
    "progress": None,
    "error": "no",
    "at": NOW,
    "start": "fff",
    "key_before": NOW,
    "lock": 1,
}
# As well: what is hard to find.
RARE: dict[str, Any] = USUAL | {"kind": "rare", "status": "cancelled", "before": 2**62, "after": 0}
CLUSTERED: dict[str, Any] = USUAL | {
    "status": "queued",
    "before": 2**62,
}  # frequent, and at one end of the table
ROW: dict[str, Any] = {
    "id": LEASED,
    "job_id": LEASED,
    "kind": "nap",
    "payload": "{}",
    "max_attempts": 3,
    "idempotency_key": None,
    "priority": 0,
    "rank": 0,
    "run_after": 0,
    "ready": True,
    "created_at": 0,
    "token": 1,
    "number": 1,
    "worker": "w",
    "started_at": 0,
    "attempts": 1,
    "status": "done",
    "result": "1",
    "finished_at": 1,
    "releases": 0,
    "ended_at": 1,
    "outcome": "done",
    "at": 1,
    "name": "done",
    "attempt": 1,
}
ROWS: dict[str, dict[str, Any]] = {"insert_job": {"id": "beef1"}, "insert_attempt": {"token": 2}}


class Undone(Exception):
    """Raised so that a transaction is undone."""


def explained(store: Store, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Run a statement and undo it; return its plan, with the numbers of rows."""
    names = re.findall(r"(?<!:):(\w+)", STATEMENTS[name])
    values = asked | {"rows": json.dumps([ROW | ROWS.get(name, {})])}
    plans: list[Any] = []
    with suppress(Undone), store.transaction() as tx:
        explain = f"EXPLAIN (ANALYZE, TIMING off, FORMAT JSON) {STATEMENTS[name]}"
        [row] = tx.execute(explain, {each: values[each] for each in names})
        [told] = row.values()
        plans += json.loads(told)
        raise Undone
    return dict(plans[0]["Plan"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give each node of a plan."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def read(node: dict[str, Any]) -> float:
    """Return how many rows of a table or an index a node has looked at."""
    if "Relation Name" not in node or node["Node Type"] == "ModifyTable":
        return 0
    removed = [value for key, value in node.items() if key.startswith("Rows Removed")]
    return float(node["Actual Loops"] * (node["Actual Rows"] + sum(removed)))


def assert_bounded(store: Store, name: str) -> None:
    """Hold that a statement reads by an index, in its order, and a bounded number of rows."""
    plans = [explained(store, name, asked) for asked in (USUAL, RARE, CLUSTERED)]
    for node in itertools.chain.from_iterable(map(nodes, plans)):
        kind, table, by = (node.get(each) for each in ("Node Type", "Relation Name", "Index Name"))
        assert kind not in {"Seq Scan", "Bitmap Heap Scan"}, f"{kind} of {table}"
        assert read(node) <= READ, f"{kind} of {table} by {by} read {read(node):.0f} rows"


def a_job(store: Store) -> None:
    """Take a job through its life."""
    store.enqueue("nap", {}, priority=1_000)
    job = store.claim("w1", 60.0)
    assert job is not None
    store.heartbeat(job, 60.0)
    store.finish(job, 1)


BOUNDED = sorted(STATEMENTS.keys() - DEFINITIONS - UNBOUNDED)


@pytest.mark.parametrize("name", BOUNDED)
def test_without_statistics_no_statement_reads_more_than_it_gives(large: Store, name: str) -> None:
    """As after a bulk load, when the server takes the tables to be empty."""
    assert_bounded(large, name)


@pytest.mark.parametrize("name", BOUNDED)
def test_with_statistics_no_statement_reads_more_than_it_gives(analyzed: Store, name: str) -> None:
    """As in every table that is some minutes old."""
    assert_bounded(analyzed, name)


def test_no_step_of_a_job_reads_a_table_from_end_to_end(
    analyzed: Store, beside: psycopg.Connection[Any]
) -> None:
    """The lesson's claim grew to 158 ms; of what the engine asks for itself, too, nothing grows."""
    for _ in range(WAITING // 100 + 1):  # the first claims close the leases that ran out
        a_job(analyzed)
    before = counted(analyzed, beside)
    for _ in range(20):
        a_job(analyzed)
    after = counted(analyzed, beside)
    for table in ("jobs", "attempts", "events", "marks"):
        assert after[table]["by scan"] == before[table]["by scan"]
        assert after[table]["by index"] - before[table]["by index"] <= 20 * READ
    assert after["jobs"]["by index"] > before["jobs"]["by index"], "nothing was counted"


def counted(store: Store, beside: psycopg.Connection[Any]) -> dict[str, dict[str, int]]:
    """Return how many rows the server has read of each table, once every backend has reported."""
    store.close()
    others = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'jobq'"
    wait_until(lambda: not beside.execute(others).fetchall(), "the backends to be gone")
    rows = beside.execute(
        "SELECT relname, seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables "
        "WHERE schemaname = current_schema()"
    )
    return {table: {"by scan": scan, "by index": index} for table, scan, index in rows}
