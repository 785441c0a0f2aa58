"""jobq.isolate: what a handler does in a process of its own, and what becomes of all it started."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import jobq.isolate
from jobq import (
    Job,
    LeaseLost,
    Progress,
    Registry,
    RetryPolicy,
    Status,
    Store,
    StoreError,
    Worker,
)
from jobq.context import Alone
from jobq.handlers import Handler, Kind
from jobq.isolate import Isolated, family
from jobq.lab.waiting import wait_until
from jobq.outcomes import ConfirmCancel, Decision, Fail, Finish, Release, Stop

if TYPE_CHECKING:
    from tests.conftest import Program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX process groups")

# A module of its own, because a child imports it: this one would bring all of pytest with it.
# A handler tells progress once it is where the test wants it; programs tell their numbers so.
HANDLERS = """
import contextlib, ctypes, os, signal, socket, subprocess, sys, threading, time
from jobq.errors import InvalidInput, Permanent, Retry

def who(payload, context):
    return {"pid": os.getpid(), "group": os.getpgrp(), "payload": payload, "by": context.worker,
            "attempt": context.attempt}

def resume(payload, context):
    return [context.last_progress.done, context.job.retry.base]

def give(payload, context):
    return {"big": "x" * 5_000_000, "bad": {1, 2}, "nothing": None}[payload["what"]]

class Odd(Exception):
    def __init__(self):
        super().__init__("not to be pickled")
        self.lock = threading.Lock()

def deeper(n):
    return deeper(n + 1)

def throw(payload, context):
    what = payload["what"]
    if what == "recursion":
        deeper(0)
    raise {
        "plain": RuntimeError("went wrong"), "odd": Odd(), "retry": Retry("later", after=5.0),
        "permanent": Permanent("never"), "invalid": InvalidInput("bad"), "exit": SystemExit(3),
        "ctrl-c": KeyboardInterrupt(),
    }[what]

def shout(payload, context):
    print("x" * 10_000_000)
    os.write(2, b"loud")
    sys.stdin.close(), sys.stdout.close()

def die(payload, context):
    context.progress(7)
    if "code" in payload:
        os._exit(payload["code"])
    if payload["signal"] == signal.SIGSEGV:
        ctypes.string_at(0)
    os.kill(os.getpid(), payload["signal"])

def sleep(payload, context):
    context.progress(1)
    time.sleep(payload.get("seconds", 1000))
    return "slept"

def hold(payload, context):
    context.progress(1)
    ctypes.PyDLL(None).usleep(int(payload.get("seconds", 1000) * 1_000_000))
    return "held"

def stubborn(payload, context):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    context.progress(1)
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            context.progress(2)

def late(payload, context):
    try:
        context.progress(1)
        time.sleep(1000)
    except KeyboardInterrupt:
        if payload["then"] == "raise":
            raise RuntimeError("somebody stopped me") from None
        return payload["then"] or context.cancelled or None

def chatter(payload, context):
    while True:
        context.progress(1, message="x" * 1_000)

def once(payload, context):
    with context.once(payload["key"]) as to_do:
        return to_do

def mark(payload, context):
    with context.once("key"):
        context.progress(1)
        context.sleep(1000)

def write(payload, context):
    context.write_with_finish(print)

def start(payload, context):
    alone = {"own session": {"start_new_session": True}, "own group": {"process_group": 0}}
    for how in payload["how"]:
        program = subprocess.Popen(["sleep", "1000"], **alone.get(how, {}))
        context.progress(program.pid)
    then = payload.get("then", "return")
    context.progress(0)
    if then == "crash":
        os.abort()
    return {"return": give, "sleep": sleep, "hold": hold}[then]({"what": "nothing"}, context)

def fork(payload, context):
    child = os.fork()
    if child == 0:
        if payload["fork"] != "returns":
            time.sleep(1000)
        return "from the fork"
    context.progress(child)
    if payload["fork"] == "outlives":
        os._exit(9)
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if payload["fork"] == "is terminated":  # again: one too early is still the handler's own
            os.kill(child, signal.SIGTERM)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])

def signals(payload, context):
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.killpg(0, number)
    program = subprocess.Popen(["sleep", "1000"])
    program.terminate()
    return program.wait()

