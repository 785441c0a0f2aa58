"""One reader of the event log for all who wait for events, however many they are.

A thread reads what is new once per change of the store; it runs while anybody waits. The events
of late stay in memory. Each waiter says what it has seen last: what is newer comes from memory,
or from the log if it lies further back, so a slow client costs nothing and misses nothing.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from jobq.errors import StoreError
from jobq.job import Event
from jobq.store import Store

log = logging.getLogger(__name__)

KEPT = 10_000  # events in memory
PAGE = 1_000  # events of one read
WATCH_SECONDS = 5.0  # the longest wait for a change, between two looks
LINGER_SECONDS = 1.0  # that the thread goes on without a waiter: the next one is often near
PAUSE_SECONDS = 0.5  # between two tries while the store is in trouble


class Feed:
    """The events of a store, for the coroutines of one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: deque[Event] = deque()
        self._floor: int | None = None  # all events after this one are in `_recent`, if not None
        self._waiters: dict[asyncio.Event, str | None] = {}  # what wakes each, and its job
        self._left_at = 0.0  # when the last waiter left, by the monotonic clock
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # that the thread reports to
        self.stopping = False

    @property
    def waiters(self) -> int:
        """How many wait."""
        return len(self._waiters)

    async def wait(self, after: int, seconds: float, job_id: str | None = None) -> list[Event]:
        """Return the events after that `seq`, of one job or of all, once there are some.

        None are returned when the seconds are over, and when the server stops. Raises StoreError,
        and UnknownJob if the job has been deleted.
        """
        deadline = time.monotonic() + seconds
        with self._waiting(job_id) as woken:
            while not self.stopping:
                woken.clear()
                if events := await self._after(after, job_id):
                    return events
                try:
                    async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                        await woken.wait()
                except TimeoutError:
                    break
        return []

    def stop(self) -> None:
        """Let every wait end, those to come too. To be called in the event loop."""
        self.stopping = True
        self._wake()

    def close(self) -> None:
        """Stop, and wait for the thread to end."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def _waiting(self, job_id: str | None) -> Iterator[asyncio.Event]:
        woken = asyncio.Event()
        self._waiters[woken] = job_id
        loop = asyncio.get_running_loop()
        if loop is not self._loop and not self.stopping:
            self._start(loop)
        try:
            yield woken
        finally:
            del self._waiters[woken]
            self._left_at = time.monotonic()

    async def _after(self, after: int, job_id: str | None) -> list[Event]:
        if self._floor is None or after < self._floor:
            return list(await asyncio.to_thread(self._read, after, job_id))
        found = []
        for event in reversed(self._recent):
            if event.seq <= after:
                break
            if job_id is None or event.job_id == job_id:
                found.append(event)
        return found[::-1]

    def _read(self, after: int, job_id: str | None) -> tuple[Event, ...]:
        return self._store.events(job_id, after=after, limit=PAGE)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._recent.clear()
        self._floor = None  # what came before is in the log alone
        self._loop = loop
        self._thread = threading.Thread(
            target=self._watch, args=(loop,), daemon=True, name="jobq-feed"
        )
        self._thread.start()

    def _publish(self, floor: int, events: tuple[Event, ...]) -> None:
        self._recent.extend(events)
        if self._floor is None:
            self._floor = floor
            self._wake()  # all: up to `floor`, something may have come since they looked
        else:
            self._wake({event.job_id for event in events})
        while len(self._recent) > KEPT:
            self._floor = self._recent.popleft().seq

    def _wake(self, job_ids: Collection[str] | None = None) -> None:
        """Wake those who wait for one of the jobs, or for any; without jobs, everybody."""
        for woken, job_id in self._waiters.items():
            if job_ids is None or job_id is None or job_id in job_ids:
                woken.set()

    def _ended(self) -> None:
        self._loop = None
        if self._waiters and not self.stopping:  # somebody came at the last moment
            self._start(asyncio.get_running_loop())

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        seen: int | None = None
        trouble = False
        try:
            while not self._is_over():
                try:
                    mark = self._store.change_mark()
                    floor = self._store.last_event() if seen is None else seen
                    events = self._store.events(after=floor, limit=PAGE)
                    if events or seen is None:
                        loop.call_soon_threadsafe(self._publish, floor, events)
                    seen, trouble = events[-1].seq if events else floor, False
                    if len(events) < PAGE:
                        self._store.wait_for_change(mark, WATCH_SECONDS, self._is_over)
                except (StoreError, OSError) as error:
                    if not trouble:  # said once, however long it lasts
                        log.error("%s", error)  # noqa: TRY400 - the message says it all
                    trouble = True
                    time.sleep(PAUSE_SECONDS)
            loop.call_soon_threadsafe(self._ended)
        except RuntimeError:
            if not loop.is_closed():  # then nobody waits any more
                raise

    def _is_over(self) -> bool:
        idle = not self._waiters and time.monotonic() - self._left_at > LINGER_SECONDS
        return self.stopping or idle
