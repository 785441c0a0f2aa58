"""A connection to PostgreSQL that is open and dead: no packet arrives, and nobody says so."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from jobq import EventName, Job, Outcome, Status, Store, StoreBusy
from jobq.errors import StoreUnreachable
from jobq.lab.waiting import wait_until
from jobq.store import pgpool, postgres

if TYPE_CHECKING:
    from tests.conftest import Program
    from tests.swallow import Fate, Judge, Proxy

pytest_plugins = ["swallow"]

BUSY = 0.5  # busy_seconds of the stores here
LATE = 0.25  # seconds beyond that, until a silent server is given up
SLACK = 5.0  # seconds beyond both: to find that a new connection is not to be had either
LEASE = 60.0
COMMIT = b"COMMIT\0"  # as the protocol has it


@pytest.fixture
def engine() -> str:
    """Return the one engine of this file."""
    return "postgresql"


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the tests seconds of waiting."""
    monkeypatch.setattr(pgpool, "LATE_SECONDS", LATE)


@pytest.fixture
def through(opened: Callable[..., Store], url: str, proxied: Callable[[str], str]) -> Store:
    """Return a store on the other side of the proxy, with a connection made."""
    store = opened(proxied(url), busy_seconds=BUSY)
    store.last_event()
    return store


def at(words: bytes, fate: "Fate") -> "Judge":
    """Return what decides against the first message with these words."""
    return lambda message: fate if words in message else None


class Claims:
    """Decides against the first commit of a claim that took something."""

    def __init__(self, fate: "Fate") -> None:
        self._fate = fate
        self._taken = False

    def __call__(self, message: bytes) -> "Fate | None":
        """Decide about a message."""
        self._taken = self._taken or b"INSERT INTO attempts" in message
        return self._fate if self._taken and COMMIT in message else None


def claimed(store: Store) -> Job:
    """Enqueue a job and claim it."""
    store.enqueue("nap", {})
    job = store.claim("w1", LEASE)
    assert job is not None
    return job


# ------------------------------------------------------------------------ the answer to a commit


@pytest.mark.parametrize("fate", ["unanswered", "silenced"])
@pytest.mark.parametrize("key", [None, "key"])
def test_an_enqueue_whose_commit_is_not_answered_is_not_doubled(
    live: Store, proxy: "Proxy", through: Store, fate: "Fate", key: str | None
) -> None:
    """The store asks again, on a new connection, for the same job."""
    proxy.judge(at(COMMIT, fate))
    enqueued = through.enqueue("nap", {"n": 1}, key)
    assert not proxy.armed
    assert (live.list(), enqueued.created) == ([enqueued.job], True)
    assert [event.name for event in live.events()] == [EventName.ENQUEUED]


@pytest.mark.parametrize("fate", ["unanswered", "silenced"])
def test_a_batch_whose_commit_is_not_answered_is_not_doubled(
    live: Store, proxy: "Proxy", through: Store, fate: "Fate"
) -> None:
    """As one enqueue is not: the answers name the jobs that are there."""
    proxy.judge(at(COMMIT, fate))
    answers = through.enqueue_many([{"kind": "nap", "payload": {"n": n}} for n in range(3)])
    assert not proxy.armed
    assert [answer.job for answer in answers] == live.list()[::-1]
    assert [answer.created for answer in answers] == [True] * 3


@pytest.mark.parametrize("fate", ["unanswered", "silenced"])
def test_a_finish_whose_commit_is_not_answered_recognises_its_own_end(
    live: Store, proxy: "Proxy", through: Store, fate: "Fate"
) -> None:
    """The worker must not hear that it lost a job which it has finished."""
    job = claimed(live)
    proxy.judge(at(COMMIT, fate))
    after = through.finish(job, {"n": 1})
    assert not proxy.armed
    assert (after.status, after.result) == (Status.DONE, {"n": 1})
    assert live.get(job.id) == after
    assert [a.outcome for a in live.attempts(job.id)] == [Outcome.DONE]
    assert [e.name for e in live.events(job.id)].count(EventName.DONE) == 1


def test_a_claim_whose_commit_is_not_answered_costs_one_lease_and_one_attempt(
    live: Store, proxy: "Proxy", through: Store
) -> None:
    """It is under a lease that nobody knows; when that has run out, it is claimed again."""
    job = live.enqueue("nap", {}).job
    proxy.judge(Claims("silenced"))
    assert through.claim("w1", 2.0) is None
    assert not proxy.armed
    wait_until(lambda: live.claim("w2", LEASE), "the lease to run out")
    assert [(a.worker, a.outcome) for a in live.attempts(job.id)] == [
        ("w1", Outcome.CRASHED),
        ("w2", None),
    ]


