"""The worker: claims a job, runs its handler, and records how the attempt ended; again and again.

It may die at any moment. What it had claimed is then taken by another worker once the lease has
run out; what it had recorded stays. What it writes late is refused by the store.
"""

import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from jobq import outcomes
from jobq.attendant import Attendant
from jobq.checks import BEATS_PER_LEASE, check_seconds, outlasts_beats
from jobq.context import Context
from jobq.errors import InvalidInput, StoreError
from jobq.handlers import Kind, Registry
from jobq.heartbeat import Heartbeat
from jobq.isolate import Isolated
from jobq.job import Job, Status
from jobq.kinds import builtin
from jobq.oneline import one_line
from jobq.outcomes import Decision, Release, Stop
from jobq.recording import TROUBLE, Recorder
from jobq.signals import Signals
from jobq.store import Store
from jobq.strictjson import check_name

log = logging.getLogger(__name__)


def print_line(text: str) -> None:
    """Print a line at once, whatever characters the terminal lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


class Worker:
    """Runs the jobs of a store, one at a time.

    `lease_seconds` is how long a job stays this worker's without a heartbeat, `heartbeat_seconds`
    the time between two of these, at most and by default a third of it. `isolate` names the kinds
    whose handlers run in a process of their own (True: all), beside those that always do; see
    jobq.isolate for what that survives. `grace_seconds` is how long the current job may go on
    after the first SIGTERM or SIGINT, `poll_seconds` the longest wait between two looks for a job.
    `say` is given each line of the worker's log. Raises InvalidInput for a value that breaks a
    rule.
    """

    def __init__(  # noqa: PLR0913 - each is named at the call
        self,
        store: Store,
        *,
        handlers: Registry = builtin,
        name: str | None = None,
        lease_seconds: float = 30.0,
        heartbeat_seconds: float | None = None,
        isolate: bool | Collection[str] = False,
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
        self._isolate = _chosen(isolate)
        self._isolated: Isolated | None = None  # made for the first job that needs it
        self._recorder = Recorder(store, self._tell, lambda: self._heartbeat.lease_end)
        self._heartbeat = Heartbeat(
            store,
            self._signals,
            self._lease_seconds,
            _interval(self._lease_seconds, heartbeat_seconds),
            self._recorder.complain,
        )
        self.name = _unused_name(store) if name is None else check_name(name, "name")

    def __repr__(self) -> str:
        return f"Worker({self.name!r})"

    def run(self, *, until_idle: bool = False) -> None:
        """Run jobs until stopped; with `until_idle`, at most until no job is queued or running.

        In the main thread this takes over SIGTERM and SIGINT. The first one lets the current job
        end. A second one, or the end of the grace time, interrupts it and gives it back; if its
        handler does not end within a second, the whole process ends, with exit code 0.
        """
        with self._signals.watched(), self._heartbeat.alive(self._abandon), self._isolation():
            self._tell("started")
            while not self._signals.stopping:
                try:
                    mark = self._store.change_mark()
                    if self._run_next() is None:
                        if until_idle and not self._store.unfinished():
                            break
                        self._store.wait(mark, self._poll_seconds, lambda: self._signals.stopping)
                    self._recorder.all_is_well()
                except TROUBLE as error:
                    self._recorder.wait_out(error)
            self._tell("stopped cleanly")

    def run_one(self) -> Job | None:
        """Run one job, if there is one, and return it as it is afterwards.

        SIGTERM and SIGINT are held back until the job has ended, and then do what they do in the
        calling program; a second one gives the job back. Raises StoreError.
        """
        with (
            self._signals.watched(pass_on=True),
            self._heartbeat.alive(abandon=lambda _: None),
            self._isolation(),
        ):
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
        kind = self._handlers.get(job.kind)
        if kind is None:
            decision = outcomes.without_handler(job.kind, self._handlers.kinds())
            return self._recorder.record(job, decision)
        isolated = self._is_isolated(kind)
        with self._heartbeat.beating(job, claimed_at, isolated=isolated):
            decision = self._run_isolated(kind, job) if isolated else self._run_here(kind, job)
        return self._recorder.record(job, decision, kind.retry)

    def _run_here(self, kind: Kind, job: Job) -> Decision:
        """Run the handler in this process; every way out of it is an end of the attempt."""
        context = Context(job, job.attempts, self.name, self._attendant(job))
        try:
            result = self._signals.call(lambda: kind.function(job.payload, context))
        except BaseException as error:  # SystemExit ends an attempt, not a worker
            # For whoever writes a handler; the store and the lesson's lines keep the text alone.
            log.debug("%s: the handler raised", job.id[:8], exc_info=error)
            stop = Stop.RELEASE if self._signals.interrupted else None
            return outcomes.after_raise(error, stop=stop, cancelled=self._heartbeat.cancelled)
        return outcomes.after_return(result, context.writes, cancelled=self._heartbeat.cancelled)

    def _run_isolated(self, kind: Kind, job: Job) -> Decision:
        """Run the handler in a process of its own."""
        try:
            if self._isolated is None:
                self._isolated = Isolated(self.name)
            return self._isolated.run(kind, job, self._attendant(job), self._must_stop)
        except Exception as error:  # noqa: BLE001 - a system out of processes, or of files
            return outcomes.after_raise(error, stop=None, cancelled=False)

    def _attendant(self, job: Job) -> Attendant:
        return Attendant(self._store, self._signals, self._heartbeat, job)

    def _must_stop(self) -> Stop | None:
        """Say whether an isolated handler has to end before its work does, and why."""
        if self._heartbeat.lost:
            return Stop.LOST
        if time.monotonic() >= self._signals.deadline:
            return Stop.RELEASE
        return Stop.CANCEL if self._heartbeat.cancelled else None

    def _is_isolated(self, kind: Kind) -> bool:
        return kind.isolated or self._isolate is True or kind.name in (self._isolate or ())

    @contextmanager
    def _isolation(self) -> Iterator[None]:
        """See to it that no process of a handler outlives this."""
        try:
            yield
        finally:
            if self._isolated is not None:
                self._isolated.close()
                self._isolated = None

    def _abandon(self, job: Job) -> None:
        """Give the job back although its handler goes on, and end the handler with the process."""
        try:
            self._recorder.record(job, Release())
            self._tell("stopped cleanly")
        finally:
            os._exit(0)

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


def _interval(lease_seconds: float, heartbeat_seconds: float | None) -> float:
    """Return the seconds between two heartbeats. Raises InvalidInput."""
    if heartbeat_seconds is None:
        return lease_seconds / BEATS_PER_LEASE
    check_seconds(heartbeat_seconds, "heartbeat_seconds", least=0.001)
    if not outlasts_beats(lease_seconds, heartbeat_seconds):
        raise InvalidInput(
            f"heartbeat_seconds is {heartbeat_seconds:g}, with a lease of {lease_seconds:g} s: use "
            "at most a third of the lease, which then outlasts two heartbeats that fail"
        )
    return heartbeat_seconds


def _chosen(isolate: bool | Collection[str]) -> bool | frozenset[str]:
    """Return which kinds are to be isolated. Raises InvalidInput."""
    if isinstance(isolate, bool):
        return isolate
    if isinstance(isolate, str) or not isinstance(isolate, Collection):
        raise InvalidInput(f"isolate is {isolate!r}: use True, False or a list of kinds")
    return frozenset(check_name(kind, "isolate") for kind in isolate)