def close_all(payload, context):
    os.closerange(3, 100)

def hang_up(payload, context):
    for descriptor in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):
            socket.socket(fileno=os.dup(descriptor)).shutdown(socket.SHUT_WR)
    time.sleep(1000)

def regroup(payload, context):
    os.setpgid(0, 0)

def haunt(payload, context):
    "Leave a thread behind that speaks up during the next job, whose handler is `visited`."
    def speak():
        while not go.is_set():
            time.sleep(0.01)
        context.progress(666)
        try:
            with context.once("key"):
                pass
        except Exception as error:
            said.append(type(error).__name__)
    threading.Thread(target=speak, daemon=True).start()

go, said = threading.Event(), []

def visited(payload, context):
    go.set()
    while not said:
        time.sleep(0.01)
    return said
"""


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Return the module of HANDLERS."""
    folder = tmp_path_factory.mktemp("handlers")
    (folder / "isolated_handlers.py").write_text(HANDLERS, encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield importlib.import_module("isolated_handlers")
    sys.path.remove(str(folder))
    del sys.modules["isolated_handlers"]


@pytest.fixture
def isolated() -> Iterator[Isolated]:
    """Return what runs handlers, and end their process."""
    isolated = Isolated("worker-1")
    yield isolated
    isolated.close()


@pytest.fixture(scope="module")
def kept() -> Iterator[Isolated]:
    """Return the same for all tests that need no process of their own."""
    isolated = Isolated("worker-1")
    yield isolated
    isolated.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give handlers that do not end when they are told to less time than they have."""
    monkeypatch.setattr(jobq.isolate, "LAST_SECOND", 0.2)
    monkeypatch.setattr(jobq.isolate, "TERM_SECONDS", 0.1)


class Watched(Alone):
    """An attending that starts to want the handler's end, for one reason, once it has begun."""

    def __init__(self, stop: Stop | None = None) -> None:
        super().__init__()
        self._stop = stop

    def must_stop(self) -> Stop | None:
        """Return the reason as soon as the handler has told any progress."""
        return self._stop if self.reported else None

    def done(self) -> list[float]:
        """Return how far the handler said it was, each time."""
        return [progress.done for progress in self.reported]


def run(
    isolated: Isolated,
    function: Handler,
    attending: Watched | None = None,
    *,
    timeout: float | None = None,
    **payload: Any,
) -> Decision:
    """Run a handler on a job with that payload."""
    attending = attending or Watched()
    job = Job("a1b2", "any", payload, Status.RUNNING, 1, 3, 0, 7, 0.0, 0.0)
    kind = Kind("any", function, timeout_seconds=timeout)
    return isolated.run(kind, job, attending, attending.must_stop)


def child_of(isolated: Isolated, handlers: ModuleType) -> int:
    """Return the process that runs the handlers, which is started if there is none."""
    decision = run(isolated, handlers.who)
    assert isinstance(decision, Finish)
    return int(decision.result["pid"])


def gone(*pids: float) -> bool:
    """Whether none of these processes is there, other than as a zombie."""
    return not any(alive(int(pid)) for pid in pids)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# How the end of a handler comes to the worker


def test_a_handler_runs_in_a_process_that_serves_the_next_one_too(
    kept: Isolated, handlers: ModuleType
) -> None:
    """It is told what it would be told in the worker, and leads a group of its own."""
    pid = child_of(kept, handlers)
    assert pid != os.getpid()
    told = {"payload": {"year": 2026}, "by": "worker-1", "attempt": 1}
    assert run(kept, handlers.who, year=2026) == Finish({"pid": pid, "group": pid} | told)


def test_the_whole_job_is_at_hand(kept: Isolated, handlers: ModuleType) -> None:
    """What an earlier attempt told last, for one, and the job's own policy."""
    job = Job("a1b2", "any", {}, Status.RUNNING, 2, 3, 0, 7, 0.0, 0.0)
    job = replace(job, progress=Progress(41), retry=RetryPolicy(base=0.25))
    decision = kept.run(Kind("any", handlers.resume), job, Alone(), lambda: None)
    assert decision == Finish([41, 0.25])


@pytest.mark.parametrize(
    ("what", "decision"),
    [
        ("plain", Fail("went wrong")),
        ("odd", Fail("Odd: not to be pickled")),
        ("retry", Fail("later", after=5.0)),
        ("permanent", Fail("never", final=True)),
        ("invalid", Fail("bad", final=True)),
        ("exit", Fail("SystemExit: 3")),
        ("ctrl-c", Fail("KeyboardInterrupt")),
    ],
)
def test_what_a_handler_raises_ends_the_attempt_as_in_the_worker(
    kept: Isolated, handlers: ModuleType, what: str, decision: Decision
) -> None:
    """The exception itself need not travel; and the process lives on."""
    pid = child_of(kept, handlers)
    assert run(kept, handlers.throw, what=what) == decision
    assert child_of(kept, handlers) == pid


def test_a_handler_may_run_out_of_stack(kept: Isolated, handlers: ModuleType) -> None:
    """Python's own limit is an exception like any other."""
    decision = run(kept, handlers.throw, what="recursion")
    assert isinstance(decision, Fail)
    assert decision.error.startswith("RecursionError")


def test_a_result_is_json_of_any_size(kept: Isolated, handlers: ModuleType) -> None:
    """The limit of size is the store's to keep; what is no JSON fails the attempt."""
    assert run(kept, handlers.give, what="big") == Finish("x" * 5_000_000)
    assert run(kept, handlers.give, what="nothing") == Finish(None)
    decision = run(kept, handlers.give, what="bad")
    assert isinstance(decision, Fail)
    assert decision.error.startswith("result is a set: use dict")


def test_what_a_handler_prints_goes_where_the_workers_output_goes(
    isolated: Isolated, handlers: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """Even ten megabytes; and a handler that closes its streams hurts nobody but the next."""
    pid = child_of(isolated, handlers)
    assert run(isolated, handlers.shout) == Finish(None)
    assert child_of(isolated, handlers) == pid
    output, errors = capfd.readouterr()
    assert (output, errors) == ("x" * 10_000_000 + "\n", "loud")


@pytest.mark.parametrize("fork", ["returns", "is terminated"])
def test_a_fork_of_a_handler_is_a_program_like_any_other(
    kept: Isolated, handlers: ModuleType, fork: str
) -> None:
    """One that returns from the handler ends there, and one that is sent SIGTERM dies of it."""
    ended = Finish(0 if fork == "returns" else -signal.SIGTERM)
    assert run(kept, handlers.fork, fork=fork) == ended
    assert run(kept, handlers.give, what="nothing") == Finish(None)


def test_signals_to_the_child_are_not_for_the_handler(kept: Isolated, handlers: ModuleType) -> None:
    """A service manager sends SIGTERM to all; programs of a handler heed it as they would."""
    assert run(kept, handlers.signals) == Finish(-signal.SIGTERM)


def test_signals_to_a_child_that_is_starting_are_not_for_it(
    isolated: Isolated, handlers: ModuleType
) -> None:
    """They are held back until it can let them pass."""
    child = isolated._ready_child()
    for number in (signal.SIGTERM, signal.SIGINT):
        os.killpg(child._process.pid, number)
    assert child_of(isolated, handlers) == child._process.pid


def test_a_handler_cannot_leave_its_group(kept: Isolated, handlers: ModuleType) -> None:
    """The leader of a session has to stay."""
    decision = run(kept, handlers.regroup)
    assert isinstance(decision, Fail)
    assert decision.error.startswith("PermissionError")


# What a handler asks of the worker


def test_progress_and_marks_reach_the_worker(kept: Isolated, handlers: ModuleType) -> None:
    """`once` is answered by the worker, because the child has no store."""
    attending = Watched()
    assert run(kept, handlers.once, attending, key="mail-1") == Finish(result=True)
    assert run(kept, handlers.once, attending, key="mail-1") == Finish(result=False)
    assert attending.keys == {"mail-1"}
    attending.reported.clear()
    assert run(kept, handlers.sleep, attending, seconds=0) == Finish("slept")
    assert attending.reported == [Progress(1, None, "")]


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (LeaseLost("a1b2", 7, "somebody else has it"), Release()),
        (StoreError("the disk is full"), Fail("the disk is full")),
        (OSError(5, "a bad disk"), Fail("OSError: [Errno 5] a bad disk")),
    ],
)
def test_an_error_of_the_store_is_raised_in_the_handler(
    kept: Isolated, handlers: ModuleType, error: Exception, decision: Decision
) -> None:
    """It ends the attempt there as it would in the worker."""

    class Troubled(Watched):
        def mark_done(self, key: str) -> None:
            del key
            raise error

        def report(self, progress: Progress) -> None:
            del progress
            raise LeaseLost("a1b2", 7, "found out by the heartbeat first")

    assert run(kept, handlers.once, Troubled(), key="mail-1") == decision
    assert run(kept, handlers.sleep, Troubled(), seconds=0) == Finish("slept")


