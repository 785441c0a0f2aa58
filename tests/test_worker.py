"""jobq.worker: claims, runs and records, and ends only in good order."""

import ctypes
import itertools
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from jobq import (
    Cancelled,
    EventName,
    InvalidInput,
    Job,
    Outcome,
    Permanent,
    Progress,
    Retry,
    RetryPolicy,
    Status,
    Store,
)
from jobq.context import Context
from jobq.handlers import Handler, Registry
from jobq.lab.waiting import wait_until
from jobq.outcomes import error_text
from jobq.worker import Worker, print_line

if TYPE_CHECKING:
    from tests.conftest import Held, Program

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


def crash(_payload: dict[str, Any], _context: Context) -> None:
    """Be a handler that takes its process with it."""
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep_for_long(_payload: dict[str, Any], context: Context) -> None:
    """Be a handler that does not ask whether it is to be cancelled."""
    context.progress(1)
    time.sleep(60)


def count(_payload: dict[str, Any], context: Context) -> None:
    """Be a handler that tells how far it is."""
    for n in range(1, 1_000):
        context.progress(n, 1_000)
        time.sleep(0.05)


def hold(_payload: dict[str, Any], _context: Context) -> None:
    """Be a handler that keeps Python's lock to itself."""
    print("working", flush=True)  # noqa: T201 - the test hears it
    ctypes.PyDLL(None).sleep(60)


# A worker as a process. `work` sleeps; `obey` ends when it is told to; `stubborn` swallows what
# should end it; `bitter` turns that into an error of its own; `stuck` stays in C, where no
# exception reaches it.
WORKER = """
import sqlite3, sys, threading, time
from jobq.handlers import builtin
from jobq.store import open_store
from jobq.worker import Worker

@builtin.handler("work")
def work(payload, context):
    print("working", flush=True)
    time.sleep(payload["seconds"])
    return {"by": context.worker}

@builtin.handler("obey")
def obey(payload, context):
    print("working", flush=True)
    sys.stdin.readline()

@builtin.handler("stubborn")
def stubborn(payload, context):
    print("working", flush=True)
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

@builtin.handler("bitter")
def bitter(payload, context):
    try:
        work(payload, context)
    except BaseException as error:
        raise RuntimeError("somebody stopped me") from error

@builtin.handler("stuck")
def stuck(payload, context):
    threading.Timer(0.2, lambda: print("working", flush=True)).start()  # once C has begun
    sqlite3.connect(":memory:").execute(
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
    )

@builtin.handler("effects")
def effects(payload, context):
    with context.once("effect-1"):
        pass
    print("effect 1", flush=True)
    sys.stdin.readline()
    with context.once("effect-2"):
        print("effect 2", flush=True)

url, lease, grace = sys.argv[1:]
Worker(
    open_store(url), lease_seconds=float(lease), grace_seconds=float(grace), poll_seconds=3600
).run()
"""
# The same with handlers that another process can import.
WORKER_OF_CHILDREN = WORKER.replace(
    "url, lease",
    """
from tests import test_worker

builtin.register("count", test_worker.count)
builtin.register("count_isolated", test_worker.count, isolate=True)
builtin.register("hold", test_worker.hold, isolate=True)

url, lease""",
)
HOUR = "3600"


def raising(error: BaseException) -> Handler:
    """Return a handler that raises that error."""

    def handler(_payload: dict[str, Any], _: Context) -> None:
        raise error

    return handler


def worker_of(store: Store, handler: Handler, **options: Any) -> tuple[Worker, list[str]]:
    """Return a worker that handles the kind `any`, and the lines that it will say."""
    registry = Registry()
    registry.register("any", handler)
    lines: list[str] = []
    chosen: dict[str, Any] = {"handlers": registry, "name": "worker-1", "say": lines.append}
    return Worker(store, **chosen | options), lines


def outcomes(store: Store, job: Job) -> list[Outcome | None]:
    """Return how the attempts at a job ended."""
    return [attempt.outcome for attempt in store.attempts(job.id)]


def now(store: Store, job: Job) -> Job:
    """Return the job as it is now."""
    found = store.get(job.id)
    assert found is not None
    return found


@contextmanager
def running(worker: Worker) -> Iterator[None]:
    """Run a worker in a thread, and stop it at the end."""
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(60)
        assert not thread.is_alive(), "the worker did not stop"


