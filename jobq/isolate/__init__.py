"""A process of its own for handlers: what no thread survives, a worker then does.

In the worker's own process a handler may wait, or compute in Python, for as long as it likes: the
heartbeat is a thread beside it. Isolated, it may also

- hold Python's lock in C code: the heartbeat goes on, and the lease is kept;
- crash, or be killed for want of memory: the attempt ends at once, with the signal's name;
- hang: its kind's timeout ends it;
- not ask whether its job is to be cancelled: it is interrupted;
- start programs: they end with the worker, however that ends.

One child serves job after job, so that a job costs two messages and not the start of a Python. What
a handler leaves running (threads, programs) stays until the child is replaced, which it is after
every attempt that was not left to end by itself. The child leads a process group, which is ended
as a whole. A program that leaves the group, as daemons do, is ended with it only as long as the
one that started it lives.
"""

import itertools
import math
import pickle
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from jobq.context import Attending
from jobq.errors import InvalidInput, JobqError, LeaseLost
from jobq.handlers import Kind
from jobq.isolate.child import Child
from jobq.isolate.family import TERM_SECONDS
from jobq.isolate.messages import Answer, Begun, Cut, Question, Report, Run
from jobq.job import Job
from jobq.outcomes import ConfirmCancel, Decision, Fail, Finish, Release, Stop
from jobq.signals import LAST_SECOND

LOOK_SECONDS = 0.05  # between two looks whether the handler has to end
START_SECONDS = 60.0  # for a child to start and to import the handler, before its timeout begins


class Isolated:
    """Runs handlers in a child process, made for the first job and again whenever it has ended.

    `worker` is the worker's name, as the handlers' Context gives it.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._child: Child | None = None
        self._numbers = itertools.count(1)

    def run(
        self,
        kind: Kind,
        job: Job,
        attending: Attending,
        must_stop: Callable[[], Stop | None],
    ) -> Decision:
        """Run the handler of a job and return how the attempt ended.

        `must_stop` is asked every 50 ms whether the handler has to end now, and why. It then is
        interrupted, has a second to end, half a second after SIGTERM, and is killed.
        """
        try:
            run = Run(next(self._numbers), _pickled(kind), job, self._worker)
            child = self._ready_child()
        except InvalidInput as error:
            return Fail(str(error), final=True)
        except OSError as error:
            return Fail(f"the process for its handler cannot be started: {error}")
        attempt = _Attempt(child, run, kind.timeout_seconds, attending, must_stop)
        decision = None
        try:
            decision = attempt.carry_out()
        finally:
            if decision is None or attempt.spoilt:
                self.close()
        return decision

    def close(self) -> None:
        """End the child, and everything that its handlers have started."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _ready_child(self) -> Child:
        if self._child is not None and not self._child.sound:
            self.close()
        if self._child is None:
            self._child = Child()
        return self._child