def test_no_transaction_of_the_workers_is_to_be_had(kept: Isolated, handlers: ModuleType) -> None:
    """The handler is told to run without isolation."""
    decision = run(kept, handlers.write)
    assert isinstance(decision, Fail)
    assert decision.final
    assert "run this kind without isolation" in decision.error


def test_a_thread_that_a_handler_left_behind_does_not_speak_for_the_next_job(
    kept: Isolated, handlers: ModuleType
) -> None:
    """Its progress is dropped, and it may mark nothing."""
    attending = Watched()
    assert run(kept, handlers.haunt) == Finish(None)
    assert run(kept, handlers.visited, attending) == Finish(["LeaseLost"])
    assert attending.reported == []
    assert attending.keys == set()


# Handlers that a child cannot find


def unreachable() -> list[Handler]:
    """Return handlers that have no name to import them by."""

    def local(_payload: dict[str, Any], _: object) -> None: ...

    main = Isolated.run  # anything that can be pickled, and says that it is the main program's
    of_main = type("OfMain", (), {"__module__": "__main__", "__call__": main})()
    return [local, lambda _payload, _context: None, of_main]


@pytest.mark.parametrize("handler", unreachable(), ids=["local", "lambda", "main"])
def test_a_handler_without_a_module_fails_for_good(isolated: Isolated, handler: Handler) -> None:
    """The error says where to define it; no process is started."""
    decision = run(isolated, handler)
    assert isinstance(decision, Fail)
    assert decision.final
    assert "define it with def at the top of a module" in decision.error
    assert isolated._child is None


