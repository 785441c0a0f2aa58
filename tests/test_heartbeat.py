"""jobq.heartbeat: a lease is kept while the handler runs, and no longer."""

import time
from collections.abc import Callable
from threading import Event as Flag
from typing import TYPE_CHECKING

import pytest

from jobq import EventName, Job, Progress, Status, Store, StoreBusy
from jobq.heartbeat import PROGRESS_SECONDS, Heartbeat
from jobq.lab.waiting import wait_until
from jobq.signals import LAST_SECOND, Interrupted, Signals

if TYPE_CHECKING:
    from tests.conftest import Held

HOUR = 3_600.0
LEASE = 0.6


def abandon(job: Job) -> None:
    """Refuse to be called: no handler here outlives its interruption."""
    raise AssertionError(job)


def beats(store: Store, job: Job) -> list[int]:
    """Return the tokens of the job's heartbeats."""
    return [e.token for e in store.events(job.id) if e.name is EventName.HEARTBEAT]


def claimed(store: Store) -> Job:
    """Return a job that a worker has just claimed."""
    store.enqueue("any", {})
    job = store.claim("worker-1", LEASE)
    assert job is not None
    return job


@pytest.fixture
def real(url: str, opened: Callable[..., Store]) -> Store:
    """Return an empty store that goes by the real time, and has little patience."""
    return opened(url, busy_seconds=0.05)


@pytest.fixture
def complaints() -> list[Exception]:
    """Return what the heartbeat of this test complained of."""
    return []


@pytest.fixture
def signals() -> Signals:
    """Return the signals of the worker."""
    return Signals(HOUR)


@pytest.fixture
def heartbeat(real: Store, signals: Signals, complaints: list[Exception]) -> Heartbeat:
    """Return the heartbeat of a worker with a short lease."""
    return Heartbeat(real, signals, LEASE, LEASE / 3, complaints.append)


def test_a_lease_is_kept_as_long_as_the_handler_runs(real: Store, heartbeat: Heartbeat) -> None:
    """After several leases the job is still its worker's; the end of the lease has moved along."""
    job = claimed(real)
    claimed_at = time.monotonic()
    with heartbeat.alive(abandon), heartbeat.beating(job, claimed_at):
        wait_until(lambda: time.monotonic() > claimed_at + 3 * LEASE, "three leases to go by")
        assert real.claim("worker-2") is None
    assert len(beats(real, job)) >= 3
    assert heartbeat.lease_end > claimed_at + 3 * LEASE
    real.finish(job, {})


def test_a_short_job_needs_no_heartbeat(real: Store, heartbeat: Heartbeat) -> None:
    """The first one is due after a third of the lease."""
    with heartbeat.alive(abandon):
        jobs = [claimed(real) for _ in range(5)]
        for job in jobs:
            with heartbeat.beating(job, time.monotonic()):
                pass
    assert [beats(real, job) for job in jobs] == [[]] * 5


def test_the_same_job_leased_again_to_the_same_worker_is_kept(
    real: Store, heartbeat: Heartbeat
) -> None:
    """A lease that was lost is not held against the next one: a heartbeat goes by the token."""
    lost = claimed(real)
    real.release(lost)
    again = real.claim("worker-1", LEASE)
    assert again is not None
    with heartbeat.alive(abandon):
        with heartbeat.beating(lost, time.monotonic()):
            wait_until(lambda: heartbeat.lost, "the first lease to be found lost")
        with heartbeat.beating(again, time.monotonic()):
            wait_until(lambda: beats(real, again), "a heartbeat under the second lease")
    assert set(beats(real, again)) == {again.token}


def test_a_handler_whose_lease_is_lost_is_interrupted(
    real: Store, heartbeat: Heartbeat, signals: Signals
) -> None:
    """What it went on to do, another worker would do too."""
    job = claimed(real)
    real.release(job)
    with signals.watched(), heartbeat.alive(abandon), heartbeat.beating(job, time.monotonic()):
        with pytest.raises(Interrupted):
            signals.call(lambda: time.sleep(60))
        assert signals.interrupted
        assert not signals.stopping


def test_a_heartbeat_outlives_trouble_with_the_store(
    real: Store, heartbeat: Heartbeat, complaints: list[Exception], held: "Held"
) -> None:
    """It complains, tries again, and keeps the lease that nobody took in the meantime."""
    job = claimed(real)
    with heartbeat.alive(abandon), heartbeat.beating(job, time.monotonic()):
        with held(real):
            wait_until(lambda: len(complaints) > 0, "a heartbeat to fail")
            lease_end = heartbeat.lease_end
            wait_until(lambda: len(complaints) > 1, "the next one to fail too")
            assert heartbeat.lease_end == lease_end
        wait_until(lambda: beats(real, job), "a heartbeat after the trouble")
    assert isinstance(complaints[0], StoreBusy)
    assert real.finish(job, {}).status is Status.DONE


