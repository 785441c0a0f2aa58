"""The contract of every store: pages of jobs, counts, run times, the log's end, signs of a change.

Each test runs on every engine.
"""

import math
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from jobq import EventName, InvalidInput, Job, Outcome, Status, Store

if TYPE_CHECKING:
    from tests.conftest import Clock

LEASE = 10.0  # seconds on the clock of the test
PROMPT = 10.0  # seconds within which a waiter that is woken comes back, on a very busy machine
NOBODY = dict.fromkeys(Status, 0)


def take(store: Store) -> Job:
    """Claim a job that has to be there."""
    job = store.claim("w1", LEASE)
    assert job is not None
    return job


def one_of_each(store: Store, kind: str) -> dict[Status, Job]:
    """Make a job of a kind in each status; there must be no other in the queue."""
    jobs = {}
    for status in (Status.DONE, Status.FAILED, Status.CANCELLED, Status.RUNNING, Status.QUEUED):
        job = store.enqueue(kind, {}).job
        if status not in {Status.CANCELLED, Status.QUEUED}:
            job = take(store)
        if status == Status.DONE:
            job = store.finish(job, 1)
        if status == Status.FAILED:
            job = store.fail(job, "no", final=True)
        if status == Status.CANCELLED:
            job = store.cancel(job.id)
        jobs[status] = job
    return jobs


# ------------------------------------------------------------------------------------ pages


@pytest.mark.parametrize("kind", [None, "nap", "report", "unknown"])
@pytest.mark.parametrize("status", [None, *Status])
def test_a_list_has_the_jobs_asked_for_and_no_others(
    store: Store, kind: str | None, status: Status | None
) -> None:
    """By kind and status, alone and together, newest first."""
    store.cancel(one_of_each(store, "nap")[Status.QUEUED].id)
    one_of_each(store, "report")
    jobs = store.list()
    wanted = [j for j in jobs if kind in {None, j.kind} and status in {None, j.status}]
    assert store.list(kind=kind, status=status) == wanted


def pages(store: Store, limit: int, **wanted: Any) -> Iterator[list[Job]]:
    """Give page after page, each from the last job of the one before."""
    page = store.list(limit=limit, **wanted)
    while page:
        yield page
        page = store.list(limit=limit, before=page[-1].id, **wanted)


@pytest.mark.parametrize("limit", [1, 2, 3, 1_000])
@pytest.mark.parametrize(
    "wanted", [{}, {"kind": "nap"}, {"status": "queued"}, {"kind": "nap", "status": "queued"}]
)
def test_pages_have_neither_gap_nor_repeat_while_jobs_arrive_and_move(
    store: Store, wanted: dict[str, Any], limit: int
) -> None:
    """Whoever was there at the beginning, and still is what was asked for, is met once."""
    ids = []
    for n in range(10):
        job = store.enqueue("nap" if n % 3 else "report", {}).job
        if wanted.get("kind", job.kind) == job.kind:
            ids.append(job.id)
    seen = []
    for page in pages(store, limit, **wanted):
        seen += [job.id for job in page]
        store.enqueue("nap", {})
        if not wanted.get("status"):
            store.cancel(page[0].id)
    assert seen == ids[::-1]


def test_a_rare_kind_is_found_on_pages_of_every_status(store: Store) -> None:
    """Its page is put together from those of each status, in one order."""
    rare = one_of_each(store, "rare")
    store.cancel(rare[Status.QUEUED].id)
    one_of_each(store, "common")
    ids = [job.id for job in rare.values()]
    assert [job.id for page in pages(store, 2, kind="rare") for job in page] == ids[::-1]


@pytest.mark.parametrize("kind", ["", " ", "k" * 300, "\udcff", "a\x00b", 5])
def test_a_kind_that_no_job_can_have_is_refused(store: Store, kind: Any) -> None:
    """It comes from a URL, and the answer says what is wrong with it."""
    for ask in (lambda: store.list(kind=kind), lambda: store.typical_seconds(kind)):
        with pytest.raises(InvalidInput, match="kind"):
            ask()


# ------------------------------------------------------------------------- counts and times


def test_stats_count_by_kind_and_status(store: Store) -> None:
    """Each kind has a number for every status, and together they are the counts."""
    one_of_each(store, "nap")
    store.cancel(store.enqueue("report", {}).job.id)
    stats = store.stats()
    assert stats.kinds == {
        "nap": dict.fromkeys(Status, 1),
        "report": NOBODY | {Status.CANCELLED: 1},
    }
    assert stats.counts == dict.fromkeys(Status, 1) | {Status.CANCELLED: 2}


def test_stats_of_an_empty_store_are_nought(store: Store) -> None:
    """No kind, no wait, no end."""
    stats = store.stats()
    assert (stats.counts, stats.kinds) == (NOBODY, {})
    assert (stats.oldest_waiting_seconds, stats.finished_last_minute) == (None, 0)