def wait_for_work(program: "Program") -> None:
    """Return once a handler of the program is at work."""
    while program.hear() != "working":
        pass


@pytest.fixture
def impatient(url: str, opened: Callable[..., Store]) -> Store:
    """Return another view of `live`, which is soon in trouble."""
    return opened(url, busy_seconds=0.05)


# What it says and records


def test_the_lines_are_the_lessons(live: Store) -> None:
    """Each line names the worker, and the job by the first eight digits of its id."""
    job = live.enqueue("any", {}).job

    def fail_once(_: dict[str, Any], context: Context) -> str:
        if context.attempt == 1:
            raise RuntimeError("upstream timeout (simulated, attempt 1)")
        return context.worker

    worker, lines = worker_of(live, fail_once)
    worker.run(until_idle=True)
    assert lines == [
        "worker-1 started",
        f"worker-1 took {job.id[:8]} attempt 1",
        f"worker-1 failed {job.id[:8]}: upstream timeout (simulated, attempt 1)",
        f"worker-1 took {job.id[:8]} attempt 2",
        f"worker-1 finished {job.id[:8]}",
        "worker-1 stopped cleanly",
    ]
    assert now(live, job).result == "worker-1"


def test_a_line_stays_one_line(live: Store) -> None:
    """An error keeps its line breaks in the store, and shows them as escapes in the log."""
    job = live.enqueue("any", {}, max_attempts=1).job
    worker, lines = worker_of(live, raising(RuntimeError("two\nlines \x1b[2J")))
    worker.run_one()
    assert lines[1] == rf"worker-1 failed {job.id[:8]}: two\nlines \x1b[2J"
    assert now(live, job).error == "two\nlines \x1b[2J"


def test_a_line_is_printed_at_once_on_any_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Characters that cannot be encoded are written as escapes."""
    print_line("größer \ud83d")
    assert capsys.readouterr().out == "größer \\ud83d\n"


def test_a_log_that_nobody_can_write_to_does_not_stop_the_work(live: Store) -> None:
    """A reader that has gone costs the lines and nothing else."""

    def say(_: str) -> None:
        raise BrokenPipeError

    job = live.enqueue("any", {}).job
    worker, _ = worker_of(live, lambda *_: "done", say=say)
    worker.run(until_idle=True)
    assert now(live, job).status is Status.DONE


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        RecursionError("too deep"),
        BaseExceptionGroup("several", [ValueError("a"), KeyboardInterrupt()]),
    ],
    ids=repr,
)
def test_every_way_out_of_a_handler_ends_the_attempt(live: Store, error: BaseException) -> None:
    """What a handler raises never ends the worker, and never leaves the job leased."""
    job = live.enqueue("any", {}, max_attempts=1).job
    worker, lines = worker_of(live, raising(error))
    after = worker.run_one()
    assert after == now(live, job)
    assert after.status is Status.FAILED
    assert after.error == error_text(error)
    assert lines[-1] == f"worker-1 failed {job.id[:8]}: {after.error}"


def test_a_failed_attempt_is_tried_again(live: Store) -> None:
    """The job is queued after the wait of the store's policy; the error is kept."""
    job = live.enqueue("any", {}).job
    worker, _ = worker_of(live, raising(SystemExit("enough")))
    worker.run_one()
    after = now(live, job)
    assert (after.status, after.attempts, after.error) == ("queued", 1, "SystemExit: enough")
    assert after.run_after > job.created_at


def test_a_payload_that_breaks_a_rule_fails_for_good(live: Store) -> None:
    """Another attempt would get the same payload."""
    job = live.enqueue("nap", {"seconds": "long"}).job
    Worker(live).run_one()
    after = now(live, job)
    assert (after.status, after.attempts) == ("failed", 1)
    assert "seconds: Input should be a valid number" in str(after.error)


def test_an_unknown_kind_fails_for_good_and_names_the_known_ones(live: Store) -> None:
    """The error says what this worker could have run."""
    job = live.enqueue("mail", {}).job
    worker, _ = worker_of(live, lambda *_: None)
    worker.run_one()
    after = now(live, job)
    assert (after.status, after.attempts) == ("failed", 1)
    assert after.error == "no handler for kind 'mail'; this worker knows: any"