def test_a_handler_that_does_not_end_is_abandoned(
    real: Store, signals: Signals, heartbeat: Heartbeat
) -> None:
    """A second after its interruption the job is given up."""
    job = claimed(real)
    abandoned = Flag()
    signals.deadline = time.monotonic()
    with (
        heartbeat.alive(lambda given_up: abandoned.set() if given_up is job else None),
        heartbeat.beating(job, time.monotonic()),
    ):
        assert abandoned.wait(60)
    assert time.monotonic() >= signals.deadline + LAST_SECOND


def test_progress_is_told_soon_and_no_more_often_than_need_be(
    real: Store, signals: Signals, complaints: list[Exception]
) -> None:
    """The first within half a second although the lease is long, of many more only the newest."""
    slow = Heartbeat(real, signals, HOUR, HOUR / 3, complaints.append)
    job = claimed(real)
    began = time.monotonic()
    with slow.alive(abandon), slow.beating(job, began):
        while len(beats(real, job)) < 3:
            slow.report(Progress(time.monotonic() - began))
            time.sleep(0.001)
    told = [e.progress.done for e in real.events(job.id) if e.progress is not None]
    assert len(told) in {3, 4}  # the last one at the end
    assert all(b - a >= PROGRESS_SECONDS - 0.01 for a, b in zip([0, *told], told[:3], strict=False))


def test_the_last_progress_is_told_before_the_end(real: Store, heartbeat: Heartbeat) -> None:
    """So a next attempt can go on from there, however short this one was."""
    job = claimed(real)
    with heartbeat.alive(abandon), heartbeat.beating(job, time.monotonic()):
        heartbeat.report(Progress(7, 9, "seventh"))
    after = real.fail(job, "no")
    assert after.progress == Progress(7, 9, "seventh")


def test_the_reply_tells_that_the_job_is_to_be_cancelled(real: Store, heartbeat: Heartbeat) -> None:
    """And the handler, which may look, is not interrupted."""
    job = claimed(real)
    with heartbeat.alive(abandon), heartbeat.beating(job, time.monotonic()):
        assert not heartbeat.cancelled
        real.cancel(job.id)
        wait_until(lambda: heartbeat.cancelled, "the next heartbeat")
        assert not heartbeat.lost
    assert real.confirm_cancel(job).status is Status.CANCELLED


def test_what_a_thread_of_an_ended_attempt_tells_is_not_the_next_jobs(
    real: Store, heartbeat: Heartbeat
) -> None:
    """A heartbeat keeps one lease at a time, and knows which."""
    first, second = claimed(real), claimed(real)
    with heartbeat.alive(abandon):
        with heartbeat.beating(first, time.monotonic()):
            assert heartbeat.keeps(first)
        with heartbeat.beating(second, time.monotonic()):
            assert not heartbeat.keeps(first)
            heartbeat.renew(first)
            assert heartbeat.keeps(second)
    assert beats(real, first) == []


def test_a_heartbeat_that_hangs_does_not_keep_the_handler_going(
    real: Store,
    signals: Signals,
    complaints: list[Exception],
    url: str,
    opened: Callable[..., Store],
    held: "Held",
) -> None:
    """The handler is interrupted when the lease runs out, and not when the store answers."""
    patient = opened(url, busy_seconds=3.0)
    heartbeat = Heartbeat(patient, signals, LEASE, LEASE / 3, complaints.append)
    job = claimed(real)
    claimed_at = time.monotonic()
    with signals.watched(), heartbeat.alive(abandon), heartbeat.beating(job, claimed_at):
        with held(real), pytest.raises(Interrupted):
            signals.call(lambda: time.sleep(60))
        assert LEASE <= time.monotonic() - claimed_at < 2.5
        assert complaints == []  # the beat still waits for its turn


def test_a_heartbeat_that_comes_late_is_tried_before_the_job_is_given_up(
    real: Store, heartbeat: Heartbeat
) -> None:
    """A process that stood still may find its job untouched."""
    job = claimed(real)
    long_ago = time.monotonic() - 10 * LEASE
    with heartbeat.alive(abandon), heartbeat.beating(job, long_ago):
        wait_until(lambda: beats(real, job), "a heartbeat")
        assert heartbeat.keeps(job)
    assert real.finish(job, {}).status is Status.DONE


def test_a_worker_that_cannot_renew_its_lease_stops_its_handler(
    real: Store, heartbeat: Heartbeat, signals: Signals, held: "Held"
) -> None:
    """Once the lease has run out by its own clock, whether or not anybody took the job."""
    job = claimed(real)
    claimed_at = time.monotonic()
    with (
        held(real),
        signals.watched(),
        heartbeat.alive(abandon),
        heartbeat.beating(job, claimed_at),
    ):
        with pytest.raises(Interrupted):
            signals.call(lambda: time.sleep(60))
        assert heartbeat.lost
    assert time.monotonic() >= claimed_at + LEASE
    assert real.finish(job, {}).status is Status.DONE  # nobody took it: the store has the last word
