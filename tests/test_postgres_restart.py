"""The server is restarted under load: workers survive, nothing is lost, nothing is done twice."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from jobq import EventName, Status, Store
from jobq.lab.pgserver import Server, temporary_server
from jobq.lab.programs import WorkerProcess
from jobq.lab.waiting import wait_until

LEASE, POLL = "3", "0.5"  # seconds
NAP = 0.005  # seconds of each job


@pytest.fixture
def server(pg_server: Server) -> Iterator[Server]:
    """Return a server of the test's own; without a server for all tests there is none either."""
    # What survives a crash of the server is with the system, and needs no fsync.
    with temporary_server(options={"fsync": "off"}) as server:
        assert server.pid != pg_server.pid
        yield server


@pytest.fixture
def start_worker(server: Server, tmp_path: Path) -> Iterator[Callable[[str], WorkerProcess]]:
    """Start workers as real processes, which are killed at the end."""
    workers: list[WorkerProcess] = []

    def start(name: str) -> WorkerProcess:
        words = ["--lease", LEASE, "--poll", POLL]
        workers.append(WorkerProcess(name, tmp_path, server.url(), words))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


def done(store: Store) -> int:
    """Return how many jobs are done."""
    return store.stats().counts[Status.DONE]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
@pytest.mark.parametrize(
    ("jobs", "workers"), [(200, 2), pytest.param(2_000, 4, marks=pytest.mark.slow)]
)
def test_a_restart_under_load_loses_no_job_and_finishes_none_twice(
    server: Server,
    start_worker: Callable[[str], WorkerProcess],
    opened: Callable[..., Store],
    assert_consistent: Callable[[Store], None],
    mode: Literal["fast", "immediate"],
    jobs: int,
    workers: int,
) -> None:
    """In the middle of the jobs; the same processes go on, and nobody has to start them again."""
    store = opened(server.url())
    ids = [
        enqueued.job.id
        for enqueued in store.enqueue_many(
            {"kind": "nap", "payload": {"seconds": NAP}} for _ in range(jobs)
        )
    ]
    started = [start_worker(f"w{n}") for n in range(workers)]
    for worker in started:
        worker.wait_until_started()
    pids = [worker.pid for worker in started]
    wait_until(lambda: done(store) >= jobs // 4, "a quarter of the jobs")
    server.restart(mode)
    wait_until(
        lambda: done(store) == jobs,
        "all jobs to be done",
        clues=lambda: "\n".join(worker.tail for worker in started),
    )
    assert [worker.ending for worker in started] == [None] * workers
    assert [worker.pid for worker in started] == pids
    ends = [event.job_id for event in store.events() if event.name is EventName.DONE]
    assert sorted(ends) == sorted(ids)
    assert_consistent(store)
    after = store.enqueue("noop", {}).job
    wait_until(lambda: done(store) == jobs + 1, f"{after.id} to be done, by a worker that waited")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_store_goes_on_after_its_server_was_away(
    server: Server, opened: Callable[..., Store], mode: Literal["fast", "immediate"]
) -> None:
    """Whatever it did before, its next call works: an old connection is no obstacle."""
    store = opened(server.url())
    job = store.enqueue("nap", {}).job
    server.restart(mode)
    assert store.get(job.id) == job
    server.restart(mode)
    assert store.enqueue("nap", {}, "key").created
    server.restart(mode)
    taken = store.claim("w1")
    assert taken is not None
    server.restart(mode)
    assert store.finish(taken, 1).status == "done"
