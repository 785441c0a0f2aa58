"""The worker: claims a job, runs its handler, and records how the attempt ended; again and again.

It may die at any moment. What it had claimed is then taken by another worker once the lease has
run out; what it had recorded stays. What it writes late is refused by the store.
"""

import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from jobq import outcomes
from jobq.checks import check_seconds
from jobq.errors import LeaseLost, NotStrictJson, StoreError
from jobq.handlers import Context, Registry, builtin
from jobq.heartbeat import Heartbeat
from jobq.job import Job, Status
from jobq.oneline import one_line
from jobq.outcomes import Decision, Fail, Finish, Release
from jobq.signals import Signals
from jobq.store import Store
from jobq.strictjson import check_name

log = logging.getLogger(__name__)

TROUBLE = (StoreError, OSError)  # of the store's; may pass
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two tries while the store is in trouble


def print_line(text: str) -> None:
    """Print a line at once, whatever characters the terminal lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


class Worker:
    """Runs the jobs of a store, one at a time.

    `lease_seconds` is how long a job stays this worker's without a heartbeat; there are three in
    that time. `grace_seconds` is how long the current job may go on after the first SIGTERM or
    SIGINT, `poll_seconds` the longest wait between two looks for a job. `say` is given each line
    of the worker's log. Raises InvalidInput for a value that breaks a rule.
    """

    def __init__(
        self,
        store: Store,
        *,
        handlers: Registry = builtin,
        name: str | None = None,
        lease_seconds: float = 30.0,
        grace_seconds: float = 30.0,
        poll_seconds: float = 1.0,
        say: Callable[[str], None] = print_line,
    ) -> None:
        self._lease_seconds = check_seconds(lease_seconds, "lease_seconds", least=0.001)
        self._poll_seconds = check_seconds(poll_seconds, "poll_seconds", least=0.001)
        self._signals = Signals(check_seconds(grace_seconds, "grace_seconds", least=0.0))
        self._store = store
        self._handlers = handlers
        self._say = say
        self._heartbeat = Heartbeat(store, self._signals, self._lease_seconds, self._complain)
        self._pause = 0.0  # until the next try, while the store is in trouble
        self.name = _unused_name(store) if name is None else check_name(name, "name")

    def __repr__(self) -> str:
        return f"Worker({self.name!r})"

    def run(self, *, until_idle: bool = False) -> None:
        """Run jobs until stopped; with `until_idle`, at most until no job is queued or running.

        In the main thread this takes over SIGTERM and SIGINT. The first one lets the current job
        end. A second one, or the end of the grace time, interrupts it and gives it back; if its
        handler does not end within a second, the whole process ends, with exit code 0.
        """
        with self._signals.watched(), self._heartbeat.alive(self._abandon):
            self._tell("started")
            while not self._signals.stopping:
                try:
                    mark = self._store.change_mark()
                    if self._run_next() is None:
                        if until_idle and self._all_final(mark):
                            break
                        self._store.wait(mark, self._poll_seconds, lambda: self._signals.stopping)
                    self._pause = 0.0
                except TROUBLE as error:
                    self._wait_out(error)
            self._tell("stopped cleanly")

    def run_one(self) -> Job | None:
        """Run one job, if there is one, and return it as it is afterwards.

        SIGTERM and SIGINT are held back until the job has ended, and then do what they do in the
        calling program; a second one gives the job back. Raises StoreError.
        """
        with self._signals.watched(pass_on=True), self._heartbeat.alive(abandon=lambda _: None):
            return None if self._signals.stopping else self._run_next()

    def stop(self) -> None:
        """Let the current job end, then return from `run`. May be called by any thread."""
        self._signals.stopping = True

    def _run_next(self) -> Job | None:
        claimed_at = time.monotonic()
        job = self._store.claim(self.name, self._lease_seconds)
        if job is None:
            return None
        self._tell(f"took {job.id[:8]} attempt {job.attempts}")
        with self._heartbeat.beating(job, claimed_at):
            decision = self._carry_out(job)
        return self._record(job, decision)

    def _carry_out(self, job: Job) -> Decision:
        """Run the handler; every way out of it is an end of the attempt."""
        handler = self._handlers.get(job.kind)
        if handler is None:
            return outcomes.without_handler(job.kind, self._handlers.kinds())
        context = Context(job=job, attempt=job.attempts, worker=self.name)
        try:
            result = self._signals.call(lambda: handler(job.payload, context))
        except BaseException as error:  # SystemExit ends an attempt, not a worker
            # For whoever writes a handler; the store and the lesson's lines keep the text alone.
            log.debug("%s: the handler raised", job.id[:8], exc_info=error)
            return outcomes.after_raise(error, interrupted=self._signals.interrupted)
        return Finish(result)

    def _record(self, job: Job, decision: Decision) -> Job:
        """Write how the attempt ended, again and again until the lease runs out.

        Return the job as it is then, or as it was when that was not to be.
        """
        while True:
            try:
                return self._write(job, decision)
            except LeaseLost as error:
                self._tell(f"lost {job.id[:8]}: {error.why}")
                return job
            except TROUBLE as error:
                if time.monotonic() >= self._heartbeat.lease_end:
                    self._tell(f"lost {job.id[:8]}: its lease ran out, and still {error}")
                    return job
                self._wait_out(error)

    def _write(self, job: Job, decision: Decision) -> Job:
        match decision:
            case Finish(result):
                try:
                    after = self._store.finish(job, result)
                except NotStrictJson as error:
                    return self._write(job, Fail(str(error)))
                self._tell(f"finished {job.id[:8]}")
            case Fail(error, final):
                after = self._store.fail(job, error, final=final)
                self._tell(f"failed {job.id[:8]}: {error}")
            case Release():
                after = self._store.release(job)
                self._tell(f"released {job.id[:8]}")
        self._pause = 0.0
        return after

    def _abandon(self, job: Job) -> None:
        """Give the job back although its handler goes on, and end the handler with the process."""
        try:
            self._record(job, Release())
            self._tell("stopped cleanly")
        finally:
            os._exit(0)

    def _all_final(self, mark: int) -> bool:
        """Whether no job is queued or running; a job may not change between the two looks."""
        waiting = (self._store.list(status=s, limit=1) for s in (Status.QUEUED, Status.RUNNING))
        return not any(waiting) and self._store.change_mark() == mark

    def _wait_out(self, error: Exception) -> None:
        self._complain(error)
        threading.Event().wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _complain(self, error: Exception) -> None:
        """Say that the store is in trouble, once until it works again."""
        if not self._pause:
            self._pause = FIRST_PAUSE
            self._tell(f"cannot use the store: {error}; trying again")

    def _tell(self, text: str) -> None:
        with suppress(Exception):  # a log that nobody can write to must not stop the work
            self._say(f"{self.name} {one_line(text)}")


_starts = itertools.count(1)


def _unused_name(store: Store) -> str:
    """Return a name for this start of a worker: its process, and a number where that is not enough.

    A system gives the number of a process out again, in a container even at each start. Nothing
    is decided by a worker's name (the token fences), but who reads the log must not take a dead
    worker's job for a living one's: the name of a lease that still stands is not used again.
    """
    leased: set[str | None] = set()
    with suppress(StoreError):  # a name is nothing to fail for
        leased = {job.worker for job in store.list(status=Status.RUNNING, limit=1_000)}
    starts = (f"worker-{os.getpid()}" + (f"-{n}" if n > 1 else "") for n in _starts)
    return next(name for name in starts if name not in leased)
