"""jobq.attendant: what a context answers is true of the job as the store has it."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from jobq import Job, LeaseLost, Progress, Status, Store
from jobq.attendant import Attendant
from jobq.context import Context
from jobq.heartbeat import Heartbeat
from jobq.lab.waiting import wait_until
from jobq.signals import Interrupted, Signals

if TYPE_CHECKING:
    from tests.conftest import Held

LEASE = 0.6


@pytest.fixture
def signals() -> Signals:
    """Return the signals of the worker."""
    return Signals(3_600)


@pytest.fixture
def impatient(url: str, opened: Callable[..., Store]) -> Store:
    """Return another view of `live`, which is soon in trouble."""
    return opened(url, busy_seconds=0.05)


@pytest.fixture
def heartbeat(impatient: Store, signals: Signals) -> Iterator[Heartbeat]:
    """Return a heartbeat that is alive."""
    heartbeat = Heartbeat(impatient, signals, LEASE, LEASE / 3, complain=lambda _: None)
    with heartbeat.alive(abandon=lambda _: None):
        yield heartbeat


def claimed(store: Store, worker: str = "worker-1") -> Job:
    """Return the job that a worker has just claimed."""
    job = store.claim(worker, LEASE)
    assert job is not None
    return job


@pytest.fixture
def job(live: Store) -> Job:
    """Return a job that a worker has just claimed."""
    live.enqueue("any", {})
    return claimed(live)


@pytest.fixture
def context(
    impatient: Store, signals: Signals, heartbeat: Heartbeat, job: Job
) -> Iterator[Context]:
    """Return the context of a handler that is at work on the job."""
    with heartbeat.beating(job, time.monotonic()):
        yield Context(job, 1, "worker-1", Attendant(impatient, signals, heartbeat, job))


def test_a_key_is_marked_for_the_attempts_that_follow(
    live: Store, impatient: Store, signals: Signals, heartbeat: Heartbeat, job: Job
) -> None:
    """The first attempt had the effect, and the second one is told so."""
    told = []
    for attempt in (job, None):
        mine = attempt or claimed(live)
        with heartbeat.beating(mine, time.monotonic()):
            attending = Attendant(impatient, signals, heartbeat, mine)
            with Context(mine, mine.attempts, "worker-1", attending).once("mail-1") as to_do:
                told.append(to_do)
        live.fail(mine, "no", after=0)
    assert told == [True, False]


def test_a_lost_job_has_no_further_effect(live: Store, job: Job, context: Context) -> None:
    """The store is asked under the token, before any heartbeat has noticed."""
    live.release(job)
    with pytest.raises(LeaseLost), context.once("mail-1"):
        raise AssertionError
    other = claimed(live, "worker-2")
    assert not live.is_done(other, "mail-1")


def test_after_the_loss_was_noticed_everything_is_refused(
    live: Store, job: Job, context: Context, heartbeat: Heartbeat
) -> None:
    """In a thread that cannot be interrupted this is how a handler is stopped."""
    live.release(job)
    wait_until(lambda: heartbeat.lost, "a heartbeat to notice")
    asked: list[Callable[[], object]] = [
        lambda: context.cancelled,
        lambda: context.progress(1),
        lambda: context.sleep(60),
        lambda: context.once("mail-1").__enter__(),
        lambda: context.attending.mark_done("mail-1"),
    ]
    for ask in asked:
        with pytest.raises(LeaseLost):
            ask()


def test_an_attempt_that_has_ended_is_attended_to_no_more(
    live: Store, impatient: Store, signals: Signals, heartbeat: Heartbeat, job: Job
) -> None:
    """A thread that a handler left behind cannot speak for the next job."""
    with heartbeat.beating(job, time.monotonic()):
        left_behind = Context(job, 1, "worker-1", Attendant(impatient, signals, heartbeat, job))
    live.finish(job, {})
    live.enqueue("any", {})
    other = claimed(live)
    with heartbeat.beating(other, time.monotonic()):
        with pytest.raises(LeaseLost, match="its attempt has ended"):
            left_behind.progress(9)
        with pytest.raises(LeaseLost):
            left_behind.attending.mark_done("mail-1")
    assert live.fail(other, "no").progress is None


def test_a_lease_that_ran_out_is_renewed_before_an_effect(
    live: Store, impatient: Store, signals: Signals, job: Job
) -> None:
    """Whoever stood still gets a lease to work under, or is told that the job is another's."""
    unbeaten = Heartbeat(impatient, signals, LEASE, LEASE / 3, complain=lambda _: None)
    attendant = Attendant(impatient, signals, unbeaten, job)
    with unbeaten.beating(job, time.monotonic() - 10 * LEASE):
        wait_until(lambda: live.now() > (job.locked_until or 0), "the lease to run out")
        assert not attendant.is_done("mail-1")
        assert live.claim("worker-2") is None
    with unbeaten.beating(job, time.monotonic() - 10 * LEASE):
        wait_until(lambda: live.claim("worker-2"), "another worker to take the job")
        with pytest.raises(LeaseLost):
            attendant.is_done("mail-1")


def test_trouble_with_the_store_is_waited_out(
    live: Store, job: Job, context: Context, held: "Held"
) -> None:
    """As long as the lease lasts; the handler notices nothing."""
    entered, over = threading.Event(), threading.Event()

    def block() -> None:
        with held(live):
            entered.set()
            over.wait(0.2)

    with context.once("mail-1") as to_do:
        assert to_do
        thread = threading.Thread(target=block)
        thread.start()
        entered.wait(60)
    thread.join()
    assert live.is_done(job, "mail-1")


def test_trouble_with_the_store_ends_with_the_lease(
    live: Store, context: Context, held: "Held"
) -> None:
    """Then the job is anybody's, and the effect must not be had again."""
    with held(live), pytest.raises(LeaseLost, match="its lease ran out, and still"):
        context.attending.mark_done("mail-1")


def test_an_interruption_does_not_tear_a_mark(
    live: Store, impatient: Store, signals: Signals, heartbeat: Heartbeat, job: Job
) -> None:
    """The mark is written, the store can be used, and only then the handler ends."""
    attendant = Attendant(live, signals, heartbeat, job)
    entered, over = threading.Event(), threading.Event()

    def block_and_interrupt() -> None:
        with impatient._engine.write():
            entered.set()
            over.wait(0.1)  # for the mark to wait for its turn
            signals.interrupt()
            over.wait(0.1)

    def handler() -> None:
        thread = threading.Thread(target=block_and_interrupt)
        thread.start()
        entered.wait(60)
        try:
            attendant.mark_done("mail-1")
        finally:
            thread.join()

    with heartbeat.beating(job, time.monotonic()), signals.watched(), pytest.raises(Interrupted):
        signals.call(handler)
    assert live.is_done(job, "mail-1")
    assert live.finish(job, {}).status is Status.DONE


def test_progress_is_in_the_store_while_the_handler_runs(
    live: Store, job: Job, context: Context
) -> None:
    """Whoever looks sees how far it is."""

    def told() -> Progress | None:
        found = live.get(job.id)
        return found.progress if found else None

    context.progress(3, 9, "third")
    wait_until(lambda: told() == Progress(3, 9, "third"), "the progress to be told")