def test_a_handler_whose_module_cannot_be_imported_again_fails_for_good(
    kept: Isolated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the import's own."""
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "fleeting.py"
    module.write_text("def work(payload, context): ...", encoding="utf-8")
    work = importlib.import_module("fleeting").work
    module.unlink()
    decision = run(kept, work)
    assert isinstance(decision, Fail)
    assert decision.final
    assert "ModuleNotFoundError: No module named 'fleeting'" in decision.error


MAIN = """
import jobq
from isolated_handlers import who
print("this is the main program", flush=True)
store = jobq.open_store("main.db")
registry = jobq.Registry()
registry.register("any", who)
job = store.enqueue("any", {}).job
jobq.Worker(store, handlers=registry, isolate=True, say=lambda line: None).run_one()
print(store.get(job.id).status, flush=True)
"""


def test_a_main_program_without_a_guard_runs_once(handlers: ModuleType, tmp_path: Path) -> None:
    """A child does not run it again, as one of multiprocessing's would."""
    assert handlers.__file__ is not None
    (tmp_path / "main.py").write_text(MAIN, encoding="utf-8")
    (tmp_path / "isolated_handlers.py").write_text(HANDLERS, encoding="utf-8")
    program = [sys.executable, "main.py"]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["this is the main program", "done"]
    assert ended.stderr == ""


# Death

NAMELESS = signal.SIGRTMIN + 1 if hasattr(signal, "SIGRTMIN") else signal.SIGKILL


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"signal": signal.SIGSEGV}, "its process was killed by SIGSEGV"),
        ({"signal": signal.SIGKILL}, "its process was killed by SIGKILL, as happens when memory"),
        (
            {"signal": signal.SIGRTMIN + 1},
            f"its process was killed by signal {signal.SIGRTMIN + 1}",
        ),
        ({"code": 0}, "its process exited with code 0"),
    ],
)
def test_a_crash_is_noticed_at_once(
    kept: Isolated, handlers: ModuleType, how: dict[str, int], error: str
) -> None:
    """The attempt is crashed, with the signal's name; its last progress is known."""
    attending = Watched()
    child_of(kept, handlers)
    began = time.monotonic()
    decision = run(kept, handlers.die, attending, **how)
    assert isinstance(decision, Fail)
    assert decision.crashed
    assert not decision.final
    assert decision.error.startswith(error)
    assert attending.done() == [7]
    assert time.monotonic() - began < 5
    assert run(kept, handlers.give, what="nothing") == Finish(None)


