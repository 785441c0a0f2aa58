import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jobq import Event, Store
from jobq.api import feed as module
from jobq.api.feed import Feed
from jobq.errors import StoreError, UnknownJob

PATIENCE = 30.0  # seconds until what was waited for did not come


def used(store: Store, use: Callable[[Feed], Awaitable[Any]]) -> Any:
    """Use a feed of the store in an event loop, and close it."""

    async def main() -> Any:
        feed = Feed(store)
        try:
            return await use(feed)
        finally:
            feed.close()

    return asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        await asyncio.sleep(0.005)


async def followed(feed: Feed, last: int, after: int = 0, job_id: str | None = None) -> list[int]:
    """Return the numbers of the events up to the last, as a client gets them one list at a time."""
    found: list[int] = []
    while after < last:
        events = await feed.wait(after, PATIENCE, job_id)
        assert events, "the events did not come"
        found += [event.seq for event in events]
        after = found[-1]
    return found


def enqueue(store: Store, number: int = 1) -> str:
    """Enqueue jobs, one event each; return the id of the last."""
    return [store.enqueue("noop", {}).job.id for _ in range(number)][-1]


def threads() -> list[threading.Thread]:
    """Return the threads of feeds."""
    return [thread for thread in threading.enumerate() if thread.name == "jobq-feed"]


