"""What a handler is told beside its payload, and what it may ask of the worker that runs it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from jobq.checks import check_number, check_seconds
from jobq.errors import Cancelled, InvalidInput
from jobq.job import Job, Progress
from jobq.strictjson import check_name, check_text

LOOK_SECONDS = 0.05  # between two looks, in `sleep`, whether the job is to be cancelled

Write = Callable[[Any], object]  # is given the transaction; see Store.finish


class Attending(Protocol):
    """What a worker does for the handler that it runs."""

    def cancelled(self) -> bool:
        """Whether somebody asked for the job to be cancelled; as of the last heartbeat."""

    def report(self, progress: Progress) -> None:
        """Keep this for the next heartbeat."""

    def is_done(self, key: str) -> bool:
        """Whether some attempt at this job has marked the key as done."""

    def mark_done(self, key: str) -> None:
        """Mark the key as done. Raises LeaseLost."""


class Alone:
    """Attends to a handler that no worker runs: for trying one out."""

    def __init__(self) -> None:
        self.reported: list[Progress] = []
        self.keys: set[str] = set()

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def report(self, progress: Progress) -> None:
        """Append it to `reported`."""
        self.reported.append(progress)

    def is_done(self, key: str) -> bool:
        """Whether the key was marked."""
        return key in self.keys

    def mark_done(self, key: str) -> None:
        """Add it to `keys`."""
        self.keys.add(key)


@dataclass(slots=True)
class Context:
    """What a handler is told beside its payload, and what it may ask of its worker."""

    job: Job
    attempt: int  # the first is 1
    worker: str
    attending: Attending = field(default_factory=Alone, repr=False)
    writes: list[Write] = field(default_factory=list, repr=False)  # see write_with_finish

    @property
    def last_progress(self) -> Progress | None:
        """What the attempts before this one told last, so that the work can go on from there."""
        return self.job.progress

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the job to be cancelled.

        A handler that sees it may raise Cancelled, or return None: either way the job ends as
        cancelled. One that returns something else was quicker, and the job is done.
        """
        return self.attending.cancelled()

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell how far the work has come; the next heartbeat carries it, within half a second."""
        check_number(done, "progress done", least=0)
        if total is not None:
            check_number(total, "progress total", least=0)
        check_text(message, "progress message", max_bytes=1_000)
        self.attending.report(Progress(done, total, message))

    def sleep(self, seconds: float) -> None:
        """Wait; raise Cancelled once somebody has asked for the job to be cancelled."""
        check_seconds(seconds, "seconds", least=0)
        deadline = time.monotonic() + seconds
        while True:
            if self.cancelled:
                raise Cancelled(f"job {self.job.id} is to be cancelled")
            left = deadline - time.monotonic()
            if left <= 0:
                return
            threading.Event().wait(min(left, LOOK_SECONDS))

    @contextmanager
    def once(self, key: str) -> Iterator[bool]:
        """Do something at most once in all attempts at this job.

            with context.once(f"mail-{n}") as to_do:
                if to_do:
                    send(n)

        `to_do` is False if an attempt came to the end of this block before. The key is marked
        after the block: a worker that dies between the two leaves it unmarked, so the effect has
        to be harmless to repeat for that moment, for instance by a Message-ID that stays the same.
        Raises LeaseLost when the job is no longer this worker's.
        """
        check_name(key, "key")
        to_do = not self.attending.is_done(key)
        yield to_do
        if to_do:
            self.attending.mark_done(key)

    def write_with_finish(self, write: Write) -> None:
        """Have `write(transaction)` called in the transaction that records the result.

        What it executes there, on the job's own database, is committed together with the job's
        being done, or not at all: not if it raises, and not if the job was lost meanwhile.
        """
        if not callable(write):
            raise InvalidInput(f"write is {write!r}: use a function of the transaction")
        self.writes.append(write)
