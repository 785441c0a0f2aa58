"""Measure what the tests must not: speed. Run by hand, on a machine that does nothing else.

    python tests/bench.py growth     does a claim cost more when many jobs are finished?
    python tests/bench.py pickup     how soon does an idle worker begin, and what does idling cost?
    python tests/bench.py bulk       how long does enqueue_many take for 100,000 jobs?
    python tests/bench.py batches    how many jobs a second with one worker that takes batches?
    python tests/bench.py scaling    what do more workers bring? for data/scaling.* and README

All but the last take `--engine postgresql`; the server is then one of their own, and durable.
Ratios within one run count; the absolute figures are this machine's and this hour's.
"""

import argparse
import itertools
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg

from jobq.job import Status
from jobq.lab.scaling import fresh_schemas, measure_scaling, text_scaling, write_scaling
from jobq.lab.scalingplot import MEASUREMENT, PICTURE, plot_scaling
from jobq.lab.throughput import BATCH, Way, measure_throughput
from jobq.store import Store, open_store
from jobq.store.addresses import engine_of
from jobq.store.sqlitefile import path_of

ROOT = Path(__file__).resolve().parent.parent
DATA, README = ROOT / "data", ROOT / "README.md"
TABLE = re.compile(r"```text\njobs a second.*?\n```", re.DOTALL)  # in README
NOOP = {"kind": "noop", "payload": {}}
IDLE_SECONDS = 0.02
STAMP = """
import time
import jobq

@jobq.handler("stamp")
def stamp(payload, context):
    return time.time()
"""

# Finished jobs with their attempts and events, written past the store, which would take long.
JOBS = {
    "sqlite": """
    INSERT INTO jobs (id, kind, payload, status, attempts, max_attempts, priority, rank,
                      run_after, ready, token, result, created_at, finished_at)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :finished)
    SELECT printf('%032x', i), 'noop', '{}', 'done', 1, 3, 0, i, 0, 1, 1, '{}', i, i + 1 FROM n
    """,
    "postgresql": """
    INSERT INTO jobs (id, kind, payload, status, attempts, max_attempts, priority, rank,
                      run_after, ready, token, result, created_at, finished_at)
    SELECT lpad(to_hex(i), 32, '0'), 'noop', '{}', 'done', 1, 3, 0, i, 0, true, 1, '{}', i, i + 1
    FROM generate_series(1, %(finished)s) AS n(i)
    """,
}
THEIRS = (
    """
    INSERT INTO attempts (job_id, token, number, worker, started_at, ended_at, outcome)
    SELECT id, 1, 1, 'w', created_at, finished_at, 'done' FROM jobs
    """,
    """
    INSERT INTO events (job_id, at, name, status, attempt, token)
    SELECT id, created_at, name, 'done', 1, 1
    FROM jobs, (SELECT 'enqueued' AS name UNION SELECT 'claimed' UNION SELECT 'done') AS names
    """,
)


Urls = Iterator[str]


@contextmanager
def new_urls(engine: str) -> Iterator[Urls]:
    """Give the URLs of new databases, as many as are asked for; a durable server is started."""
    if engine == "postgresql":
        # Statistics come when they are asked for, and not at some moment in between.
        with fresh_schemas(options={"autovacuum": "off"}) as (schemas, settings):
            print(*(f"{name}={settings[name]}" for name in ("fsync", "synchronous_commit")))
            yield schemas
    else:
        with tempfile.TemporaryDirectory() as folder:
            print("synchronous=FULL")
            yield (f"sqlite:///{folder}/{number}.db" for number in itertools.count(1))


def run(url: str, statement: str, **parameters: object) -> None:
    """Run a statement in the database of a store, past the store."""
    if engine_of(url) == "postgresql":
        with psycopg.connect(url) as connection:
            connection.execute(statement.encode(), parameters)
    else:
        with closing(sqlite3.connect(path_of(url))) as database, database:
            database.execute(statement, parameters)