@pytest.mark.parametrize(
    "result", [float("nan"), "\x00", "\ud83d", {1: 2}, (1, 2), {"a": object()}]
)
def test_a_result_that_json_cannot_carry_fails_the_attempt(live: Store, result: object) -> None:
    """The caller reads the reason instead of waiting for a result that will never come."""
    job = live.enqueue("any", {}, max_attempts=1).job
    worker, _ = worker_of(live, lambda *_: result)
    worker.run_one()
    after = now(live, job)
    assert after.status is Status.FAILED
    assert str(after.error).startswith(("result", "a key of result"))


def test_a_handler_is_told_its_job_attempt_and_worker(live: Store) -> None:
    """The payload comes first, the context second."""
    job = live.enqueue("any", {"year": 2024}).job
    told: list[tuple[dict[str, Any], Context]] = []
    worker, _ = worker_of(live, lambda payload, context: told.append((payload, context)))
    worker.run_one()
    [(payload, context)] = told
    assert payload == {"year": 2024}
    assert (context.job.id, context.attempt, context.worker) == (job.id, 1, "worker-1")


# Its name and its numbers


def test_a_worker_is_named_for_its_process_and_each_start_anew(live: Store) -> None:
    """The second worker of a process has a number too."""
    names = [Worker(live).name for _ in range(2)]
    assert len(set(names)) == 2
    assert all(re.fullmatch(rf"worker-{os.getpid()}(-\d+)?", name) for name in names)


