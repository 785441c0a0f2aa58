"""The heartbeat: keeps the lease of a job while its handler runs, and sees that the handler ends.

It has a thread of its own, so that a handler which waits or computes cannot starve it, and it
goes by the monotonic clock, so that no step of the clock can make a live worker look dead.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobq.errors import LeaseLost
from jobq.job import Job
from jobq.signals import Signals
from jobq.store import Store

BEATS_PER_LEASE = 3  # so that two in a row may fail
TICK_SECONDS = 0.1  # between two looks at the clock and the signals, which cannot wake a thread
LAST_SECOND = 1.0  # for an interrupted handler to end
LOST = math.inf  # the next beat of a lease that is lost


class Heartbeat:
    """Beats for one job at a time, by id and token of its present lease.

    `complain` is told what goes wrong with the store.
    """

    def __init__(
        self,
        store: Store,
        signals: Signals,
        lease_seconds: float,
        complain: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._signals = signals
        self._lease_seconds = lease_seconds
        self._interval = lease_seconds / BEATS_PER_LEASE
        self._complain = complain
        self._lock = threading.Lock()  # held while the thread does something about the job
        self._job: Job | None = None
        self._due = 0.0  # the next beat, in the monotonic clock's time like what follows
        self.lease_end = 0.0  # at the earliest

    @contextmanager
    def alive(self, abandon: Callable[[Job], None]) -> Iterator[None]:
        """Keep the thread running.

        It calls `abandon` when a handler does not end although it was interrupted.
        """
        over = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(over, abandon), daemon=True, name="jobq-heartbeat"
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def beating(self, job: Job, claimed_at: float) -> Iterator[None]:
        """Keep the lease of a job that was claimed no earlier than `claimed_at`.

        At the end no heartbeat is under way: one that came after the job was finished would be
        refused, and look like a lost lease.
        """
        self.lease_end = claimed_at + self._lease_seconds
        self._due = claimed_at + self._interval
        self._job = job
        try:
            yield
        finally:
            with self._lock:
                self._job = None

    def _run(self, over: threading.Event, abandon: Callable[[Job], None]) -> None:
        tick = min(TICK_SECONDS, self._interval / 4)
        while not over.wait(tick):
            with self._lock:
                if self._job is not None:
                    self._attend_to(self._job, abandon)

    def _attend_to(self, job: Job, abandon: Callable[[Job], None]) -> None:
        self._signals.listen()
        now = time.monotonic()
        if now >= self._due:
            self._beat(job, now)
        # What the handler of a lost job goes on to do, another worker does too.
        if self._due == LOST or now >= self._signals.deadline:
            self._signals.interrupt()
        if now >= self._signals.deadline + LAST_SECOND:
            abandon(job)

    def _beat(self, job: Job, now: float) -> None:
        try:
            self._store.heartbeat(job, self._lease_seconds)
        except LeaseLost:
            self._due = LOST
        except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may succeed
            self._due = now + self._interval / 4
            self._complain(error)
        else:
            self._due = now + self._interval
            self.lease_end = now + self._lease_seconds
