"""What has gone wrong in other queues, each as it was reported, and what is right.

Reports that concern one database stand in the tests of its engine, those about a running worker in
the worker's.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from jobq import (
    IdempotencyConflict,
    Job,
    LeaseLost,
    NotStrictJson,
    Outcome,
    RetryPolicy,
    Status,
    Store,
)

if TYPE_CHECKING:
    from tests.conftest import Clock, Program

LEASE = 10.0
PROMPT = 10.0  # seconds within which something that is due has happened, on a very busy machine


def take(store: Store, worker: str = "w1", lease: float = LEASE) -> Job:
    """Claim a job that is there, or comes due."""
    deadline = time.monotonic() + PROMPT
    while time.monotonic() < deadline:
        mark = store.change_mark()
        job = store.claim(worker, lease)
        if job is not None:
            return job
        store.wait(mark, 1.0)
    pytest.fail(f"no job was due within {PROMPT} s")


def status(store: Store, job: Job) -> Status:
    """Return where the job stands."""
    found = store.get(job.id)
    assert found is not None
    return found.status


# ------------------------------------------------------------------- two workers, one job


def test_a_job_completed_between_look_and_rescue_stays_done(
    url: str,
    opened: Callable[..., Store],
    clock: "Clock",
    assert_consistent: Callable[[Store], None],
) -> None:
    """river#1302: of a late finish and a claim at the same moment one wins, and the other knows."""
    owner, rescuer = opened(url, clock=clock), opened(url, clock=clock)
    together = Barrier(2)

    def finish(job: Job) -> bool:
        together.wait()
        try:
            owner.finish(job, 1)
        except LeaseLost:
            return False
        return True

    def rescue() -> Job | None:
        together.wait()
        return rescuer.claim("w2", LEASE)

    with ThreadPoolExecutor(2) as threads:
        for _ in range(30):
            owner.enqueue("nap", {})
            job = take(owner)
            clock.move(LEASE + 1)
            finished, rescued = threads.submit(finish, job), threads.submit(rescue)
            assert finished.result() == (rescued.result() is None)
            assert status(owner, job) == ("done" if finished.result() else "running")
            clock.move(LEASE + 1)
            if not finished.result():
                owner.finish(take(owner), 1)
    assert_consistent(owner)


def test_the_earlier_of_two_live_attempts_changes_nothing(store: Store, clock: "Clock") -> None:
    """oban#532: failing while the later attempt runs, or after it, it turns nothing back."""
    store.enqueue("nap", {})
    earlier = take(store)
    clock.move(LEASE + 1)
    later = take(store, "w2")
    with pytest.raises(LeaseLost, match="w2 runs the job now"):
        store.fail(earlier, "late")
    assert store.get(later.id) == later
    done = store.finish(later, 1)
    with pytest.raises(LeaseLost, match="the job is done"):
        store.fail(earlier, "later still")
    assert store.get(later.id) == done


FINISH_WHEN_CONTINUED = """
import os, signal, sys
from jobq import LeaseLost, open_store
store = open_store(sys.argv[1])
job = store.claim("w1", lease_seconds=0.2)
print("claimed", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
try:
    store.finish(job, "stale")
except LeaseLost as lost:
    print(lost.why)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGSTOP")
def test_a_worker_that_was_stopped_cannot_finish_what_another_runs(
    start: Callable[..., "Program"], url: str, opened: Callable[..., Store]
) -> None:
    """pgqueuer: A is stopped, B takes the job, A goes on: its finish is refused, B's counts."""
    store = opened(url)
    store.enqueue("nap", {})
    stopped = start(FINISH_WHEN_CONTINUED, url)
    assert stopped.hear() == "claimed"
    os.waitpid(stopped.pid, os.WUNTRACED)  # until it has come to its stop
    job = take(store, "w2")
    stopped.process.send_signal(signal.SIGCONT)
    assert stopped.rest() == ["w2 runs the job now, with token 2"]
    assert store.finish(job, "fresh").result == "fresh"


def test_a_late_fail_does_not_queue_a_done_job_again(store: Store, clock: "Clock") -> None:
    """The lesson's store: a fail by id alone turned a done job back to queued."""
    store.enqueue("nap", {})
    late = take(store)
    clock.move(LEASE + 1)
    done = store.finish(take(store, "w2"), "result")
    with pytest.raises(LeaseLost):
        store.fail(late, "late")
    assert store.get(done.id) == done