@pytest.fixture
def reads(live: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return where each read of the event log of `live` begins."""
    begun: list[int] = []
    read = live.events

    def counted(job_id: str | None = None, *, after: int = 0, limit: int) -> tuple[Event, ...]:
        begun.append(after)
        return read(job_id, after=after, limit=limit)

    monkeypatch.setattr(live, "events", counted)
    return begun


def test_an_event_reaches_who_waits_for_it(live: Store) -> None:
    """What is committed while somebody waits is returned, whole."""

    async def use(feed: Feed) -> list[Event]:
        waiting = asyncio.create_task(feed.wait(0, PATIENCE))
        await until(lambda: feed.waiters == 1)
        await asyncio.to_thread(enqueue, live)
        return await waiting

    assert used(live, use) == list(live.events())


def test_events_that_are_there_are_returned_at_once(live: Store) -> None:
    """No time is needed for what is in the log, and after the last event there is nothing."""
    enqueue(live, 3)

    async def use(feed: Feed) -> tuple[list[Event], list[Event]]:
        return await feed.wait(1, 0), await feed.wait(3, 0)

    assert used(live, use) == (list(live.events(after=1)), [])


def test_a_wait_for_a_job_ends_with_that_job_s_event(live: Store) -> None:
    """Other jobs' events are not returned, from the log or from memory."""
    mine = enqueue(live)
    enqueue(live)

    async def use(feed: Feed) -> tuple[list[int], list[Event]]:
        before = await followed(feed, 1, job_id=mine)
        waiting = asyncio.create_task(feed.wait(1, PATIENCE, mine))
        await until(lambda: feed.waiters == 1)
        await asyncio.to_thread(enqueue, live)
        await asyncio.to_thread(live.cancel, mine)
        return before, await waiting

    before, after = used(live, use)
    assert before == [1]
    assert [event.seq for event in after] == [4]


def test_a_wait_ends_with_its_time(live: Store) -> None:
    """Without an event nothing is returned, and in time."""
    began = time.monotonic()
    assert used(live, lambda feed: feed.wait(0, 0.1)) == []
    assert time.monotonic() - began < PATIENCE / 2


def test_a_wait_for_a_job_that_is_gone_says_so(live: Store) -> None:
    """There is no telling an unknown job from a silent one otherwise."""
    with pytest.raises(UnknownJob):
        used(live, lambda feed: feed.wait(0, PATIENCE, "abc"))


def test_a_change_costs_one_read_however_many_wait(live: Store, reads: list[int]) -> None:
    """A hundred follow all jobs and a hundred a silent one: ten changes cost ten reads at most."""
    silent = enqueue(live)
    enqueue(live, 20)  # so that the silent job's event lies far back

    async def use(feed: Feed) -> list[list[int]]:
        first = asyncio.create_task(feed.wait(21, PATIENCE))
        await until(lambda: feed._floor == 21)
        quiet = [asyncio.create_task(feed.wait(1, PATIENCE, silent)) for _ in range(100)]
        await until(lambda: reads.count(1) == 100)  # each looks into the log once
        tasks = [asyncio.create_task(followed(feed, 31, after=21)) for _ in range(100)]
        await until(lambda: feed.waiters == 201)
        before = len(reads)
        await asyncio.to_thread(enqueue, live, 10)
        found = await asyncio.gather(*tasks)
        assert len(reads) - before <= 10
        feed.stop()
        assert await asyncio.gather(*quiet) == [[]] * 100
        await first
        return found

    assert used(live, use) == [list(range(22, 32))] * 100


def test_a_slow_client_misses_nothing(live: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What memory no longer holds comes from the log, a page at a time, in order and once."""
    monkeypatch.setattr(module, "KEPT", 5)
    monkeypatch.setattr(module, "PAGE", 7)
    enqueue(live, 20)

    async def use(feed: Feed) -> tuple[list[int], list[int]]:
        slow = asyncio.create_task(feed.wait(20, PATIENCE))
        await until(lambda: feed.waiters == 1)
        await asyncio.to_thread(enqueue, live, 40)
        await slow
        await until(lambda: feed._recent[-1].seq == 60)
        assert len(feed._recent) == 5  # the bound
        return await followed(feed, 60), await followed(feed, 60, after=57)

    assert used(live, use) == (list(range(1, 61)), [58, 59, 60])


def test_nothing_is_missed_or_repeated_while_many_write(live: Store) -> None:
    """Every listener gets every event in order, wherever it began and whenever it came."""

    async def use(feed: Feed) -> list[list[int]]:
        writers = [asyncio.to_thread(enqueue, live, 75) for _ in range(2)]
        writing = [asyncio.create_task(writer) for writer in writers]
        tasks = []
        for after in range(0, 50, 10):
            tasks.append(asyncio.create_task(followed(feed, 150, after)))
            await asyncio.sleep(0.02)
        found = await asyncio.gather(*tasks)
        await asyncio.gather(*writing)
        return found

    assert used(live, use) == [list(range(after + 1, 151)) for after in range(0, 50, 10)]


def test_no_thread_runs_while_nobody_waits(live: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread comes with the first waiter, and ends a while after the last."""
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.05)

    async def use(feed: Feed) -> None:
        assert not threads()
        waiting = asyncio.create_task(feed.wait(0, PATIENCE))
        await until(lambda: len(threads()) == 1)
        waiting.cancel()
        await until(lambda: not threads())

    used(live, use)


def test_who_comes_as_the_thread_ends_is_served(
    live: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a wait and the end of the thread meet, the next event is returned."""
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.0)

    async def use(feed: Feed) -> None:
        for number in range(1, 41):
            waiting = asyncio.create_task(feed.wait(number - 1, PATIENCE))
            await asyncio.sleep(0.003 * (number % 7))
            await asyncio.to_thread(enqueue, live)
            assert [event.seq for event in await waiting] == [number]
            await asyncio.sleep(0.01 * (number % 6))  # around the time that the thread ends

    used(live, use)


def test_who_comes_after_the_thread_s_last_look_is_served(
    live: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has ended, and its word of that comes after the next waiter: another begins."""
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.0)

    async def use(feed: Feed) -> list[Event]:
        waiting = asyncio.create_task(feed.wait(0, PATIENCE))
        await until(lambda: len(threads()) == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        for thread in threads():
            thread.join()  # nothing else runs in this loop meanwhile
        asyncio.get_running_loop().call_later(0.2, enqueue, live)
        return await feed.wait(0, PATIENCE)

    assert len(used(live, use)) == 1


def test_an_event_between_two_first_looks_is_not_missed(
    live: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that came after the waiter had looked, and before the thread did, is returned."""
    job_id = enqueue(live)
    read, last_event, looked = live.events, live.last_event, threading.Event()

    def events(job_id: str | None = None, *, after: int, limit: int) -> tuple[Event, ...]:
        found = read(job_id, after=after, limit=limit)
        looked.set()
        return found

    def last_event_later() -> int:
        assert looked.wait(PATIENCE)
        live.cancel(job_id)
        return last_event()

    monkeypatch.setattr(live, "events", events)
    monkeypatch.setattr(live, "last_event", last_event_later)
    [event] = used(live, lambda feed: feed.wait(1, PATIENCE, job_id))
    assert event.seq == 2


def test_trouble_with_the_store_is_waited_out(
    live: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who waits is served once the store can be read again; the log tells of it once."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    read, tries = live.change_mark, 0

    def troubled() -> int:
        nonlocal tries
        tries += 1
        if 1 < tries < 6:
            raise StoreError("the disk is on fire")
        return read()

    monkeypatch.setattr(live, "change_mark", troubled)

    async def use(feed: Feed) -> list[int]:
        waiting = asyncio.create_task(followed(feed, 2))
        await until(lambda: tries == 1)
        await asyncio.to_thread(enqueue, live)
        await until(lambda: tries > 5)
        await asyncio.to_thread(enqueue, live)
        return await waiting

    assert used(live, use) == [1, 2]
    assert caplog.messages == ["the disk is on fire"]


def test_stopping_ends_every_wait(live: Store) -> None:
    """Those that are on return nothing, those to come too, and the thread ends."""

    async def use(feed: Feed) -> None:
        waits = [asyncio.create_task(feed.wait(0, PATIENCE)) for _ in range(10)]
        await until(lambda: feed.waiters == 10)
        feed.stop()
        assert await asyncio.gather(*waits, feed.wait(0, PATIENCE)) == [[]] * 11
        feed.close()
        assert not threads()

    used(live, use)


def test_waits_that_are_cancelled_leave_nothing(live: Store) -> None:
    """Two hundred that began and were given up: nobody is counted, and the next is served."""

    async def use(feed: Feed) -> list[Event]:
        for _ in range(4):
            waits = [asyncio.create_task(feed.wait(0, PATIENCE)) for _ in range(50)]
            await asyncio.sleep(0.01)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        assert feed.waiters == 0
        await asyncio.to_thread(enqueue, live)
        return await feed.wait(0, PATIENCE)

    assert len(used(live, use)) == 1


def test_a_feed_outlives_its_event_loop(live: Store) -> None:
    """A later loop is served too: a program may run one after another."""
    feed = Feed(live)
    for number in range(3):
        waiting = asyncio.wait_for(feed.wait(number, PATIENCE), PATIENCE)
        threading.Timer(0.05, enqueue, [live]).start()
        assert [event.seq for event in asyncio.run(waiting)] == [number + 1]
    feed.stop()
    for thread in threads():
        thread.join()