def test_a_program_that_holds_on_does_not_hide_a_death(
    kept: Isolated, handlers: ModuleType
) -> None:
    """The handler forked, and the fork is killed with the rest of the group."""
    attending = Watched()
    decision = run(kept, handlers.fork, attending, fork="outlives")
    assert decision == Fail("its process exited with code 9", crashed=True)
    wait_until(lambda: gone(*attending.done()), "the end of the fork")


@pytest.mark.parametrize(
    ("name", "error"),
    [("close_all", "its process exited with code 1"), ("hang_up", "its process closed its line")],
)
def test_a_child_that_cannot_be_heard_is_ended(
    kept: Isolated, handlers: ModuleType, name: str, error: str
) -> None:
    """A handler that closes every descriptor closes the line too."""
    pid = child_of(kept, handlers)
    decision = run(kept, getattr(handlers, name))
    assert isinstance(decision, Fail)
    assert decision.crashed
    assert decision.error.startswith(error)
    assert gone(pid)


def test_a_child_that_died_between_two_jobs_is_replaced(
    isolated: Isolated, handlers: ModuleType
) -> None:
    """No attempt is lost to it. The same holds for its guardian."""
    first = child_of(isolated, handlers)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: gone(first), "the death of the child")
    second = child_of(isolated, handlers)
    [guardian] = guardians(second)
    guardian.kill()
    wait_until(lambda: gone(guardian.pid), "the death of the guardian")
    assert child_of(isolated, handlers) not in {first, second}
    assert gone(first, second)


def guardians(child: int) -> list[psutil.Process]:
    """Return the guardians of a child that live."""
    ours = psutil.Process().children()
    return [p for p in ours if alive(p.pid) and p.cmdline()[-2:] == ["jobq-guardian", str(child)]]