def test_a_name_that_a_lease_still_carries_is_not_used_again(
    live: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process can have the number of one that died: whose job runs must be plain."""
    live.enqueue("any", {})
    live.claim(f"worker-{os.getpid()}")
    monkeypatch.setattr("jobq.worker._starts", itertools.count(1))  # as in a new process
    assert Worker(live).name == f"worker-{os.getpid()}-2"


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "30", True, None])
@pytest.mark.parametrize("name", ["lease_seconds", "poll_seconds"])
def test_a_length_of_time_is_a_positive_number(live: Store, name: str, value: Any) -> None:
    """Nonsense is refused before anything is started."""
    with pytest.raises(InvalidInput, match=name):
        Worker(live, **{name: value})


def test_the_grace_time_may_be_nothing_but_not_less(live: Store) -> None:
    """Without grace the first signal interrupts."""
    Worker(live, grace_seconds=0)
    with pytest.raises(InvalidInput, match="grace_seconds is -1"):
        Worker(live, grace_seconds=-1)


def test_a_name_is_a_name(live: Store) -> None:
    """It must be text that every store can keep."""
    with pytest.raises(InvalidInput, match="name"):
        Worker(live, name=" ")


@pytest.mark.parametrize("value", [0, -1, float("nan"), "1", True, 0.11, 30])
def test_a_lease_lasts_at_least_three_heartbeats(live: Store, value: Any) -> None:
    """Then two in a row may fail, and it is kept."""
    Worker(live, lease_seconds=0.3, heartbeat_seconds=0.1)
    with pytest.raises(InvalidInput, match="heartbeat_seconds is"):
        Worker(live, lease_seconds=0.3, heartbeat_seconds=value)


@pytest.mark.parametrize("value", ["nap", None, 1, [""], [7]])
def test_kinds_to_isolate_are_named_in_a_list(live: Store, value: Any) -> None:
    """Or all of them are, by True."""
    with pytest.raises(InvalidInput, match="isolate is"):
        Worker(live, isolate=value)


# Until when it runs


def test_run_one_says_whether_there_was_a_job(live: Store) -> None:
    """Without one it returns None at once."""
    worker, lines = worker_of(live, lambda *_: None)
    assert worker.run_one() is None
    assert lines == []


def test_until_idle_waits_for_what_others_run_and_what_is_to_be_tried_again(
    live: Store, opened: Callable[..., Store], url: str
) -> None:
    """Neither a job in another worker's hands nor one that waits for its next attempt is done."""
    may_end = threading.Event()
    slow, _ = worker_of(opened(url), lambda *_: may_end.wait(60), name="worker-2")
    job = live.enqueue("any", {}).job
    with running(slow):
        wait_until(lambda: now(live, job).status is Status.RUNNING, "the other worker's claim")
        later = live.enqueue("any", {}, run_after=live.now() + 0.5).job
        worker, _ = worker_of(live, lambda *_: may_end.set(), poll_seconds=60)
        worker.run(until_idle=True)
    assert [now(live, each).status for each in (job, later)] == ["done", "done"]


def test_stop_lets_the_current_job_end(live: Store) -> None:
    """It may be called by any thread, and `run` returns when the job is recorded."""
    begun, may_end = threading.Event(), threading.Event()

    def handler(*_: object) -> None:
        begun.set()
        may_end.wait(60)

    worker, lines = worker_of(live, handler)
    jobs = [live.enqueue("any", {}).job for _ in range(2)]
    with running(worker):
        begun.wait(60)
        worker.stop()
        may_end.set()
    assert [now(live, job).status for job in jobs] == ["done", "queued"]
    assert lines[-1] == "worker-1 stopped cleanly"


def test_stop_ends_the_wait_for_a_job(live: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a worker may wait, it returns at once."""
    waiting = threading.Event()
    wait = live.wait

    def tell_and_wait(*arguments: Any) -> None:
        waiting.set()
        wait(*arguments)

    monkeypatch.setattr(live, "wait", tell_and_wait)
    worker, lines = worker_of(live, lambda *_: None, poll_seconds=3_600)
    with running(worker):
        assert waiting.wait(60)
    assert lines == ["worker-1 started", "worker-1 stopped cleanly"]


# The lease


def test_a_three_second_job_with_a_one_second_lease_runs_once(
    live: Store, opened: Callable[..., Store], url: str
) -> None:
    """Heartbeats keep it from another worker that is looking all the while."""
    job = live.enqueue("nap", {"seconds": 3}).job
    other = Worker(opened(url), lease_seconds=1.0, say=lambda _: None)
    worker = Worker(live, lease_seconds=1.0, say=lambda _: None)
    with running(other):
        worker.run(until_idle=True)
    assert outcomes(live, job) == [Outcome.DONE]
    assert sum(e.name is EventName.HEARTBEAT for e in live.events(job.id)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("isolate", [False, True], ids=["thread", "isolated"])
def test_a_ten_second_job_with_a_three_second_lease_runs_once(
    live: Store, opened: Callable[..., Store], url: str, *, isolate: bool
) -> None:
    """The lesson's second exercise: another worker is idle beside it all the while."""
    job = live.enqueue("sales_report", {"year": 2024, "slow_seconds": 10}).job
    other = Worker(opened(url), lease_seconds=3.0, isolate=isolate, say=lambda _: None)
    worker = Worker(live, lease_seconds=3.0, isolate=isolate, say=lambda _: None)
    with running(other):
        worker.run(until_idle=True)
    assert outcomes(live, job) == [Outcome.DONE]
    assert now(live, job).status is Status.DONE


def test_an_isolated_job_longer_than_its_lease_runs_once(
    live: Store, opened: Callable[..., Store], url: str
) -> None:
    """The worker beats while its child works."""
    job = live.enqueue("nap", {"seconds": 2}).job
    other = Worker(opened(url), lease_seconds=0.9, say=lambda _: None)
    worker = Worker(live, lease_seconds=0.9, isolate=["nap"], say=lambda _: None)
    with running(other):
        worker.run(until_idle=True)
    assert outcomes(live, job) == [Outcome.DONE]


def test_a_handler_that_never_pauses_does_not_starve_the_heartbeat(
    live: Store, opened: Callable[..., Store], url: str
) -> None:
    """It computes for several leases, in Python and without a break, and runs once."""

    def compute(*_: object) -> None:
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            pass

    job = live.enqueue("any", {}).job
    other, _ = worker_of(opened(url), compute, lease_seconds=1.0, name="worker-2")
    worker, _ = worker_of(live, compute, lease_seconds=1.0)
    with running(other):
        worker.run(until_idle=True)
    assert outcomes(live, job) == [Outcome.DONE]


def test_what_a_worker_does_with_a_lost_job_is_not_recorded(live: Store) -> None:
    """It says that the job is lost and why, and goes on with the next one."""
    job = live.enqueue("any", {}).job

    def lose(_: dict[str, Any], context: Context) -> str:
        if context.job.token == 1:
            live.release(context.job)
        return "too late" if context.job.token == 1 else "in time"

    worker, lines = worker_of(live, lose)
    worker.run(until_idle=True)
    assert lines[2] == f"worker-1 lost {job.id[:8]}: the job is queued"
    assert outcomes(live, job) == [Outcome.RELEASED, Outcome.DONE]
    assert now(live, job).result == "in time"


@posix
def test_a_worker_that_was_stopped_in_its_tracks_changes_nothing_when_it_goes_on(
    live: Store, url: str, start: Callable[..., "Program"]
) -> None:
    """SIGSTOP, the lease runs out, another worker does the job, SIGCONT: the first one is late."""
    job = live.enqueue("work", {"seconds": 60}).job
    program = start(WORKER, url, "1.5", HOUR)
    late = f"worker-{program.pid}"
    assert [program.hear() for _ in range(3)] == [
        f"{late} started",
        f"{late} took {job.id[:8]} attempt 1",
        "working",
    ]
    os.kill(program.pid, signal.SIGSTOP)
    stopped = psutil.Process(program.pid)
    wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, "the worker to stand still")
    registry = Registry()
    registry.register("work", lambda *_: "by the second")
    Worker(live, handlers=registry, say=lambda _: None).run(until_idle=True)
    os.kill(program.pid, signal.SIGCONT)
    assert program.hear() == f"{late} lost {job.id[:8]}: the job is done"
    os.kill(program.pid, signal.SIGTERM)
    assert program.rest() == [f"{late} stopped cleanly"]
    assert outcomes(live, job) == [Outcome.CRASHED, Outcome.DONE]
    assert sum(e.name is EventName.DONE for e in live.events(job.id)) == 1
    assert now(live, job).result == "by the second"


@posix
def test_a_worker_that_was_stopped_in_its_tracks_has_no_further_effect(
    live: Store, url: str, start: Callable[..., "Program"]
) -> None:
    """The next `once` after SIGCONT finds the job lost, and the effect is had once in all."""
    job = live.enqueue("effects", {}).job
    program = start(WORKER, url, "1.5", HOUR)
    while program.hear() != "effect 1":
        pass
    os.kill(program.pid, signal.SIGSTOP)
    stopped = psutil.Process(program.pid)
    wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, "the worker to stand still")
    mine: list[int] = []

    def effects(_: dict[str, Any], context: Context) -> None:
        for n in (1, 2):
            with context.once(f"effect-{n}") as to_do:
                if to_do:
                    mine.append(n)

    registry = Registry()
    registry.register("effects", effects)
    Worker(live, handlers=registry, say=lambda _: None).run(until_idle=True)
    program.tell()  # the handler goes on
    os.kill(program.pid, signal.SIGCONT)
    assert program.hear() == f"worker-{program.pid} lost {job.id[:8]}: the job is done"
    assert mine == [2]


