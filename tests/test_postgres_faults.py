"""A connection to PostgreSQL breaks at each moment of each operation.

Each message that an operation sends to the server is in turn the one before which the backend is
ended, or after which the connection breaks, before the answer has come.
"""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from jobq import Job, LeaseLost, Status, Store
from jobq.errors import StoreUnreachable

if TYPE_CHECKING:
    from tests.swallow import Fate, Judge, Proxy

pytest_plugins = ["swallow"]

LEASE = 60.0
UNSURE = "not known"  # so says an error after which the change may have been made


@pytest.fixture
def engine() -> str:
    """Return the one engine of this file."""
    return "postgresql"


class Operation(NamedTuple):
    """What is done to some jobs, and how many events it writes if it is done."""

    run: Callable[[Store, list[Job]], Any]
    events: int
    jobs: int = 1  # that it needs
    before: Literal["queued", "running", "cancelled"] = "running"  # how it finds them
    twice: bool = False  # whether its effect may be had twice without harm
    may_raise: bool = False  # whether it is the caller that has to try again


def enqueue_three(store: Store, _: list[Job]) -> Any:
    """Enqueue three jobs, of which one has a key."""
    keys = [None, f"three-{next(unique)}", None]
    return store.enqueue_many(
        {"kind": "nap", "payload": {}, "idempotency_key": key} for key in keys
    )


unique = itertools.count()
OPERATIONS = {
    "enqueue": Operation(lambda store, _: store.enqueue("nap", {}), events=1, jobs=0),
    "enqueue with a key": Operation(
        lambda store, _: store.enqueue("nap", {}, f"key-{next(unique)}"), events=1, jobs=0
    ),
    "enqueue many": Operation(enqueue_three, events=3, jobs=0),
    "claim": Operation(
        lambda store, _: store.claim("w2", LEASE), events=1, before="queued", may_raise=True
    ),
    "claim many": Operation(
        lambda store, _: store.claim_many("w2", 5, LEASE),
        events=2,
        jobs=2,
        before="queued",
        may_raise=True,
    ),
    "heartbeat": Operation(
        lambda store, jobs: store.heartbeat(jobs[0], LEASE), events=1, twice=True
    ),
    "finish": Operation(lambda store, jobs: store.finish(jobs[0], 1), events=1),
    "finish many": Operation(
        lambda store, jobs: store.finish_many([(job, 1) for job in jobs]), events=2, jobs=2
    ),
    "fail": Operation(lambda store, jobs: store.fail(jobs[0], "no"), events=1),
    "release": Operation(lambda store, jobs: store.release(jobs[0]), events=1),
    "cancel": Operation(lambda store, jobs: store.cancel(jobs[0].id), events=1, before="queued"),
    "retry": Operation(
        lambda store, jobs: store.retry(jobs[0].id),
        events=1,
        before="cancelled",
        may_raise=True,
    ),
    "retry all": Operation(
        lambda store, _: store.retry_all(status=Status.CANCELLED), events=1, before="cancelled"
    ),
    "get": Operation(lambda store, jobs: store.get(jobs[0].id), events=0, may_raise=True),
    "read the log": Operation(lambda store, _: store.events(), events=0, may_raise=True),
}


def only(number: int, fate: "Fate") -> "Judge":
    """Return what decides against one message, counted from 0."""
    count = itertools.count()
    return lambda _: fate if next(count) == number else None


def prepare(store: Store, operation: Operation) -> list[Job]:
    """Return new jobs that stand where the operation wants them, and no others like them."""
    store.retry_all(status=Status.CANCELLED)
    for leftover in store.claim_many("sweeper", 100, LEASE):
        store.finish(leftover, None)
    jobs = [store.enqueue("nap", {}).job for _ in range(operation.jobs)]
    if operation.before == "cancelled":
        return [store.cancel(job.id) for job in jobs]
    if operation.before == "running" and jobs:
        return store.claim_many("w1", len(jobs), LEASE)
    return jobs


@pytest.fixture
def through(opened: Callable[..., Store], url: str, proxied: Callable[[str], str]) -> Store:
    """Return a store on the other side of the proxy, with a connection made."""
    store = opened(proxied(url), busy_seconds=5.0)
    store.last_event()
    return store


@pytest.mark.parametrize("fate", ["terminated", "unanswered"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_connection_that_breaks_loses_nothing_and_does_nothing_twice(
    name: str,
    fate: "Fate",
    live: Store,
    proxy: "Proxy",
    through: Store,
    assert_consistent: Callable[[Store], None],
) -> None:
    """What was answered was done, and once; what was refused was not, or it says that it may be.

    Those that do it twice without harm, or can see that they did it before, are repeated by the
    store, and their caller notices nothing.
    """
    operation = OPERATIONS[name]
    expected = {operation.events, 2 * operation.events if operation.twice else operation.events}
    for number in itertools.count():
        jobs = prepare(live, operation)
        before = live.last_event()
        proxy.judge(only(number, fate))
        answer, complaint = attempt(operation, through, jobs)
        written = len(live.events(after=before))
        if complaint is None:
            assert written in expected
        else:
            assert operation.may_raise, complaint
            assert written == 0 or (written in expected and UNSURE in complaint), complaint
        assert not any(isinstance(each, LeaseLost) for each in as_list(answer))
        if proxy.armed:  # it was done with fewer messages
            break
    proxy.judge(None)
    assert number >= 2, "hardly any message was tried"
    assert_consistent(live)


def attempt(operation: Operation, store: Store, jobs: list[Job]) -> tuple[Any, str | None]:
    """Return what the operation answers, and what it complains of."""
    try:
        return operation.run(store, jobs), None
    except StoreUnreachable as error:
        return None, str(error)


def as_list(answer: Any) -> list[Any]:
    """Return the answers of a batch, or the one answer as a list."""
    return answer if isinstance(answer, list) else [answer]