@pytest.mark.parametrize("what", ["executable", "guardian"])
def test_a_process_that_cannot_be_started_fails_the_attempt(
    isolated: Isolated, handlers: ModuleType, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Another attempt may find the machine in a better state. No half of it stays."""
    before = psutil.Process().num_fds(), len(psutil.Process().children())
    if what == "executable":
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    else:
        monkeypatch.setattr(family, "SHELL", "/nowhere/sh")
    decision = run(isolated, handlers.who)
    assert isinstance(decision, Fail)
    assert decision.error.startswith("the process for its handler cannot be started: [Errno 2]")
    assert not decision.final
    assert (psutil.Process().num_fds(), len(psutil.Process().children())) == before


# Handlers that have to end


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("name", ["sleep", "hold", "stubborn"])
def test_a_timeout_ends_a_handler_whatever_it_does(
    kept: Isolated, handlers: ModuleType, name: str
) -> None:
    """One that waits, one that holds Python's lock in C, and one that swallows all it is sent."""
    pid = child_of(kept, handlers)
    began = time.monotonic()
    decision = run(kept, getattr(handlers, name), timeout=0.2)
    assert decision == Fail("took longer than its timeout of 0.2 s")
    assert time.monotonic() - began < 10
    assert gone(pid)


def test_a_timeout_begins_with_the_handler(
    kept: Isolated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of a process, and a module that takes long to import, do not count."""
    monkeypatch.syspath_prepend(tmp_path)
    code = "import time\ntime.sleep(0.5)\ndef work(payload, context): return 1"
    (tmp_path / "slow_to_import.py").write_text(code, encoding="utf-8")
    work = importlib.import_module("slow_to_import").work
    assert run(kept, work, timeout=0.2) == Finish(1)


@pytest.mark.usefixtures("hasty")
def test_a_child_that_does_not_take_a_job_is_replaced(
    kept: Isolated, handlers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, and the payload fits no buffer: the worker does not wait for either."""
    pid = child_of(kept, handlers)
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(jobq.isolate, "START_SECONDS", 0.2)
    decision = run(kept, handlers.who, much="x" * 2_000_000)
    assert decision == Fail("its process was not ready within 0.2 s")
    assert gone(pid)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("name", "stop", "decision"),
    [
        ("sleep", Stop.CANCEL, ConfirmCancel()),
        ("sleep", Stop.RELEASE, Release()),
        ("sleep", Stop.LOST, Release()),
        ("hold", Stop.CANCEL, ConfirmCancel()),
        ("mark", Stop.RELEASE, Release()),
    ],
)
def test_a_handler_that_has_to_stop_is_stopped(
    kept: Isolated, handlers: ModuleType, name: str, stop: Stop, decision: Decision
) -> None:
    """It is interrupted where it waits, and ended where that does not help; marks nothing."""
    pid = child_of(kept, handlers)
    attending = Watched(stop)
    assert run(kept, getattr(handlers, name), attending) == decision
    assert attending.keys == set()
    assert gone(pid)
    assert guardians(pid) == []


@pytest.mark.parametrize(
    ("stop", "then", "decision"),
    [
        (Stop.CANCEL, "raise", ConfirmCancel()),
        (Stop.CANCEL, "the result", Finish("the result")),
        (Stop.CANCEL, "", Finish(result=True)),  # it saw context.cancelled
        (Stop.RELEASE, "raise", Release()),
        (Stop.RELEASE, "", Finish(None)),
    ],
)
def test_an_interrupted_handler_has_a_second_to_end_well(
    kept: Isolated, handlers: ModuleType, stop: Stop, then: str, decision: Decision
) -> None:
    """What it returns then is its result; what it raises is not its fault."""
    assert run(kept, handlers.late, Watched(stop), then=then) == decision


def test_an_interruption_tears_no_message(kept: Isolated, handlers: ModuleType) -> None:
    """It waits until a message is sent, so that the end of the handler is understood."""
    for _ in range(2):
        began = time.monotonic()
        assert run(kept, handlers.chatter, Watched(Stop.CANCEL)) == ConfirmCancel()
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("stop", Stop)
def test_what_has_to_stop_already_is_not_begun(
    kept: Isolated, handlers: ModuleType, stop: Stop
) -> None:
    """No process is started for it, and the one there is kept."""
    pid = child_of(kept, handlers)
    attending = Watched(stop)
    attending.report(Progress(0))
    attempt = run(kept, handlers.sleep, attending)
    assert attempt == (ConfirmCancel() if stop is Stop.CANCEL else Release())
    assert child_of(kept, handlers) == pid


def test_an_exception_in_the_worker_ends_the_child(kept: Isolated, handlers: ModuleType) -> None:
    """A Ctrl-C in a program that runs jobs itself, say."""

    class Interrupting(Watched):
        def must_stop(self) -> Stop | None:
            if self.reported:
                raise KeyboardInterrupt
            return None

    pid = child_of(kept, handlers)
    with pytest.raises(KeyboardInterrupt):
        run(kept, handlers.sleep, Interrupting())
    assert gone(pid)


# What a handler started


@pytest.mark.parametrize("how", ["the group", "own group", "own session"])
def test_programs_stay_until_the_child_is_replaced(
    isolated: Isolated, handlers: ModuleType, how: str
) -> None:
    """Closing ends all of them; doing so again, or after a fork, does no harm."""
    attending = Watched()
    assert run(isolated, handlers.start, attending, how=[how]) == Finish(None)
    assert not gone(attending.done()[0])
    pid = child_of(isolated, handlers)
    isolated.close()
    wait_until(lambda: gone(pid, attending.done()[0]), "the end of the program", 5)
    isolated.close()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("then", ["hold", "crash"])
def test_programs_end_with_the_attempt_that_did_not_end_by_itself(
    kept: Isolated, handlers: ModuleType, then: str
) -> None:
    """After a timeout, and after a crash."""
    attending = Watched()
    run(kept, handlers.start, attending, timeout=0.2, how=["the group"], then=then)
    wait_until(lambda: gone(attending.done()[0]), "the end of the program", 5)


# A worker, less the store, that says the number of its child, and forks itself before.
WORKER = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import isolated_handlers
from jobq import Job, Status
from jobq.context import Alone
from jobq.handlers import Kind
from jobq.isolate import Isolated, family
job = Job("a1b2", "any", {"how": sys.argv[3:], "then": sys.argv[2]},
          Status.RUNNING, 1, 3, 0, 7, 0.0, 0.0)

class Saying(Alone):
    def report(self, progress):
        print(int(progress.done), flush=True)

def run(handler):
    return isolated.run(Kind("any", handler), job, Saying(), lambda: None)

isolated = Isolated("worker-1")
print(run(isolated_handlers.who).result["pid"], flush=True)
fork = os.fork()
if fork == 0:
    isolated.close()  # not the fork's to end
    time.sleep(1000)
print(fork, flush=True)
run(isolated_handlers.start)
print("idle", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("then", "how"),
    [
        ("hold", ["the group"]),
        ("sleep", ["the group", "own group", "own session"]),
        ("return", ["the group", "own session"]),
    ],
)
def test_a_killed_worker_leaves_no_orphan(
    start: Callable[..., "Program"], handlers: ModuleType, then: str, how: list[str]
) -> None:
    """Neither the child, whatever it is doing, nor what its handler started; with forks about."""
    program = start(WORKER, str(Path(str(handlers.__file__)).parent), then, *how)
    child, fork = int(program.hear()), int(program.hear())
    started = [int(program.hear()) for _ in how]
    assert program.hear() == "0"
    everybody = [child, *started, *(p.pid for p in psutil.Process(program.pid).children())]
    everybody.remove(fork)
    try:
        assert all(map(alive, [fork, *everybody]))
        program.kill()
        wait_until(lambda: gone(*everybody), "the end of all", 5)
        assert alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)