def test_stats_count_what_became_final_within_the_last_minute(store: Store, clock: "Clock") -> None:
    """Done, failed or cancelled; a retried job is no longer final."""
    jobs = one_of_each(store, "nap")
    assert store.stats().finished_last_minute == 3
    clock.move(30)
    store.retry(jobs[Status.FAILED].id)
    assert store.stats().finished_last_minute == 2
    clock.move(30.25)
    store.cancel(jobs[Status.QUEUED].id)
    assert store.stats().finished_last_minute == 1


def test_the_typical_run_time_is_the_mean_of_the_newest_done(store: Store, clock: "Clock") -> None:
    """Of ten jobs of the kind, by their last attempt; failures do not count."""
    assert store.typical_seconds("nap") is None

    def run(kind: str, seconds: float) -> None:
        store.enqueue(kind, {})
        job = take(store)
        clock.move(seconds)
        store.finish(job, 1)

    run("nap", 1_000)
    run("other", 500)
    for seconds in range(10):
        run("nap", seconds)
    store.enqueue("nap", {})
    clock.move(77)
    store.fail(take(store), "no", final=True)
    assert store.typical_seconds("nap") == 4.5
    assert store.typical_seconds("other") == 500


def test_the_typical_run_time_leaves_out_waits_and_attempts_that_failed(
    store: Store, clock: "Clock"
) -> None:
    """What the last attempt took is what the next job may take."""
    store.enqueue("nap", {}, run_after=clock() + 60)
    clock.move(100)
    job = take(store)
    clock.move(50)
    store.fail(job, "no", after=0)
    job = take(store)
    clock.move(3)
    store.finish(job, 1)
    assert store.typical_seconds("nap") == 3


def test_a_clock_that_steps_back_makes_no_run_time_negative(store: Store, clock: "Clock") -> None:
    """It would tell a client to come back in the past."""
    store.enqueue("nap", {})
    job = take(store)
    clock.move(-3600)
    store.finish(job, 1)
    store.enqueue("nap", {})
    assert store.typical_seconds("nap") == 0
    clock.move(-3600)
    assert store.stats().oldest_waiting_seconds == 0


def test_a_job_tells_when_its_last_attempt_began(store: Store, clock: "Clock") -> None:
    """Also when it has ended; before the first there is no such time."""
    job = store.enqueue("nap", {}).job
    assert job.started_at is None
    clock.move(5)
    first = take(store)
    assert first.started_at == clock.now
    store.release(first)
    clock.move(5)
    begun = clock.now
    second = take(store)
    clock.move(5)
    assert store.finish(second, 1).started_at == begun


# -------------------------------------------------------------------------- the log, its end


def test_the_last_event_is_the_newest_of_all_jobs(store: Store) -> None:
    """What follows it is what is not there yet."""
    assert store.last_event() == 0
    for number in range(3):
        store.enqueue("nap", {})
        assert store.last_event() == store.events()[-1].seq
        assert len(store.events()) == number + 1
    assert store.events(after=store.last_event()) == ()


def test_a_cancelled_attempt_is_told_as_one(store: Store) -> None:
    """In the log as among the attempts."""
    store.enqueue("nap", {})
    job = take(store)
    store.cancel(job.id)
    store.confirm_cancel(job)
    *_, requested, cancelled = store.events(job.id)
    assert (requested.name, requested.status) == (EventName.CANCEL_REQUESTED, "running")
    assert (requested.worker, requested.locked_until) == ("w1", job.locked_until)
    assert (cancelled.name, cancelled.status, cancelled.token) == ("cancelled", "cancelled", 1)
    assert store.attempts(job.id)[0].outcome is Outcome.CANCELLED


@pytest.mark.parametrize("after", [-1, 2**63, 2**70, 1.5, True, None, "5"])
def test_a_place_in_the_log_that_cannot_be_is_refused(store: Store, after: Any) -> None:
    """It comes from a header that a client made up."""
    with pytest.raises(InvalidInput, match="after is"):
        store.events(after=after)
    assert store.events(after=2**63 - 1) == ()


# ---------------------------------------------------------------------------- signs of a change


def test_a_waiter_is_woken_by_another_connection(url: str, opened: Callable[..., Store]) -> None:
    """And by nothing that is due: it waits for changes alone."""
    store, other = opened(url), opened(url)
    store.enqueue("nap", {})  # due at once
    mark = store.change_mark()
    begin = time.monotonic()
    store.wait_for_change(mark, 0.1)
    assert 0.1 <= time.monotonic() - begin < PROMPT
    writer = Thread(target=other.enqueue, args=("nap", {}))
    writer.start()
    begin = time.monotonic()
    store.wait_for_change(mark, 60)
    assert time.monotonic() - begin < PROMPT
    writer.join()
    assert store.change_mark() != mark


def test_a_waiter_for_changes_stops_when_it_is_told(store: Store) -> None:
    """At a look in between."""
    answers = iter([False, False, True])
    begin = time.monotonic()
    store.wait_for_change(store.change_mark(), 60, lambda: next(answers))
    assert time.monotonic() - begin < PROMPT


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, None])
def test_a_wait_without_a_length_is_refused(store: Store, seconds: Any) -> None:
    """It would hang, or not wait at all."""
    for wait in (store.wait, store.wait_for_change):
        with pytest.raises(InvalidInput, match="seconds is"):
            wait(store.change_mark(), seconds)