def growth(urls: Urls, finished: int, rounds: int = 5, jobs: int = 200) -> None:
    """Print what a claim costs with no finished jobs and with many, turn by turn.

    First while the database does not know how many there are, then after ANALYZE.
    """
    places = {number: next(urls) for number in (0, finished)}
    stores = {number: open_store(url) for number, url in places.items()}
    run(places[finished], JOBS[engine_of(places[finished])], finished=finished)
    for statement in THEIRS:
        run(places[finished], statement)
    for store in stores.values():
        store.enqueue_many([NOOP] * (2 * rounds * jobs))
    for when in ("before", "after"):
        costs: dict[int, list[float]] = {number: [] for number in stores}
        for _ in range(rounds):  # in turns, so that a busy minute of the machine counts for both
            for number, store in stores.items():
                costs[number] += [claim_once(store) for _ in range(jobs)]
        none, many = (statistics.median(costs[number]) for number in stores)
        print(f"{when} ANALYZE, median of {rounds * jobs}")
        print(f"claim with no finished jobs      {none * 1e6:8.0f} us")
        print(f"claim with {finished:>9,} finished  {many * 1e6:8.0f} us")
        print(f"ratio                            {many / none:8.2f}")
        for url in places.values():
            run(url, "ANALYZE")
    for store in stores.values():
        store.close()


def claim_once(store: Store) -> float:
    """Return the seconds that a claim took; the job is finished after that."""
    before = time.perf_counter()
    job = store.claim("bench")
    took = time.perf_counter() - before
    assert job is not None
    store.finish(job, {})
    return took


def pickup(urls: Urls, jobs: int = 200, idle_seconds: float = 10.0) -> None:
    """Print how long from enqueue's return to the handler's start, and what an idle worker uses."""
    url = next(urls)
    with closing(open_store(url)) as store, worker(url) as process:
        wait_for(lambda: stamped(store), "the first job to be done")
        delays = sorted(stamped(store) for _ in range(jobs))
        before = process.cpu_times()
        time.sleep(idle_seconds)  # what is measured is doing nothing
        after = process.cpu_times()
    used = (after.user - before.user) + (after.system - before.system)
    print(f"pickup p50 {statistics.median(delays) * 1e3:6.2f} ms")
    print(f"pickup p99 {delays[len(delays) * 99 // 100] * 1e3:6.2f} ms")
    print(f"idle CPU   {used / idle_seconds:6.2%}")


def stamped(store: Store) -> float:
    """Enqueue a job for an idle worker; return the seconds until its handler began."""
    job = store.enqueue("stamp", {}).job
    returned = time.time()
    time.sleep(IDLE_SECONDS)  # to look at once would keep the database from the worker
    wait_for(lambda: (found := store.get(job.id)) and found.status.final, "the job to be done")
    time.sleep(IDLE_SECONDS)  # the worker is to be idle again
    found = store.get(job.id)
    assert found is not None
    return float(found.result) - returned


@contextmanager
def worker(url: str) -> Iterator[psutil.Process]:
    """Run a worker while the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stamp.py").write_text(STAMP, encoding="utf-8")
        command = [sys.executable, "-m", "jobq", "worker", "--import", "stamp", "--url", url]
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            yield psutil.Process(child.pid)
        finally:
            child.terminate()
            child.wait()


def wait_for(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {seconds:g} s for {what}")
        time.sleep(0.0005)


def bulk(urls: Urls, jobs: int = 100_000, rounds: int = 3) -> None:
    """Print how long it takes to enqueue many jobs in one transaction."""
    for _ in range(rounds):
        with closing(open_store(next(urls))) as store:
            before = time.perf_counter()
            store.enqueue_many([NOOP] * jobs)
            took = time.perf_counter() - before
            assert store.stats().counts[Status.QUEUED] == jobs
        print(f"enqueue_many of {jobs:,}: {took:.2f} s")


def batches(urls: Urls, jobs: int = 30_000, rounds: int = 3) -> None:
    """Print how many jobs one worker does that takes batches; each is fenced, logged, durable."""
    for _ in range(rounds):
        found = measure_throughput(next(urls), Way.BATCHED, 1, jobs)
        print(f"{jobs:,} jobs, {BATCH} at a time, one worker: {found.per_second:,.0f} jobs/s")


def scaling(rounds: int) -> None:
    """Measure what more workers bring; write the picture and the table that the README shows."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure_scaling(Path(folder), print, rounds=rounds)
    print(table := text_scaling(found))
    write_scaling(found, DATA / MEASUREMENT)
    plot_scaling(found).save(DATA / PICTURE)
    text = README.read_text(encoding="utf-8")
    README.write_text(TABLE.sub(f"```text\n{table}\n```", text), encoding="utf-8")


def main() -> None:
    """Run one of the measurements in databases that are removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["growth", "pickup", "bulk", "batches", "scaling"])
    parser.add_argument("--engine", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.what == "scaling":  # both engines, in turns
        scaling(options.rounds)
        return
    with new_urls(options.engine) as urls:
        if options.what == "growth":
            growth(urls, options.finished)
        else:
            {"pickup": pickup, "bulk": bulk, "batches": batches}[options.what](urls)


if __name__ == "__main__":
    main()
