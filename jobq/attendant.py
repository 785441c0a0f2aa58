"""What a worker does for the handler that it runs: answers the questions of its Context."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from jobq.errors import LeaseLost, StoreError
from jobq.heartbeat import Heartbeat
from jobq.job import Job, Progress
from jobq.signals import Signals
from jobq.store import Store

T = TypeVar("T")

PAUSE_SECONDS = 0.2  # between two tries while the store is in trouble


class Attendant:
    """Attends to one attempt at a job. See jobq.context.Attending."""

    def __init__(self, store: Store, signals: Signals, heartbeat: Heartbeat, job: Job) -> None:
        self._store = store
        self._signals = signals
        self._heartbeat = heartbeat
        self._job = job

    def cancelled(self) -> bool:
        """Whether somebody asked for the job to be cancelled. Raises LeaseLost."""
        self._check_kept()
        return self._heartbeat.cancelled

    def report(self, progress: Progress) -> None:
        """Keep this for the next heartbeat. Raises LeaseLost."""
        self._check_kept()
        self._heartbeat.report(progress)

    def is_done(self, key: str) -> bool:
        """Whether some attempt at this job has marked the key. Raises LeaseLost.

        What follows is an effect that nobody else must have. So a lease that ran out is renewed
        first: a process that stood still for a while does not know what became of its job.
        """
        self._check_kept()
        if time.monotonic() >= self._heartbeat.lease_end:
            self._patiently(lambda: self._heartbeat.renew(self._job))
        answer = self._patiently(lambda: self._store.is_done(self._job, key))
        self._check_kept()  # the store may have taken its time
        return answer

    def mark_done(self, key: str) -> None:
        """Mark the key as done. Raises LeaseLost.

        The effect has been had: whether it can still be marked is for the store to say.
        """
        self._patiently(lambda: self._store.mark_done(self._job, key))

    def _check_kept(self) -> None:
        if not self._heartbeat.keeps(self._job):
            why = "its attempt has ended, or another worker may have the job now"
            raise LeaseLost(self._job.id, self._job.token, why)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Return what the store answers, once it does; raise LeaseLost when the lease ran out."""
        while True:
            try:
                with self._signals.sheltered():  # or the store would be left in the middle of it
                    return ask()
            except (StoreError, OSError) as error:
                if time.monotonic() >= self._heartbeat.lease_end:
                    why = f"its lease ran out, and still {error}"
                    raise LeaseLost(self._job.id, self._job.token, why) from error
            threading.Event().wait(PAUSE_SECONDS)