@posix
def test_a_worker_that_stood_still_keeps_the_job_that_nobody_took(
    live: Store, url: str, start: Callable[..., "Program"]
) -> None:
    """Its next heartbeat finds the job untouched (G7)."""
    job = live.enqueue("obey", {}).job
    program = start(WORKER, url, "0.5", HOUR)
    wait_for_work(program)
    os.kill(program.pid, signal.SIGSTOP)
    wait_until(lambda: live.now() > (now(live, job).locked_until or 0), "the lease to run out")
    beats = len(live.events(job.id))
    os.kill(program.pid, signal.SIGCONT)
    wait_until(lambda: len(live.events(job.id)) > beats, "a heartbeat")
    program.tell("end")
    assert program.hear() == f"worker-{program.pid} finished {job.id[:8]}"
    assert outcomes(live, job) == [Outcome.DONE]


# What a handler asks for, and what is asked of it


def test_a_running_nap_can_be_cancelled(
    live: Store, opened: Callable[..., Store], url: str
) -> None:
    """The next heartbeat's reply tells it; the job is cancelled, and the worker goes on."""
    jobs = [live.enqueue(kind, payload).job for kind, payload in (("nap", {"seconds": 60}),)]
    lines: list[str] = []
    worker = Worker(opened(url), lease_seconds=0.6, name="worker-1", say=lines.append)
    with running(worker):
        wait_until(lambda: now(live, jobs[0]).status is Status.RUNNING, "the nap to begin")
        live.cancel(jobs[0].id)
        wait_until(lambda: now(live, jobs[0]).status.final, "the nap to end")
        jobs.append(live.enqueue("noop", {}).job)
        wait_until(lambda: now(live, jobs[1]).status.final, "the next job")
    assert [now(live, job).status for job in jobs] == ["cancelled", "done"]
    assert outcomes(live, jobs[0]) == [Outcome.CANCELLED]
    assert f"worker-1 cancelled {jobs[0].id[:8]}" in lines


