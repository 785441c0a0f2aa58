"""How a store on PostgreSQL hears of changes, and what it does when it hears nothing."""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from jobq import Store
from jobq.lab.waiting import wait_until
from jobq.store import listener

if TYPE_CHECKING:
    from tests.swallow import Proxy

pytest_plugins = ["swallow"]

LONG = 300.0  # seconds that a test never waits


@pytest.fixture
def engine() -> str:
    """Return the one engine of this file."""
    return "postgresql"


@pytest.fixture
def other(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Return a connection of another program's, to the same schema."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        yield connection


@pytest.fixture
def never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing but notifications that could end a wait."""
    monkeypatch.setattr(listener, "POLL_SECONDS", LONG)


@contextmanager
def waiting(store: Store) -> Iterator[Future[None]]:
    """Wait for a change in a thread, from the present mark on."""
    over = threading.Event()
    mark = store.change_mark()
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(store.wait_for_change, mark, LONG, over.is_set)
        finally:
            over.set()


def hears(store: Store) -> bool:
    """Whether the store's listener trusts its connection."""
    return bool(store._engine._listening().trusted)  # type: ignore[attr-defined]  # PostgreSQL's


@pytest.mark.usefixtures("never_polls")
def test_a_wait_ends_when_another_store_has_written(
    live: Store, url: str, opened: Callable[..., Store]
) -> None:
    """By the notification alone: nobody looks."""
    writer = opened(url)
    wait_until(lambda: hears(live), "the listener to hear itself")
    for _ in range(3):
        with waiting(live) as wait:
            writer.enqueue("nap", {})
            wait.result(30.0)


def test_a_notification_carries_ids_and_nothing_else(
    live: Store, other: psycopg.Connection[Any]
) -> None:
    """Payloads, keys and errors are nobody's who only may listen."""
    [(schema,)] = other.execute("SELECT current_schema()")
    other.execute(sql.SQL("LISTEN {}").format(sql.Identifier(f"jobq.{schema}")))
    job = live.enqueue("secret-kind", {"secret": 1}, "secret-key").job
    taken = live.claim("secret-worker")
    assert taken is not None
    live.fail(taken, "secret-error", final=True)
    live.enqueue_many({"kind": "nap", "payload": {}} for _ in range(1_000))
    heard = [said.payload for said in other.notifies(timeout=30.0, stop_after=4)]
    assert heard[:3] == [job.id] * 3
    assert all(re.fullmatch(r"([0-9a-f]{32} ?)*", payload) for payload in heard)


@pytest.mark.parametrize("how", ["terminated", "cut"])
def test_a_listener_whose_connection_broke_comes_back_and_hears(
    live: Store,
    proxy: "Proxy",
    url: str,
    opened: Callable[..., Store],
    proxied: Callable[[str], str],
    other: psycopg.Connection[Any],
    how: str,
) -> None:
    """Whoever waits meanwhile is sent to look; afterwards notifications wake again."""
    store = opened(proxied(url))
    with waiting(store) as wait:
        wait_until(lambda: hears(store), "the listener to hear itself")
        if how == "cut":
            proxy.hang_up()
        else:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'jobq' AND pid <> pg_backend_pid()"
            )
        wait.result(30.0)
    wait_until(lambda: hears(store), "the listener to come back")
    with waiting(store) as wait:
        live.enqueue("nap", {})
        wait.result(30.0)


def test_a_listener_that_hears_nothing_is_noticed_and_polling_takes_over(
    live: Store,
    proxy: "Proxy",
    url: str,
    opened: Callable[..., Store],
    proxied: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is open and dead; nothing says so, but it no longer hears what it says."""
    monkeypatch.setattr(listener, "PROOF_SECONDS", 0.2)
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.2)
    store = opened(proxied(url), busy_seconds=0.5)
    store.change_mark()
    wait_until(lambda: hears(store), "the listener to hear itself")
    proxy.swallowing = True
    wait_until(lambda: not hears(store), "the listener to miss its own words")
    with waiting(store) as wait:
        live.enqueue("nap", {})
        wait.result(30.0)
    proxy.swallowing = False
    wait_until(lambda: hears(store), "the listener to come back")