def test_a_late_finish_does_not_overwrite_a_newer_result(store: Store, clock: "Clock") -> None:
    """The lesson's store: a finish by id alone replaced the result of the later attempt."""
    store.enqueue("nap", {})
    late = take(store)
    clock.move(LEASE + 1)
    done = store.finish(take(store, "w2"), "newer")
    with pytest.raises(LeaseLost):
        store.finish(late, "older")
    assert store.get(done.id) == done


def test_a_heartbeat_is_by_job_and_token(store: Store, clock: "Clock") -> None:
    """tau2-bench#455: a job lost and leased again to the same worker is beaten for, and only so."""
    store.enqueue("nap", {})
    lost = take(store)
    clock.move(LEASE + 1)
    again = take(store)
    with pytest.raises(LeaseLost):
        store.heartbeat(lost, LEASE)
    clock.move(1)
    assert store.heartbeat(again, LEASE).locked_until == clock.now + LEASE


def test_a_worker_that_comes_back_under_its_old_name_hides_no_orphan(
    store: Store, clock: "Clock"
) -> None:
    """oban#862: what its dead namesake ran is taken again all the same, under a new token."""
    store.enqueue("nap", {})
    orphan = take(store, "worker-7")
    clock.move(LEASE + 1)
    again = take(store, "worker-7")
    assert (again.id, again.token) == (orphan.id, orphan.token + 1)
    assert [a.outcome for a in store.attempts(orphan.id)] == [Outcome.CRASHED, None]


# --------------------------------------------------------------------- crashes and recovery

CLAIM_AND_DIE = """
import os, sys
from jobq import open_store
store = open_store(sys.argv[1])
while store.get(sys.argv[2]).status != "failed":
    if store.claim("w1", lease_seconds=0.05):
        os.kill(os.getpid(), 9)
    store.wait(store.change_mark(), 1.0)
"""
DIE_IN_THE_SWEEP = """
import os, sys
from jobq import open_store
from jobq.store import moves
store = open_store(sys.argv[1])
moves.take = lambda *_: os.kill(os.getpid(), 9)
while True:
    store.claim("w2")
    store.wait(store.change_mark(), 1.0)
"""


def test_a_job_that_kills_its_worker_is_bounded(
    start: Callable[..., "Program"], url: str, opened: Callable[..., Store]
) -> None:
    """dramatiq#213, pgqueuer, the lesson's store: kill -9 counts, and does not go on for ever."""
    store = opened(url)
    job = store.enqueue("poison", {}, max_attempts=3).job
    ends = [start(CLAIM_AND_DIE, url, job.id).process.wait() for _ in range(4)]
    assert [end == 0 for end in ends] == [False, False, False, True]  # the fourth sees it failed
    assert [a.outcome for a in store.attempts(job.id)] == [Outcome.CRASHED] * 3
    assert "that was the last of 3 attempts" in str(store.list()[0].error)


def test_a_killed_workers_job_waits_for_one_lease_and_no_longer(
    store: Store, clock: "Clock"
) -> None:
    """river#1258, saq#127, rq#944, graphile-worker: not days, not hours, not a sweeper's turn."""
    store.enqueue("nap", {})
    job = take(store)
    clock.move(LEASE + 0.25)
    again = store.claim("w2", LEASE)
    assert again is not None
    assert (again.id, again.attempts) == (job.id, 2)


def test_recovery_that_is_itself_killed_is_done_by_the_next_claim(
    start: Callable[..., "Program"], url: str, opened: Callable[..., Store]
) -> None:
    """procrastinate#1408: recovery is no job that could stall, and half of it leaves no trace."""
    store = opened(url)
    store.enqueue("nap", {})
    crashed = take(store, lease=0.05)
    assert start(DIE_IN_THE_SWEEP, url).process.wait() != 0
    again = take(store, "w3")
    assert (again.id, again.attempts, again.token) == (crashed.id, 2, 2)
    assert len(store.list()) == 1


def test_jobs_that_cannot_be_rescued_starve_none_behind_them(store: Store, clock: "Clock") -> None:
    """river#1318: behind a full page of spent jobs every other one has its turn."""
    for attempts in [1] * 120 + [2] * 5:
        store.enqueue("nap", {}, max_attempts=attempts)
        take(store)
    clock.move(LEASE + 1)
    assert [take(store).attempts for _ in range(5)] == [2] * 5
    assert store.claim("w1", LEASE) is None
    assert store.stats().counts[Status.FAILED] == 120