def test_an_isolated_handler_that_does_not_ask_is_cancelled_all_the_same(
    live: Store, opened: Callable[..., Store], url: str
) -> None:
    """It is interrupted where it stands."""
    job = live.enqueue("any", {}).job
    registry = Registry()
    registry.register("any", sleep_for_long, isolate=True)
    worker = Worker(opened(url), handlers=registry, lease_seconds=0.6, say=lambda _: None)
    with running(worker):
        wait_until(lambda: now(live, job).progress, "the handler to begin")
        live.cancel(job.id)
        wait_until(lambda: now(live, job).status.final, "the handler to end")
    assert outcomes(live, job) == [Outcome.CANCELLED]


def test_a_job_that_fails_while_it_is_to_be_cancelled_is_not_tried_again(live: Store) -> None:
    """Nobody wants another attempt."""
    job = live.enqueue("any", {}).job

    def handler(_: dict[str, Any], context: Context) -> None:
        live.cancel(context.job.id)
        raise RuntimeError("no")

    worker, _ = worker_of(live, handler)
    worker.run_one()
    assert now(live, job).status is Status.CANCELLED
    assert outcomes(live, job) == [Outcome.FAILED]


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [
        (Retry("busy", after=50), Status.QUEUED, 50.0),
        (Retry("busy"), Status.QUEUED, 100.0),
        (RuntimeError("busy"), Status.QUEUED, 100.0),
        (Permanent("busy"), Status.FAILED, 0.0),
        (Cancelled("busy"), Status.QUEUED, 100.0),
    ],
    ids=repr,
)
def test_a_handler_says_whether_and_when_it_is_tried_again(
    live: Store, error: Exception, status: Status, wait: float
) -> None:
    """Or else its kind's policy does; each attempt counts."""
    job = live.enqueue("any", {}).job
    registry = Registry()
    registry.register("any", raising(error), retry=RetryPolicy(base=100.0))
    before = live.now()
    Worker(live, handlers=registry, say=lambda _: None).run_one()
    after = now(live, job)
    assert (after.status, after.attempts, after.error) == (status, 1, "busy")
    assert after.run_after == pytest.approx(before + wait if wait else 0.0, abs=20)


def test_writes_and_result_are_one(live: Store) -> None:
    """A handler's own rows are there exactly when the job is done."""
    with live.transaction() as tx:
        tx.execute("CREATE TABLE sold (job TEXT)")

    def handler(_: dict[str, Any], context: Context) -> int:
        context.write_with_finish(
            lambda tx: tx.execute("INSERT INTO sold VALUES (?)", (context.job.id,))
        )
        if context.attempt == 1:
            raise RuntimeError("after the write was asked for")
        return 1

    job = live.enqueue("any", {}).job
    worker, _ = worker_of(live, handler)
    worker.run(until_idle=True)
    with live.transaction() as tx:
        assert [row["job"] for row in tx.execute("SELECT job FROM sold")] == [job.id]
    assert outcomes(live, job) == [Outcome.FAILED, Outcome.DONE]


@posix
@pytest.mark.parametrize("kind", ["count", "count_isolated"])
def test_the_attempt_after_a_kill_goes_on_from_the_last_progress(
    live: Store, url: str, start: Callable[..., "Program"], kind: str
) -> None:
    """Progress is in the store while the handler runs, and outlives kill -9."""
    job = live.enqueue(kind, {}).job
    program = start(WORKER_OF_CHILDREN, url, "0.6", HOUR)
    wait_until(lambda: (now(live, job).progress or Progress(0)).done >= 3, "some progress")
    program.kill()
    last = now(live, job).progress
    assert last is not None
    seen: list[Progress | None] = []
    registry = Registry()
    registry.register(kind, lambda _, context: seen.append(context.last_progress))
    Worker(live, handlers=registry, say=lambda _: None).run(until_idle=True)
    assert seen == [last]
    assert outcomes(live, job) == [Outcome.CRASHED, Outcome.DONE]


# A process for the handler


@posix
def test_a_handler_that_crashes_its_process_costs_an_attempt(live: Store) -> None:
    """The worker records it at once, with the signal's name, and waits as after a failure."""
    job = live.enqueue("any", {}).job
    registry = Registry()
    registry.register("any", crash, isolate=True, retry=RetryPolicy(base=100.0))
    lines: list[str] = []
    worker = Worker(live, handlers=registry, name="worker-1", lease_seconds=3600, say=lines.append)
    after = worker.run_one()
    assert after is not None
    assert (after.status, after.attempts) == ("queued", 1)
    assert after.run_after > live.now() + 50
    assert outcomes(live, job) == [Outcome.CRASHED]
    assert lines[-1] == f"worker-1 crashed {job.id[:8]}: its process was killed by SIGSEGV"