# ------------------------------------------------------------------------- a half-open connection


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long a call took that has to end with StoreUnreachable."""
    began = time.monotonic()
    with pytest.raises(StoreUnreachable):
        call()
    return time.monotonic() - began


IN_FLIGHT: dict[str, Callable[[Store, Job], object]] = {
    "enqueue": lambda store, _: store.enqueue("nap", {}),
    "claim": lambda store, _: store.claim("w2"),
    "heartbeat": lambda store, job: store.heartbeat(job),
    "finish": lambda store, job: store.finish(job, 1),
    "get": lambda store, job: store.get(job.id),
    "events": lambda store, _: store.events(),
}


def test_an_operation_on_a_half_open_connection_ends_in_time(
    live: Store,
    proxy: "Proxy",
    url: str,
    opened: Callable[..., Store],
    proxied: Callable[[str], str],
) -> None:
    """Within busy_seconds and little more; the next one, once packets pass again, succeeds."""
    stores = {name: opened(proxied(url), busy_seconds=BUSY) for name in IN_FLIGHT}
    jobs = {name: claimed(live) for name in IN_FLIGHT}
    for store in stores.values():
        store.last_event()
    live.enqueue("nap", {})
    proxy.swallowing = True

    def seconds(name: str) -> float:
        return seconds_of(lambda: IN_FLIGHT[name](stores[name], jobs[name]))

    with ThreadPoolExecutor(len(IN_FLIGHT)) as threads:
        assert max(threads.map(seconds, IN_FLIGHT)) < BUSY + LATE + SLACK
    proxy.swallowing = False
    for name, call in IN_FLIGHT.items():
        call(stores[name], jobs[name])


def test_a_server_that_accepts_and_says_nothing_is_unreachable(
    proxy: "Proxy", url: str, opened: Callable[..., Store], proxied: Callable[[str], str]
) -> None:
    """As behind a firewall: to open a store there ends in time."""
    proxy.swallowing = True
    assert seconds_of(lambda: opened(proxied(url), busy_seconds=BUSY)) < BUSY + LATE + SLACK


def test_many_threads_on_half_open_connections_end_in_time_and_go_on(
    live: Store, proxy: "Proxy", through: Store
) -> None:
    """Those that wait for a connection, too."""
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda _: through.enqueue("nap", {}), range(16)))
        proxy.swallowing = True
        times = threads.map(lambda _: seconds_of(lambda: through.enqueue("nap", {})), range(16))
        assert max(times) < BUSY + LATE + SLACK
        proxy.swallowing = False
        list(threads.map(lambda _: through.enqueue("nap", {}), range(16)))
    assert len(live.list()) == 32


def test_a_transaction_of_a_client_that_vanished_ends_and_lets_its_jobs_go(
    live: Store,
    proxy: "Proxy",
    url: str,
    opened: Callable[..., Store],
    proxied: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its locks would keep a job from everybody until the system gives the connection up."""
    monkeypatch.setattr(postgres, "IDLE_SECONDS", 2.0)
    through = opened(proxied(url), busy_seconds=BUSY)
    job = claimed(live)
    proxy.judge(at(COMMIT, "swallowed"))
    with pytest.raises(StoreBusy):  # the second try waits for the first one's lock
        through.heartbeat(job)
    assert not proxy.armed
    wait_until(lambda: finished(live, job), "the vanished transaction to end", seconds=15)


def finished(store: Store, job: Job) -> bool:
    """Try to finish a job; return whether that was possible."""
    try:
        return store.finish(job, 1).status is Status.DONE
    except StoreBusy:
        return False


WORK = """
import sys
from jobq.store import open_store
from jobq.worker import Worker
store = open_store(sys.argv[1], busy_seconds=0.5)
Worker(store, name="w1", lease_seconds=1.5, poll_seconds=0.2).run()
"""


def test_a_worker_on_a_half_open_connection_loses_its_lease_and_no_more(
    live: Store,
    proxy: "Proxy",
    url: str,
    proxied: Callable[[str], str],
    start: Callable[..., "Program"],
    assert_consistent: Callable[[Store], None],
) -> None:
    """Another one does the job meanwhile; when packets pass again the worker goes on."""
    worker = start(WORK, proxied(url))
    assert worker.hear().endswith("started")
    job = live.enqueue("nap", {"seconds": 30.0}).job
    wait_until(lambda: status(live, job) is Status.RUNNING, "the worker to take the job")
    proxy.swallowing = True
    wait_until(lambda: live.claim("w2", LEASE), "the lease to run out")
    [taken] = live.list(status=Status.RUNNING)
    live.finish(taken, "w2")
    proxy.swallowing = False
    after = live.enqueue("noop", {}).job
    wait_until(lambda: status(live, after) is Status.DONE, "the worker to come back")
    assert [(a.worker, a.outcome) for a in live.attempts(job.id)] == [
        ("w1", Outcome.CRASHED),
        ("w2", Outcome.DONE),
    ]
    assert worker.process.poll() is None
    assert_consistent(live)


def status(store: Store, job: Job) -> Status:
    """Return where a job stands."""
    found = store.get(job.id)
    assert found is not None
    return found.status
