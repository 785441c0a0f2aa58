"""jobq.lab.story: the event log in plain words."""

from typing import TYPE_CHECKING

import pytest

from jobq import Event, EventName, Job, Store
from jobq.lab.story import SENTENCES, Deed, Mark, in_order, tell
from jobq.store.endings import MAX_RELEASES

if TYPE_CHECKING:
    from tests.conftest import Clock

Crash = tuple[tuple[Event, ...], list[Mark]]


def told(events: tuple[Event, ...], *, times: bool = False, marks: list[Mark] | None = None) -> str:
    """Return the story of one job, J1, by workers under their own names."""
    return tell(events, name_job=lambda _: "J1", name_worker=str, marks=marks or [], times=times)


def claimed(store: Store, lease_seconds: float = 30.0) -> Job:
    """Return the next job, claimed by `w`."""
    job = store.claim("w", lease_seconds)
    assert job is not None
    return job


def test_a_crash_is_told_without_times_and_heartbeats(crash: Crash) -> None:
    """The story has a line for each event but heartbeats, with the kill where it happened."""
    events, marks = crash
    assert told(events, marks=marks).splitlines() == [
        "J1 enqueued",
        "worker-1 took J1 (attempt 1)",
        "worker-1 killed (SIGKILL)",
        "J1's lease ran out; attempt 1 is closed as crashed",
        "worker-2 took J1 (attempt 2)",
        "worker-2 finished J1",
    ]


def test_times_are_seconds_since_the_first_line(crash: Crash) -> None:
    """With times, each line begins with its seconds since the story began."""
    events, marks = crash
    lines = told(events, marks=marks, times=True).splitlines()
    assert [line.split(" s  ")[0].strip() for line in lines] == [
        *("0.00", "0.00", "1.25", "3.50", "3.50", "5.00"),
    ]


def test_a_failure_is_told_with_its_reason_and_what_follows(store: Store) -> None:
    """A failed attempt says why, and whether the job is queued again or failed for good."""
    job = store.enqueue("noop", {}, max_attempts=2).job
    store.fail(claimed(store), "no\nluck")
    assert told(store.events(job.id)).endswith("w failed J1: no luck; queued again, for later")
    assert told(store.events(job.id), times=True).endswith("queued again, for 0.50 s later")


def test_the_last_failure_is_for_good(store: Store) -> None:
    """When no attempt is left the story says so, for a failure and for a crash alike."""
    job = store.enqueue("noop", {}, max_attempts=1).job
    store.fail(claimed(store), "no luck")
    assert told(store.events(job.id)).endswith("w failed J1: no luck; failed for good")


def test_the_last_crash_is_for_good(store: Store, clock: "Clock") -> None:
    """A job that used up its attempts by killing its workers is told as failed."""
    job = store.enqueue("noop", {}, max_attempts=1).job
    claimed(store, lease_seconds=1.0)
    clock.move(2.0)
    assert store.claim("w", 1.0) is None
    assert told(store.events(job.id)).endswith(
        "J1's lease ran out; attempt 1 is closed as crashed; J1 has failed for good"
    )


def test_a_release_is_told_as_uncounted(store: Store) -> None:
    """A job given back unharmed has not used up an attempt, and the story says so."""
    job = store.enqueue("noop", {}).job
    store.release(claimed(store))
    assert told(store.events(job.id)).endswith("w released J1; the attempt is not counted")


def test_a_job_given_back_too_often_is_told_as_failed(store: Store) -> None:
    """The release that was one too many ends the story."""
    job = store.enqueue("noop", {}).job
    for _ in range(MAX_RELEASES):
        store.release(claimed(store))
    assert told(store.events(job.id)).endswith("is not counted; J1 has failed for good")


def test_a_dead_process_is_told_with_its_signal(store: Store) -> None:
    """A process that was seen to die did not wait for its lease, and the story says how it died."""
    job = store.enqueue("noop", {}).job
    store.fail(claimed(store), "its process was killed by SIGSEGV", crashed=True)
    assert told(store.events(job.id), times=True).endswith(
        "w saw J1 crash: its process was killed by SIGSEGV; queued again, for 0.50 s later"
    )


def test_a_cancel_while_it_runs_is_told_in_two_steps(store: Store) -> None:
    """Somebody asks, the worker stops; and a retry starts the attempts over."""
    job = store.enqueue("noop", {}).job
    attempt = claimed(store)
    store.cancel(job.id)
    store.confirm_cancel(attempt)
    store.retry(job.id)
    claimed(store)
    assert told(store.events(job.id)).splitlines()[1:] == [
        "w took J1 (attempt 1)",
        "J1 is to be cancelled; the next heartbeat tells w",
        "J1 is cancelled; w has stopped",
        "J1 is queued again by an operator; its attempts begin anew",
        "w took J1 (attempt 1)",
    ]


def test_a_cancel_in_the_queue_is_told_as_done(store: Store) -> None:
    """Nobody had to be told."""
    job = store.enqueue("noop", {}).job
    store.cancel(job.id)
    assert told(store.events(job.id)).endswith("J1 is cancelled")


@pytest.mark.parametrize(
    ("end", "line"),
    [
        ("fail", "w failed J1: no luck; cancelled, as was asked for"),
        ("release", "the attempt is not counted; J1 is cancelled, as was asked for"),
        ("crash", "w saw J1 crash: no luck; cancelled, as was asked for"),
    ],
)
def test_an_attempt_that_misses_the_cancel_ends_in_it(store: Store, end: str, line: str) -> None:
    """Whatever ends the attempt but success, the job is cancelled and not queued again."""
    job = store.enqueue("noop", {}).job
    attempt = claimed(store)
    store.cancel(job.id)
    if end == "release":
        store.release(attempt)
    else:
        store.fail(attempt, "no luck", crashed=end == "crash")
    assert told(store.events(job.id)).endswith(line)


def test_a_delayed_job_is_told_so(store: Store, clock: "Clock") -> None:
    """A job that waits for its time is enqueued for later."""
    job = store.enqueue("noop", {}, run_after=clock() + 5).job
    assert told(store.events(job.id)) == "J1 enqueued, for later"
    assert told(store.events(job.id), times=True) == "   0.00 s  J1 enqueued, for 5.00 s later"


def test_every_event_has_a_sentence() -> None:
    """No name of an event is without words."""
    assert SENTENCES.keys() == set(EventName)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("x" * 200, f"w failed J1: {'x' * 99}…; queued again, for later"),
        ("\x1b[2J{job}", r"w failed J1: \x1b[2J{job}; queued again, for later"),
        ("", "w failed J1: no reason given; queued again, for later"),
    ],
    ids=["long", "control characters", "empty"],
)
def test_an_error_keeps_to_its_line(store: Store, error: str, line: str) -> None:
    """An error text is bounded, on one line, and cannot command a terminal."""
    job = store.enqueue("noop", {}).job
    store.fail(claimed(store), error)
    assert told(store.events(job.id)).splitlines()[-1] == line


def test_a_mark_stands_before_the_first_later_event(crash: Crash) -> None:
    """Events keep the log's order; marks come in the order of their times between them."""
    events, (kill,) = crash
    late = Mark(events[-1].at + 1, "worker-2", Deed.STOPPED, "SIGTERM")
    assert list(in_order(events, [late, kill])) == [*events[:3], kill, *events[3:], late]


def test_nothing_happened_is_no_line() -> None:
    """An empty log is an empty story."""
    assert told(()) == told((), times=True) == ""