class _Attempt:
    """One attempt at a job, as the worker sees it."""

    def __init__(
        self,
        child: Child,
        run: Run,
        timeout_seconds: float | None,
        attending: Attending,
        must_stop: Callable[[], Stop | None],
    ) -> None:
        self._child = child
        self._run = run
        self._timeout = timeout_seconds
        self._attending = attending
        self._must_stop = must_stop
        self._deadline = time.monotonic() + START_SECONDS
        self._late = f"its process was not ready within {START_SECONDS:g} s"
        self.spoilt = False  # the child, by a handler that did not end by itself

    def carry_out(self) -> Decision:
        """Have the child run the handler, see that it ends, and return how it did."""
        stopped = self._has_to_end()
        if stopped is not None:
            return stopped[1]
        self._child.line.say(self._run)
        while stopped is None:
            try:
                decision = self._listen(LOOK_SECONDS)
            except EOFError:
                self.spoilt = True
                return _after_death(self._child)
            if decision is not None:
                return decision
            stopped = self._has_to_end()
        return self._end_handler(*stopped)

    def _has_to_end(self) -> tuple[Stop, Decision] | None:
        """Return why the handler has to end, and what that makes of the attempt."""
        stop = self._must_stop()
        if stop is not None:
            return stop, ConfirmCancel() if stop is Stop.CANCEL else Release()
        if time.monotonic() >= self._deadline:
            return Stop.RELEASE, Fail(self._late)
        return None

    def _end_handler(self, stop: Stop, forced: Decision) -> Decision:
        """Interrupt the handler. If it did not end by itself after all, the end is `forced`."""
        self.spoilt = True
        self._child.line.say(Cut(stop))
        with suppress(EOFError):
            decision = self._wait(LAST_SECOND)
            if decision is None:
                self._child.terminate()
                self._wait(TERM_SECONDS)  # a result would mean little: SIGTERM cuts calls short
            elif not isinstance(decision, Release):
                return decision
        return forced

    def _wait(self, seconds: float) -> Decision | None:
        """Return how the handler ended; None if it has not in that time. Raises EOFError."""
        deadline = time.monotonic() + seconds
        decision = None
        while decision is None and (left := deadline - time.monotonic()) > 0:
            decision = self._listen(min(left, LOOK_SECONDS))
        return decision

    def _listen(self, seconds: float) -> Decision | None:
        """Attend to what the child says; return how the handler ended once it did.

        Raises EOFError when the child has ended instead.
        """
        ended = self._child.ended  # so whatever it has said can be heard now
        message = self._child.line.hear(seconds)
        match message:
            case None:
                if ended:  # and a program that it started keeps the line open
                    raise EOFError
            case Begun():
                self._begin()
            case Report(run, progress) if run == self._run.number:
                with suppress(LeaseLost):  # then the handler has to end anyhow
                    self._attending.report(progress)
            case Question():
                self._child.line.say(Answer(message.number, self._answer(message)))
            case Finish() | Fail() | Release() | ConfirmCancel():
                return message
        return None

    def _begin(self) -> None:
        """Let the timeout begin: the handler does, which had to be imported first."""
        if self._timeout is None:
            self._deadline = math.inf
        else:
            self._deadline = time.monotonic() + self._timeout
            self._late = f"took longer than its timeout of {self._timeout:g} s"

    def _answer(self, question: Question) -> bool | Exception:
        """Return the answer, or the error that is to be raised in the handler."""
        job = self._run.job
        if question.run != self._run.number:
            return LeaseLost(job.id, job.token, "this asks for an attempt that has ended")
        try:
            if question.what == "is_done":
                return self._attending.is_done(question.key)
            self._attending.mark_done(question.key)
        except (JobqError, OSError) as error:
            return error
        return True


def _after_death(child: Child) -> Decision:
    """Return what the death of a child makes of an attempt."""
    if not child.ends():
        return Fail("its process closed its line to the worker, and was ended", crashed=True)
    code = child.end()
    if code is None:
        return Fail("its process has ended", crashed=True)
    if code >= 0:
        return Fail(f"its process exited with code {code}", crashed=True)
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    hint = ", as happens when memory runs out" if name == "SIGKILL" else ""
    return Fail(f"its process was killed by {name}{hint}", crashed=True)


def _pickled(kind: Kind) -> bytes:
    """Return what a child finds a handler by. Raises InvalidInput."""
    if sys.platform == "win32":
        raise InvalidInput(
            f"kind {kind.name!r} needs a process of its own, which jobq has on Linux and macOS "
            "only: run this worker there, or the kind without isolation and timeout"
        )
    mend = "define it with def at the top of a module, and import it from there"
    if getattr(kind.function, "__module__", None) == "__main__":
        raise InvalidInput(
            f"the handler of kind {kind.name!r} is part of the main program, which a process of "
            f"its own does not run: {mend}"
        )
    try:
        return pickle.dumps(kind.function)
    except Exception as error:
        raise InvalidInput(
            f"the handler of kind {kind.name!r} cannot be sent to a process of its own ({error}): "
            f"{mend}"
        ) from error
