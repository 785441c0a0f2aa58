"""The heartbeat: keeps the lease of a job while its handler runs, and sees that the handler ends.

One thread beats, so that a handler which waits or computes cannot starve the lease. It carries the
progress that the handler tells, and the reply says whether the job is to be cancelled. Another one
watches, because a beat can take long: it interrupts a handler that has to end, and one whose lease
could not be renewed before it ran out. Both go by the monotonic clock, so that no step of the
clock can make a live worker look dead.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobq.errors import LeaseLost
from jobq.job import Job, Progress
from jobq.signals import LAST_SECOND, Signals
from jobq.store import Store

TICK_SECONDS = 0.1  # between two looks at the clock and the signals, which cannot wake a thread
PROGRESS_SECONDS = 0.5  # between two heartbeats, when there is progress to tell


class Heartbeat:
    """Beats for one job at a time, by id and token of its present lease.

    `complain` is told what goes wrong with the store.
    """

    def __init__(
        self,
        store: Store,
        signals: Signals,
        lease_seconds: float,
        interval: float,
        complain: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._signals = signals
        self._lease_seconds = lease_seconds
        self._interval = interval
        self._tick = min(TICK_SECONDS, interval / 4)
        self._complain = complain
        self._beating, self._watching = threading.Lock(), threading.Lock()  # held by the threads
        self._job: Job | None = None
        self._isolated = False  # the handler has a process of its own, which others see to
        # The newest progress, and the newest that a heartbeat has carried. No lock: the handler's
        # thread, which sets the first, can be interrupted anywhere.
        self._told: Progress | None = None
        self._carried: Progress | None = None
        self._beaten_at = self._due = 0.0  # by the monotonic clock, like what follows
        self._trying_since: float | None = None  # when the first beat in vain began
        self.lease_end = 0.0  # at the earliest
        self.cancelled = False  # somebody asked for the job to be cancelled
        self.lost = False  # the job is another's, or may be at any moment

    @contextmanager
    def alive(self, abandon: Callable[[Job], None]) -> Iterator[None]:
        """Keep the threads running.

        They call `abandon` when a handler does not end although it was interrupted.
        """
        over = threading.Event()
        threads = [
            threading.Thread(target=run, args=(over, *rest), daemon=True, name=name)
            for run, rest, name in (
                (self._beat_on, (), "jobq-heartbeat"),
                (self._watch, (abandon,), "jobq-watch"),
            )
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    @contextmanager
    def beating(self, job: Job, claimed_at: float, *, isolated: bool = False) -> Iterator[None]:
        """Keep the lease of a job that was claimed no earlier than `claimed_at`.

        What the handler told last is told before the end, so that a next attempt can go on from
        there. After the end no heartbeat is under way: one that came after the job was finished
        would be refused, and look like a lost lease.
        """
        self.lease_end = claimed_at + self._lease_seconds
        self._beaten_at, self._due = claimed_at, claimed_at + self._interval
        self._trying_since = self._told = self._carried = None
        self.cancelled, self.lost = job.cancel_requested, False
        self._isolated = isolated
        self._job = job
        try:
            yield
        finally:
            with self._watching, self._beating:
                if self._has_news() and not self.lost:
                    self._try_to_beat(job)
                self._job = None

    def keeps(self, job: Job) -> bool:
        """Whether this lease of this job is still being kept."""
        return self._job is job and not self.lost

    def report(self, progress: Progress) -> None:
        """Have the next heartbeat, which is soon then, carry this."""
        self._told = progress

    def renew(self, job: Job) -> None:
        """Beat now, not when it is due. Raises LeaseLost and what goes wrong with the store."""
        with self._beating:
            if self._job is job:
                self._beat(job)

    def _beat_on(self, over: threading.Event) -> None:
        while not over.wait(self._tick):
            with self._beating:
                if self._job is not None and not self.lost and self._is_due(time.monotonic()):
                    self._try_to_beat(self._job)

    def _is_due(self, now: float) -> bool:
        if self._has_news():
            return now >= min(self._due, self._beaten_at + PROGRESS_SECONDS)
        return now >= self._due

    def _has_news(self) -> bool:
        return self._told is not self._carried

    def _try_to_beat(self, job: Job) -> None:
        try:
            self._beat(job)
        except LeaseLost:
            pass  # and it is noted
        except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may succeed
            self._due = self._beaten_at + self._interval / 4
            self._complain(error)

    def _beat(self, job: Job) -> None:
        told = self._told
        began = self._beaten_at = time.monotonic()
        if self._trying_since is None:
            self._trying_since = began
        news = told if self._has_news() else None
        try:
            reply = self._store.heartbeat(job, self._lease_seconds, news)
        except LeaseLost:
            self.lost = True
            raise
        self._carried = told
        self._trying_since = None
        self._due = began + self._interval
        self.lease_end = began + self._lease_seconds  # from before the beat: nobody is earlier
        self.cancelled = reply.cancel_requested

    def _watch(self, over: threading.Event, abandon: Callable[[Job], None]) -> None:
        while not over.wait(self._until_next_look()):
            with self._watching:
                if self._job is not None:
                    self._look_after(self._job, abandon)

    def _until_next_look(self) -> float:
        left = self.lease_end - time.monotonic()
        return min(self._tick, left) if left > 0 else self._tick

    def _look_after(self, job: Job, abandon: Callable[[Job], None]) -> None:
        self._signals.listen()
        now = time.monotonic()
        self.lost = self.lost or self._has_run_out(now)
        if self._isolated:
            return
        # What the handler of a lost job goes on to do, another worker does too.
        if self.lost or now >= self._signals.deadline:
            self._signals.interrupt()
        if now >= self._signals.deadline + LAST_SECOND:
            abandon(job)

    def _has_run_out(self, now: float) -> bool:
        """Whether the lease ended although it was to be renewed in good time.

        A process that stood still, or could not come to a beat, tries to beat before it gives up:
        the job may still be its own.
        """
        if self._trying_since is None:
            return False
        return now >= max(self.lease_end, self._trying_since + self._interval)