def test_a_guardian_ignores_what_is_sent_to_all(kept: Isolated, handlers: ModuleType) -> None:
    """A service manager sends SIGTERM, a terminal that closes SIGHUP."""
    pid = child_of(kept, handlers)
    [guardian] = guardians(pid)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        guardian.send_signal(number)
        os.kill(pid, number if number != signal.SIGHUP else 0)
    assert child_of(kept, handlers) == pid
    assert [g.pid for g in guardians(pid)] == [guardian.pid]


# In the long run


def test_no_descriptor_and_no_process_leaks(isolated: Isolated, handlers: ModuleType) -> None:
    """Neither by 200 jobs through one child nor by replacing it."""
    child = psutil.Process(child_of(isolated, handlers))
    before = psutil.Process().num_fds(), child.num_fds(), child.num_threads()
    for n in range(200):
        assert isinstance(run(isolated, handlers.once, key=f"{n}"), Finish)
    assert (psutil.Process().num_fds(), child.num_fds(), child.num_threads()) == before
    for _ in range(2):
        run(isolated, handlers.die, code=1)
    assert len(guardians(child_of(isolated, handlers))) == 1
    assert psutil.Process().num_fds() == before[0]


def hold_the_lock(store: Store, handlers: ModuleType, hold: float, lease: float) -> Job:
    """Run a job that holds Python's lock, with another worker idle beside; return it at its end."""
    registry = Registry()
    registry.register("hold", handlers.hold, isolate=True)
    job = store.enqueue("hold", {"seconds": hold}).job
    workers = [
        Worker(store, handlers=registry, name=name, lease_seconds=lease, say=lambda _: None)
        for name in ("worker-1", "worker-2")
    ]
    threads = [threading.Thread(target=w.run, kwargs={"until_idle": True}) for w in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = store.get(job.id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("hold", "lease"), [(2.0, 0.6), pytest.param(7.0, 2.0, marks=pytest.mark.slow)]
)
def test_a_handler_cannot_starve_the_heartbeat(
    live: Store, handlers: ModuleType, hold: float, lease: float
) -> None:
    """It holds Python's lock for several leases, and runs once."""
    job = hold_the_lock(live, handlers, hold, lease)
    assert (job.status, job.result) == (Status.DONE, "held")
    assert len(live.attempts(job.id)) == 1
