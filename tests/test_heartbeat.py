"""jobq.heartbeat: a lease is kept while the handler runs, and no longer."""

import time
from collections.abc import Callable
from threading import Event as Flag

import pytest

from jobq import EventName, Job, Status, Store
from jobq.heartbeat import LAST_SECOND, LOST, Heartbeat
from jobq.lab.waiting import wait_until
from jobq.signals import Interrupted, Signals

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
    return Heartbeat(real, signals, LEASE, complaints.append)


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
            wait_until(lambda: heartbeat._due == LOST, "the first lease to be found lost")
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
    real: Store, heartbeat: Heartbeat, complaints: list[Exception]
) -> None:
    """It complains, tries again, and keeps the lease that nobody took in the meantime."""
    job = claimed(real)
    with heartbeat.alive(abandon), heartbeat.beating(job, time.monotonic()):
        with real._engine.write():
            wait_until(lambda: len(complaints) > 0, "a heartbeat to fail")
            lease_end = heartbeat.lease_end
            wait_until(lambda: len(complaints) > 1, "the next one to fail too")
            assert heartbeat.lease_end == lease_end
        wait_until(lambda: beats(real, job), "a heartbeat after the trouble")
    assert "held the write lock" in str(complaints[0])
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
