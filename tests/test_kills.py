"""Workers that are killed, or stopped, at random moments: nothing is lost, nothing runs too often.

The moments come from a seeded generator, so that a run that fails can be repeated as far as the
system's own timing allows.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from jobq import EventName, Job, Outcome, Status, Store
from jobq.lab.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import Program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and fork")

# Forks workers on demand: a hundred processes at the price of starting Python once. They end with
# it. A worker says nothing but that it has started.
NURSERY = """
import os, signal, sys
from jobq.handlers import builtin
from jobq.owned import die_with_parent
from jobq.store import open_store
from jobq.worker import Worker

@builtin.handler("poison")
def poison(payload, context):
    os.kill(os.getpid(), signal.SIGKILL)

def say(line):
    if line.endswith("started"):
        print(line, flush=True)

def work():
    os.close(held_open)
    die_with_parent(alive)
    signal.signal(signal.SIGTERM, lambda *_: None)  # one that comes after the end of run
    Worker(
        open_store(url), lease_seconds=float(lease), grace_seconds=float(grace), say=say
    ).run()

url, lease, grace = [*sys.argv[1:], "30"][:3]
end, held_open = os.pipe()
alive = open(end)
while line := sys.stdin.readline():
    if line == "start\\n":
        if os.fork() == 0:
            work()
            os._exit(0)
    else:
        print(os.waitstatus_to_exitcode(os.waitpid(int(line), 0)[1]), flush=True)