def test_a_stop_is_no_failure(store: Store) -> None:
    """dramatiq#618: a job given back at shutdown has no error and every attempt it had."""
    store.enqueue("nap", {}, max_attempts=1)
    job = store.release(take(store))
    assert (job.status, job.attempts, job.error) == ("queued", 0, None)
    assert [a.outcome for a in store.attempts(job.id)] == [Outcome.RELEASED]


# ------------------------------------------------------------------------------ the schema


def test_a_worker_may_come_before_anybody_else(url: str, opened: Callable[..., Store]) -> None:
    """The lesson's worker: started before the API it found no table and exited."""
    assert opened(url).claim("w1", LEASE) is None


# -------------------------------------------------------------------------------- the keys


def test_a_key_with_another_body_is_not_answered_with_the_first_job(store: Store) -> None:
    """The lesson's API: the client that asked for 2025 was given the report of 2024."""
    store.enqueue("sales_report", {"year": 2024}, "key")
    with pytest.raises(IdempotencyConflict, match="other values of: year"):
        store.enqueue("sales_report", {"year": 2025}, "key")


def test_of_two_that_race_with_one_key_both_get_the_job(
    url: str, opened: Callable[..., Store]
) -> None:
    """idempot-js#186, grape-idempotency#10: the loser gets neither an error nor a second job."""
    stores = [opened(url), opened(url)]
    together = Barrier(2)

    def enqueue(store: Store, key: str) -> tuple[str, bool]:
        together.wait()
        job, created = store.enqueue("nap", {}, key)
        return job.id, created

    with ThreadPoolExecutor(2) as threads:
        for n in range(30):
            (first, created), (second, created_too) = threads.map(enqueue, stores, [f"key {n}"] * 2)
            assert first == second
            assert {created, created_too} == {True, False}


# --------------------------------------------------------------------------------- the time


def test_a_clock_that_steps_back_hangs_no_sleeper(store: Store, clock: "Clock") -> None:
    """quartznet#1490: an hour back, and a worker that sleeps until something is due still looks."""
    store.enqueue("nap", {}, run_after=clock.now + 1)
    clock.move(-3600)
    begin = time.monotonic()
    store.wait(store.change_mark(), 0.05)
    assert time.monotonic() - begin < PROMPT
    job = store.enqueue("nap", {}).job
    assert take(store).id == job.id


def test_a_job_for_later_than_a_lease_runs_once(store: Store, clock: "Clock") -> None:
    """celery#3270, kombu#337: the lease starts at the claim, not when the job was handed in."""
    store.enqueue("nap", {}, run_after=clock.now + 10 * LEASE)
    for _ in range(9):
        clock.move(LEASE)
        assert store.claim("w1", LEASE) is None
    clock.move(LEASE)
    job = take(store)
    assert store.claim("w2", LEASE) is None
    assert (store.finish(job, 1).attempts, job.token) == (1, 1)


def test_no_number_of_failures_makes_a_job_vanish(
    url: str, opened: Callable[..., Store], clock: "Clock"
) -> None:
    """procrastinate#1462, pgqueuer, docket#453: at failure 47 the wait overflowed its column."""
    policy = RetryPolicy(base=4, factor=4, cap=3600)
    store = opened(url, clock=clock, retry=policy)
    store.enqueue("nap", {}, max_attempts=600)
    for failures in range(1, 600):
        job = store.fail(take(store), "no")
        assert job.run_after - clock.now == min(4**failures, 3600)
        clock.move(3600)
    assert store.fail(take(store), "no").status == Status.FAILED


# --------------------------------------------------------------------------------- the JSON


def test_nul_is_refused_on_every_store_with_the_same_words(store: Store) -> None:
    """awa#85: one engine gave a raw database error, the other took it."""
    with pytest.raises(NotStrictJson, match=r"payload\.name holds a NUL character"):
        store.enqueue("nap", {"name": "a\x00b"})


def test_a_result_with_nul_fails_the_attempt_and_says_why(store: Store, clock: "Clock") -> None:
    """unstract#2289: the result could not be written, and the caller waited for an hour."""
    store.enqueue("nap", {}, max_attempts=1)
    job = take(store)
    with pytest.raises(NotStrictJson) as refusal:
        store.finish(job, {"page": "\x00"})
    failed = store.fail(job, str(refusal.value))
    assert (failed.status, failed.finished_at) == ("failed", clock.now)
    assert "result.page holds a NUL character" in str(failed.error)
