"""The child of a worker, as it runs: handlers in the main thread, the line in another one."""

import itertools
import math
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Literal, NoReturn

from jobq import outcomes, strictjson
from jobq.context import Context, Write
from jobq.errors import InvalidInput, NotStrictJson
from jobq.isolate import family
from jobq.isolate.line import ChildLine
from jobq.isolate.messages import Answer, Begun, Cut, Question, Report, Run
from jobq.job import Progress
from jobq.outcomes import Decision, Fail, Finish, Stop
from jobq.signals import STOP_SIGNALS, Signals

AGAIN_SECONDS = 0.05  # between two interruptions of a handler that does not end
NO_LIMIT = 2**40  # bytes of a result: the store has its own


class _Remote:
    """What the worker at the other end of the line does for a handler: an Attending."""

    def __init__(self, server: "_Server", run: int) -> None:
        self._server = server
        self._run = run

    def cancelled(self) -> bool:
        """Whether somebody asked for the job to be cancelled."""
        return self._server.stop is Stop.CANCEL

    def report(self, progress: Progress) -> None:
        """Tell the worker, so that it is known also if this process dies at once."""
        self._server.line.say(Report(self._run, progress))

    def is_done(self, key: str) -> bool:
        """Ask the worker. Raises what that raises."""
        return self._server.ask(self._run, "is_done", key)

    def mark_done(self, key: str) -> None:
        """Have the worker mark the key. Raises what that raises: LeaseLost, for one."""
        self._server.ask(self._run, "mark_done", key)


class _IsolatedContext(Context):
    """A context without the one thing that needs the worker's own transaction."""

    def write_with_finish(self, write: Write) -> None:
        """Refuse."""
        del write
        raise InvalidInput(
            f"kind {self.job.kind!r} runs in a process of its own, where nothing can be written "
            "in the transaction that records its result: run this kind without isolation"
        )


class _Server:
    """Runs one handler after another, until the worker is gone."""

    def __init__(self, line: ChildLine, signals: Signals) -> None:
        self.line = line
        self._signals = signals
        self._runs: queue.SimpleQueue[Run] = queue.SimpleQueue()
        self._questions = itertools.count(1)
        self._asking: dict[int, queue.SimpleQueue[bool | Exception]] = {}
        self.stop: Stop | None = None  # why the handler has to end, once it has to

    def serve(self) -> NoReturn:
        """Run handlers, in this thread."""
        try:
            while True:
                self._run_next()
        except OSError:  # the worker is gone, or the handler closed the line to it
            family.kill_descendants(os.getpid())
            os._exit(1)

    def listen(self) -> None:
        """Take what the worker says. When it is gone, end all that handlers have started."""
        try:
            while True:
                self._take(self.line.hear(AGAIN_SECONDS if self.stop else None))
        finally:
            family.kill(os.getpid())

    def ask(self, run: int, what: Literal["is_done", "mark_done"], key: str) -> bool:
        """Return the worker's answer, or raise it."""
        number = next(self._questions)
        answers = self._asking[number] = queue.SimpleQueue()
        try:
            self.line.say(Question(run, number, what, key))
            answer = answers.get()
        finally:
            del self._asking[number]  # also when interrupted: nobody waits for the answer then
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _take(self, message: Any) -> None:
        match message:
            case Run():
                self._runs.put(message)
            case Answer(number, value):
                with suppress(KeyError):
                    self._asking[number].put(value)
            case Cut(stop):
                self.stop = stop
        if self.stop:
            self._signals.interrupt()

    def _run_next(self) -> None:
        process = os.getpid()
        decision = self._carry_out(self._runs.get())
        if os.getpid() != process:  # the handler forked, and this is the fork
            os._exit(0)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the handler may have closed or replaced it
                stream.flush()
        self.line.say(decision)

    def _carry_out(self, run: Run) -> Decision:
        """Run the handler; every way out of it is an end of the attempt."""
        job = run.job
        try:
            handler = pickle.loads(run.handler)  # noqa: S301 - what the worker itself would run
        except BaseException as error:  # noqa: BLE001 - whatever a user's module raises
            return Fail(
                f"the handler of kind {job.kind!r} is not found in a process of its own, "
                f"which has to import it: {outcomes.error_text(error)}",
                final=True,
            )
        attending = _Remote(self, run.number)
        context = _IsolatedContext(job, job.attempts, run.worker, attending)
        self.line.say(Begun())
        try:
            result = self._signals.call(lambda: handler(job.payload, context))
        except BaseException as error:  # noqa: BLE001 - SystemExit ends an attempt, not the child
            stop = self.stop if self._signals.interrupted else None
            return outcomes.after_raise(error, stop=stop, cancelled=attending.cancelled())
        decision = outcomes.after_return(result, (), cancelled=attending.cancelled())
        return _checked(decision)


def _checked(decision: Decision) -> Decision:
    """Return a decision that can be sent, with a result that is JSON and nothing else."""
    if isinstance(decision, Finish):
        try:
            strictjson.encode(decision.result, "result", max_bytes=NO_LIMIT)
        except NotStrictJson as error:
            return Fail(str(error))
    return decision


def _leave_to_worker(_number: int, _: FrameType | None) -> None:
    """Do nothing: a service manager sends SIGTERM to all, and the worker says what it means."""


def serve(descriptor: int) -> NoReturn:
    """Serve the worker at the other end of a socket, until it is gone."""
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - the standard library's way
    line = ChildLine(socket.socket(fileno=descriptor))
    os.register_at_fork(after_in_child=line.close)  # else the worker would not hear us die
    signals = Signals(math.inf)
    with signals.watched():
        for number in STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _leave_to_worker)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # what the worker held back until now
        server = _Server(line, signals)
        threading.Thread(target=server.listen, daemon=True, name="jobq-listener").start()
        server.serve()