"""


class Nursery:
    """Worker processes, and their ends."""

    def __init__(self, program: "Program") -> None:
        self._program = program

    def start(self) -> int:
        """Return the process id of a worker that has just started."""
        self._program.tell("start")
        name, said = self._program.hear().split()
        assert said == "started"
        return int(name.split("-")[1])

    def end(self, pid: int, number: signal.Signals) -> int:
        """Send a worker a signal, and return its exit code."""
        os.kill(pid, number)
        return self.wait(pid)

    def wait(self, pid: int) -> int:
        """Return the exit code of a worker, once it has ended."""
        self._program.tell(str(pid))
        return int(self._program.hear())


def moments(seed: int) -> random.Random:
    """Return the source of the random moments."""
    return random.Random(seed)  # noqa: S311 - repeatable, and no secret


def unfinished(store: Store) -> bool:
    """Whether a job is queued or running."""
    counts = store.stats().counts
    return counts[Status.QUEUED] + counts[Status.RUNNING] > 0


def assert_done_once(store: Store, jobs: list[Job]) -> None:
    """Hold that each job ended as done, once, and that its attempts did not overlap."""
    for job in jobs:
        names = [event.name for event in store.events(job.id)]
        assert names.count(EventName.DONE) == 1
        assert names[-1] is EventName.DONE
        for one, next_one in pairwise(store.attempts(job.id)):
            assert one.ended_at is not None
            assert one.ended_at <= next_one.started_at


def assert_bounded(store: Store, poison: Job) -> None:
    """Hold that a job which kills its worker had its three attempts, and failed saying why."""
    assert [a.outcome for a in store.attempts(poison.id)] == [Outcome.CRASHED] * 3
    after = store.get(poison.id)
    assert after is not None
    assert after.status is Status.FAILED
    assert str(after.error).endswith("that was the last of 3 attempts")


def enqueue_naps(store: Store, number: int, seconds: float) -> list[Job]:
    """Return that many new jobs, which may be tried as often as need be."""
    return [
        store.enqueue("nap", {"seconds": seconds}, max_attempts=1_000).job for _ in range(number)
    ]


@pytest.mark.parametrize("kills", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_no_number_of_kills_loses_a_job_or_finishes_it_twice(
    live: Store,
    url: str,
    start: Callable[..., "Program"],
    assert_consistent: Callable[[Store], None],
    kills: int,
) -> None:
    """Three workers on a hundred jobs; again and again one of them is killed, and replaced."""
    rng = moments(kills)
    poison = live.enqueue("poison", {}, max_attempts=3).job
    jobs = enqueue_naps(live, 100, 0.03)
    nursery = Nursery(start(NURSERY, url, "0.4", patience=60 + kills))
    workers = [nursery.start() for _ in range(3)]
    for _ in range(kills):
        if not unfinished(live):
            jobs += enqueue_naps(live, 100, 0.03)
        time.sleep(rng.uniform(0, 0.06))  # the random moment
        victim = workers.pop(rng.randrange(3))
        assert nursery.end(victim, signal.SIGKILL) == -signal.SIGKILL
        workers.append(nursery.start())
    for _ in range(3):  # as many as the poison may kill
        nursery.start()
    wait_until(lambda: not unfinished(live), "every job to end", seconds=60)
    assert_consistent(live)
    assert_done_once(live, jobs)
    assert_bounded(live, poison)


def test_a_job_that_kills_its_worker_is_bounded(
    live: Store, url: str, start: Callable[..., "Program"]
) -> None:
    """It kills three workers and then fails; the fourth worker serves the job behind it."""
    poison = live.enqueue("poison", {}, max_attempts=3).job
    behind = live.enqueue("noop", {}).job
    nursery = Nursery(start(NURSERY, url, "0.3"))
    assert [nursery.wait(nursery.start()) for _ in range(3)] == [-signal.SIGKILL] * 3
    nursery.start()
    wait_until(lambda: not unfinished(live), "both jobs to end")
    assert_bounded(live, poison)
    assert_done_once(live, [behind])


@pytest.mark.parametrize("signals", [1, 2])
def test_a_stop_at_any_moment_loses_nothing_and_uses_up_nothing(
    live: Store,
    url: str,
    start: Callable[..., "Program"],
    assert_consistent: Callable[[Store], None],
    signals: int,
) -> None:
    """Fifty workers are told to stop, once or twice: in a claim, in a job, in a finish."""
    rng = moments(signals)
    jobs = enqueue_naps(live, 300, 0.001)
    nursery = Nursery(start(NURSERY, url, "60"))
    for _ in range(50):
        worker = nursery.start()
        time.sleep(rng.uniform(0, 0.02))  # the random moment
        for _ in range(signals - 1):
            os.kill(worker, signal.SIGTERM)
            time.sleep(rng.uniform(0, 0.002))
        assert nursery.end(worker, signal.SIGTERM) == 0
        assert live.stats().counts[Status.RUNNING] == 0
    nursery.start()
    wait_until(lambda: not unfinished(live), "the last worker to do the rest")
    assert_consistent(live)
    assert_done_once(live, jobs)
    for job in jobs:
        *before, last = live.attempts(job.id)
        assert all(attempt.outcome is Outcome.RELEASED for attempt in before)
        assert (last.outcome, last.number) == (Outcome.DONE, 1)


@pytest.mark.parametrize("seconds", [4.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_rolling_deploys_lose_nothing_and_use_up_nothing(
    live: Store,
    url: str,
    start: Callable[..., "Program"],
    assert_consistent: Callable[[Store], None],
    seconds: float,
) -> None:
    """Every 0.3 s one of three busy workers is told to stop, and replaced; the next may be it.

    Some jobs outlast the grace time: they are given back, and begun again elsewhere.
    """
    rng = moments(int(seconds))
    nursery = Nursery(start(NURSERY, url, "30", "0.2", patience=seconds + 120))
    workers = [nursery.start() for _ in range(3)]
    jobs: list[Job] = []
    stopped: list[int] = []
    began = time.monotonic()
    for stops in range(round(seconds / 0.3)):
        jobs += enqueue_naps(live, 15, rng.choice([0.001, 0.01, 0.03]))
        jobs += enqueue_naps(live, 1, 0.5)
        time.sleep(max(0.0, began + stops * 0.3 - time.monotonic()))
        stopped.append(workers.pop(rng.randrange(3)))
        os.kill(stopped[-1], signal.SIGTERM)
        workers.append(nursery.start())
    assert [nursery.wait(worker) for worker in stopped] == [0] * len(stopped)
    wait_until(lambda: not unfinished(live), "every job to end", seconds=60)
    assert_consistent(live)
    assert_done_once(live, jobs)
    for job in jobs:
        *before, last = live.attempts(job.id)
        assert all(attempt.outcome is Outcome.RELEASED for attempt in before)
        assert (last.outcome, last.number) == (Outcome.DONE, 1)