@posix
def test_an_isolated_job_is_given_back_at_the_second_signal(
    live: Store, url: str, start: Callable[..., "Program"]
) -> None:
    """Also when the handler holds Python's lock; no attempt is used up, and no process is left."""
    job = live.enqueue("hold", {}).job
    program = start(WORKER_OF_CHILDREN, url, "30", HOUR)
    wait_for_work(program)
    children = psutil.Process(program.pid).children(recursive=True)
    os.kill(program.pid, signal.SIGTERM)
    os.kill(program.pid, signal.SIGINT)
    name = f"worker-{program.pid}"
    assert program.rest() == [f"{name} released {job.id[:8]}", f"{name} stopped cleanly"]
    assert outcomes(live, job) == [Outcome.RELEASED]
    assert children
    assert not any(child.is_running() for child in children)


def test_a_process_that_cannot_be_had_fails_the_attempt(
    live: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may be out of processes; the job is not lost, and the worker goes on."""

    def refuse(*_: object) -> None:
        raise BlockingIOError("no process to be had")

    monkeypatch.setattr("jobq.worker.Isolated", refuse)
    job = live.enqueue("noop", {}, max_attempts=1).job
    Worker(live, isolate=True, say=lambda _: None).run(until_idle=True)
    assert now(live, job).error == "BlockingIOError: no process to be had"


def test_a_lost_isolated_job_changes_nothing(
    live: Store, opened: Callable[..., Store], url: str
) -> None:
    """Its handler is ended, and the worker lives on."""
    job = live.enqueue("any", {}).job
    registry = Registry()
    registry.register("any", sleep_for_long, isolate=True)
    lines: list[str] = []
    worker = Worker(opened(url), handlers=registry, lease_seconds=0.6, say=lines.append)
    with running(worker):
        wait_until(lambda: now(live, job).progress, "the handler to begin")
        with live.transaction() as tx:
            tx.execute("UPDATE jobs SET token = token + 1")
        wait_until(lambda: any("lost" in line for line in lines), "the worker to learn of it")
        worker.stop()
    assert lines[-1].endswith("stopped cleanly")


# Trouble with the store


def test_a_look_for_work_outlives_trouble_with_the_store(
    live: Store, impatient: Store, held: "Held"
) -> None:
    """The worker says it once, tries again, and takes the job when the store can be used."""
    job = live.enqueue("any", {}).job
    worker, lines = worker_of(impatient, lambda *_: None)
    with running(worker):
        with held(live):
            wait_until(lambda: worker._recorder.pause > 0.2, "the third try to fail")
        wait_until(lambda: now(live, job).status is Status.DONE, "the job to be done")
    trouble = [line for line in lines if "cannot use the store" in line]
    assert len(trouble) == 1
    assert trouble[0].endswith("; trying again")


def test_a_finish_is_tried_until_it_is_recorded(
    live: Store, impatient: Store, held: "Held"
) -> None:
    """The work was done: a store in trouble for a moment does not make it run again."""
    job = live.enqueue("any", {}).job
    begun, may_end = threading.Event(), threading.Event()

    def handler(*_: object) -> str:
        begun.set()
        may_end.wait(60)
        return "kept"

    worker, lines = worker_of(impatient, handler)
    with running(worker):
        begun.wait(60)
        with held(live):
            may_end.set()
            wait_until(lambda: worker._recorder.pause > 0.2, "the third try to fail")
        wait_until(lambda: now(live, job).status is Status.DONE, "the finish")
    assert outcomes(live, job) == [Outcome.DONE]
    assert now(live, job).result == "kept"
    assert sum("cannot use the store" in line for line in lines) == 1


def test_a_finish_is_given_up_when_the_lease_has_run_out(
    live: Store, impatient: Store, held: "Held"
) -> None:
    """Then the job is anybody's; the worker says so and lives on."""
    job = live.enqueue("any", {}).job
    begun, may_end = threading.Event(), threading.Event()

    def handler(*_: object) -> str:
        begun.set()
        may_end.wait(60)
        return "at last"

    worker, lines = worker_of(impatient, handler, lease_seconds=0.3)
    with running(worker):
        begun.wait(60)
        with held(live):
            may_end.set()
            wait_until(lambda: any("lost" in line for line in lines), "the worker to give up")
        wait_until(lambda: now(live, job).status is Status.DONE, "the next attempt")
    assert outcomes(live, job) == [Outcome.CRASHED, Outcome.DONE]
    assert f"worker-1 lost {job.id[:8]}: its lease ran out, and still" in "\n".join(lines)


def test_whoever_comes_first_makes_the_schema(
    url: str, start: Callable[..., "Program"], opened: Callable[..., Store]
) -> None:
    """Two workers that start together on nothing both work."""
    together = WORKER.replace("url, lease", "print(input(), flush=True)\nurl, lease")
    programs = [start(together, url, "30", HOUR) for _ in range(2)]
    for program in programs:
        program.tell("ready")
    for program in programs:
        assert program.hear() == "ready"
        assert program.hear() == f"worker-{program.pid} started"
    store = opened(url)
    jobs = [store.enqueue("noop", {}).job for _ in range(20)]
    wait_until(lambda: all(now(store, job).status.final for job in jobs), "all jobs to end")
    assert [outcomes(store, job) for job in jobs] == [[Outcome.DONE]] * 20


# Signals


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_the_current_job_end(
    live: Store, url: str, start: Callable[..., "Program"], number: signal.Signals
) -> None:
    """The worker finishes it, takes no other, says so and exits with 0."""
    jobs = [live.enqueue("obey", {}).job for _ in range(2)]
    program = start(WORKER, url, "30", HOUR)
    wait_for_work(program)
    os.kill(program.pid, number)
    program.tell("end")
    name = f"worker-{program.pid}"
    assert program.rest() == [f"{name} finished {jobs[0].id[:8]}", f"{name} stopped cleanly"]
    assert [now(live, job).status for job in jobs] == ["done", "queued"]


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_stops_at_once(
    url: str, start: Callable[..., "Program"], number: signal.Signals
) -> None:
    """The wait for a job, here of up to an hour, ends with the signal."""
    program = start(WORKER, url, "30", HOUR)
    name = f"worker-{program.pid}"
    assert program.hear() == f"{name} started"
    os.kill(program.pid, number)
    assert program.rest() == [f"{name} stopped cleanly"]


@posix
@pytest.mark.parametrize("kind", ["work", "bitter", "stubborn", "stuck"])
def test_the_second_signal_gives_the_job_back(
    live: Store, url: str, start: Callable[..., "Program"], kind: str
) -> None:
    """Whatever the handler does about it, no attempt is used up and the exit code is 0."""
    job = live.enqueue(kind, {"seconds": 60}).job
    program = start(WORKER, url, "30", HOUR)
    wait_for_work(program)
    os.kill(program.pid, signal.SIGTERM)
    os.kill(program.pid, signal.SIGINT)
    name = f"worker-{program.pid}"
    assert program.rest() == [f"{name} released {job.id[:8]}", f"{name} stopped cleanly"]
    after = now(live, job)
    assert (after.status, after.attempts, after.error) == ("queued", 0, None)
    assert outcomes(live, job) == [Outcome.RELEASED]
    assert live.claim("the next worker") is not None


@posix
@pytest.mark.parametrize("kind", ["work", "stubborn", "stuck"])
def test_the_end_of_the_grace_time_gives_the_job_back(
    live: Store, url: str, start: Callable[..., "Program"], kind: str
) -> None:
    """One signal is enough when the job takes longer than the grace."""
    job = live.enqueue(kind, {"seconds": 60}).job
    program = start(WORKER, url, "30", "0.2")
    wait_for_work(program)
    sent = time.monotonic()
    os.kill(program.pid, signal.SIGTERM)
    name = f"worker-{program.pid}"
    assert program.rest() == [f"{name} released {job.id[:8]}", f"{name} stopped cleanly"]
    assert time.monotonic() - sent >= 0.2
    assert now(live, job).attempts == 0
    assert outcomes(live, job) == [Outcome.RELEASED]


@posix
def test_run_one_holds_ctrl_c_back_until_the_job_has_ended(live: Store) -> None:
    """A program is interrupted between two jobs, not in the middle of one."""
    job = live.enqueue("any", {}).job

    def handler(*_: object) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "whole"

    worker, _ = worker_of(live, handler)
    with pytest.raises(KeyboardInterrupt):
        worker.run_one()
    assert now(live, job).result == "whole"
