"""Measure what the tests must not: speed. Run by hand, on a machine that does nothing else.

    python tests/bench.py growth     does a claim cost more when many jobs are finished?
    python tests/bench.py pickup     how soon does an idle worker begin, and what does idling cost?

Ratios within one run count; the absolute figures are this machine's and this hour's.
"""

import argparse
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

from jobq.store import Store, open_store

STAMP = """
import time
import jobq

@jobq.handler("stamp")
def stamp(payload, context):
    return time.time()
"""


FILL = (
    """
    INSERT INTO jobs (id, kind, payload, status, attempts, max_attempts, priority, rank,
                      run_after, ready, token, result, created_at, finished_at)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :finished)
    SELECT printf('%032x', i), 'noop', '{}', 'done', 1, 3, 0, i, 0, 1, 1, '{}', i, i + 1 FROM n
    """,
    """
    INSERT INTO attempts (job_id, token, number, worker, started_at, ended_at, outcome)
    SELECT id, 1, 1, 'w', created_at, finished_at, 'done' FROM jobs
    """,
    """
    INSERT INTO events (job_id, at, name, status, attempt, token)
    SELECT id, created_at, name, 'done', 1, 1
    FROM jobs, (SELECT 'enqueued' AS name UNION SELECT 'claimed' UNION SELECT 'done')
    """,
)


def fill(path: Path, finished: int) -> None:
    """Write finished jobs with their attempts and events, past the store, which would take long."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in FILL:
            connection.execute(statement, {"finished": finished})


def growth(folder: Path, finished: int, rounds: int = 5, jobs: int = 300) -> None:
    """Print what claim and finish cost with no finished jobs and with many, turn by turn."""
    stores: dict[int, Store] = {}
    for number in (0, finished):
        path = folder / f"{number}.db"
        stores[number] = open_store(path)
        if number:
            fill(path, number)
        for _ in range(rounds * jobs):
            stores[number].enqueue("noop", {})
    costs: dict[int, list[float]] = {number: [] for number in stores}
    for _ in range(rounds):  # in turns, so that a busy minute of the machine counts for both
        for number, store in stores.items():
            costs[number] += [claim_once(store) for _ in range(jobs)]
    none, many = (statistics.median(costs[number]) for number in stores)
    print(f"claim with no finished jobs      {none * 1e6:8.0f} us (median of {rounds * jobs})")
    print(f"claim with {finished:>9,} finished  {many * 1e6:8.0f} us")
    print(f"ratio                            {many / none:8.2f}")


def claim_once(store: Store) -> float:
    """Return the seconds that a claim took; the job is finished after that."""
    before = time.perf_counter()
    job = store.claim("bench")
    took = time.perf_counter() - before
    assert job is not None
    store.finish(job, {})
    return took


def pickup(folder: Path, jobs: int = 200, idle_seconds: float = 10.0) -> None:
    """Print how long from enqueue's return to the handler's start, and what an idle worker uses."""
    (folder / "stamp.py").write_text(STAMP, encoding="utf-8")
    store = open_store(folder / "jobs.db")
    with worker(folder) as process:
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
    wait_for(lambda: (found := store.get(job.id)) and found.status.final, "the job to be done")
    time.sleep(0.02)  # the worker is to be idle again
    found = store.get(job.id)
    assert found is not None
    return float(found.result) - returned


@contextmanager
def worker(folder: Path) -> Iterator[psutil.Process]:
    """Run a worker in a folder while the block runs."""
    command = [sys.executable, "-m", "jobq", "worker", "--import", "stamp"]
    url = ["--url", f"sqlite:///{folder / 'jobs.db'}"]
    child = subprocess.Popen([*command, *url], cwd=folder, stdout=subprocess.DEVNULL)
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


def main() -> None:
    """Run one of the measurements in a folder that is removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["growth", "pickup"])
    parser.add_argument("--finished", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "growth":
            growth(Path(folder), options.finished)
        else:
            pickup(Path(folder))


if __name__ == "__main__":
    main()
