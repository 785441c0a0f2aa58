"""jobq.lab.timeline and jobq.lab.text: what a picture shows, and the picture in letters."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jobq import Event, EventName, Job, Outcome, Store
from jobq.lab.story import Deed, Mark
from jobq.lab.text import LETTERS, MEANINGS, text, text_to_scale
from jobq.lab.timeline import Bar, Timeline, Wait, build

if TYPE_CHECKING:
    from tests.conftest import Clock

Crash = tuple[tuple[Event, ...], list[Mark]]
Names = Callable[[str], str]


def timeline(
    events: tuple[Event, ...],
    marks: list[Mark] | None = None,
    *,
    lanes: tuple[str, ...] = (),
    until: float | None = None,
) -> Timeline:
    """Return the timeline of one job, J1, with w1 for worker-1."""
    return build(
        events,
        name_job=lambda _: "J1",
        name_worker=lambda worker: worker.replace("worker-", "w"),
        marks=marks or [],
        lanes=lanes,
        until=until,
    )


def claimed(store: Store, worker: str = "worker-1", lease_seconds: float = 30.0) -> Job:
    """Return the next job, claimed."""
    job = store.claim(worker, lease_seconds)
    assert job is not None
    return job


def test_a_crash_is_two_bars_with_nobody_at_work_in_between(crash: Crash) -> None:
    """A crashed attempt ends with its lease; from the kill until then nobody works."""
    drawn = timeline(*crash)
    first = Bar("w1", "J1", 1, 0.0, 3.0, Outcome.CRASHED, (1.0,), ((1.25, 3.0),), ran_out=True)
    second = Bar("w2", "J1", 2, 3.5, 5.0, Outcome.DONE, heartbeats=(), idle=())
    assert drawn.bars == (first, second)
    assert drawn.waits == (Wait("J1", 3.0, 3.5),)
    assert (drawn.lanes, drawn.span) == (("w1", "w2"), 5.0)


def test_a_paused_worker_is_idle_until_it_continues(store: Store, clock: "Clock") -> None:
    """A process that stands still does not work, and works on where it was."""
    start = clock()
    job = store.enqueue("noop", {}).job
    attempt = claimed(store)
    clock.move(4.0)
    store.finish(attempt, {})
    marks = [
        Mark(start + 1, "worker-1", Deed.PAUSED, "SIGSTOP"),
        Mark(start + 3, "worker-1", Deed.CONTINUED, "SIGCONT"),
        Mark(start + 2, "worker-2", Deed.KILLED, "SIGKILL"),
    ]
    (bar,) = timeline(store.events(job.id), marks).bars
    assert bar.idle == ((1.0, 3.0),)


def test_a_job_waits_between_its_attempts(store: Store, clock: "Clock") -> None:
    """Each time without a lease is a wait: before the first attempt, and after a failure."""
    job = store.enqueue("noop", {}).job
    clock.move(1.0)
    store.fail(claimed(store), "no luck")
    clock.move(2.0)
    events = store.events(job.id)
    assert timeline(events, until=clock()).waits == (Wait("J1", 0.0, 1.0), Wait("J1", 1.0, 3.0))


def test_an_attempt_that_still_runs_goes_on_until_now(store: Store, clock: "Clock") -> None:
    """A running attempt has no outcome, and ends at the time of the look."""
    job = store.enqueue("noop", {}).job
    claimed(store)
    clock.move(7.0)
    (bar,) = timeline(store.events(job.id), until=clock()).bars
    assert (bar.end, bar.outcome) == (7.0, None)


def test_a_finished_story_does_not_grow(crash: Crash, clock: "Clock") -> None:
    """Once every job is final, the timeline ends with the last happening, however late it is."""
    events, marks = crash
    assert timeline(events, marks, until=clock() + 100).span == 5.0


def test_idle_workers_have_their_lanes(crash: Crash) -> None:
    """A worker that did nothing can be shown too, in the order that is asked for."""
    events, marks = crash
    assert timeline(events, marks, lanes=("worker-3", "worker-2")).lanes == ("w3", "w2", "w1")


def test_a_process_seen_to_die_ends_its_attempt_at_once(store: Store, clock: "Clock") -> None:
    """Such a crash is over before its lease is, and the legend says which kind it was."""
    job = store.enqueue("noop", {}).job
    attempt = claimed(store)
    clock.move(2.0)
    store.fail(attempt, "killed by SIGSEGV", crashed=True, after=4.0)
    drawn = timeline(store.events(job.id), until=clock() + 2.0)
    (bar,) = drawn.bars
    assert (bar.end, bar.outcome, bar.ran_out) == (2.0, Outcome.CRASHED, False)
    assert drawn.waits == (Wait("J1", 2.0, 4.0),)
    for picture in (text(drawn), text_to_scale(drawn)):
        assert picture.endswith("C crashed: the process died")


@pytest.fixture
def retried(store: Store, clock: "Clock") -> tuple[Event, ...]:
    """Return the log of a job that was cancelled at work, and done after an operator's retry."""
    job = store.enqueue("noop", {}).job
    clock.move(1.0)
    attempt = claimed(store)
    clock.move(1.0)
    store.cancel(job.id)
    clock.move(1.0)
    store.confirm_cancel(attempt)
    clock.move(3.0)
    store.retry(job.id)
    clock.move(1.0)
    again = claimed(store)
    clock.move(2.0)
    store.finish(again, {})
    return store.events(job.id)


def test_attempts_begin_anew_after_a_retry(retried: tuple[Event, ...]) -> None:
    """Each attempt has its bar, the first one twice; a cancelled job waits for nothing."""
    drawn = timeline(retried)
    assert [(bar.number, bar.start, bar.end, bar.outcome) for bar in drawn.bars] == [
        (1, 1.0, 3.0, Outcome.CANCELLED),
        (1, 7.0, 9.0, Outcome.DONE),
    ]
    assert drawn.waits == (Wait("J1", 0.0, 1.0), Wait("J1", 6.0, 7.0))


def test_a_cancel_and_a_retry_are_drawn(retried: tuple[Event, ...]) -> None:
    """The request falls into the worker's lane, and its work goes on until it stops."""
    drawn = timeline(retried)
    assert text(drawn, width=90).splitlines() == [
        "    enqueued  claimed   cancel?   cancelled retried   claimed   done",
        "    J1        J1        J1        J1        J1        J1        J1",
        "w1            [J1#1=====?=========N                   [J1#1=====D",
        "",
        "[ attempt begins   = works   N cancelled   D done   ? to be cancelled",
    ]
    assert text_to_scale(drawn, width=44).splitlines()[2:4] == [
        "queue  ----                    ----",
        "w1         [J1#?===N               [J1#1===D",
    ]


def test_a_job_cancelled_in_the_queue_has_no_bar(store: Store, clock: "Clock") -> None:
    """Nobody worked on it, not even if an earlier attempt had failed; it waited until then."""
    job = store.enqueue("noop", {}).job
    store.fail(claimed(store), "no luck", after=9.0)
    clock.move(2.0)
    store.cancel(job.id)
    drawn = timeline(store.events(job.id), until=clock() + 5.0)
    assert [bar.outcome for bar in drawn.bars] == [Outcome.FAILED]
    assert (drawn.waits, drawn.lanes) == ((Wait("J1", 0.0, 2.0),), ("w1",))


def test_the_picture_by_steps(crash: Crash) -> None:
    """A column for each step, a lane for each worker, and no trace of a clock."""
    assert text(timeline(*crash)).splitlines() == [
        "    enqueued  claimed   killed    crashed   claimed   done",
        "    J1        J1                  J1        J1        J1",
        "w1            [J1#1=====X.........C",
        "w2                                          [J1#2=====D",
        "",
        "[ attempt begins   = works   . leased, but nobody works   X killed",
        "C crashed: the lease ran out   D done",
    ]


def test_the_picture_by_steps_goes_on_below(crash: Crash) -> None:
    """Where the width ends, the lanes go on in a second block, as they were."""
    assert text(timeline(*crash), width=40).splitlines()[:9] == [
        "    enqueued  claimed   killed",
        "    J1        J1",
        "w1            [J1#1=====X.........",
        "w2",
        "",
        "    crashed   claimed   done",
        "    J1        J1        J1",
        "w1  C",
        "w2            [J1#2=====D",
    ]


def test_the_picture_to_scale(crash: Crash) -> None:
    """The columns are seconds: heartbeats, the wait and the lengths are where they were."""
    assert text_to_scale(timeline(*crash), width=58).splitlines() == [
        "       0 s       1 s       2 s       3 s       4 s     5 s",
        "       |         |         |         |         |         |",
        "queue                                -----",
        "w1     [J1#1=====*=X.................C",
        "w2                                        [J1#2==========D",
        "",
        "[ attempt begins   = works   * heartbeat",
        ". leased, but nobody works   - waits in the queue",
        "X killed   C crashed: the lease ran out   D done",
    ]


def test_a_pause_and_its_end_are_drawn(store: Store, clock: "Clock") -> None:
    """Both pictures show from when to when the process stood still."""
    start = clock()
    job = store.enqueue("noop", {}).job
    attempt = claimed(store)
    clock.move(4.0)
    store.finish(attempt, {})
    marks = [
        Mark(start + 1, "worker-1", Deed.PAUSED, "SIGSTOP"),
        Mark(start + 3, "worker-1", Deed.CONTINUED, "SIGCONT"),
    ]
    drawn = timeline(store.events(job.id), marks)
    assert "w1            [J1#1=====P.........G=========D" in text(drawn)
    assert "w1     [J1#1=====P...................G=========D" in text_to_scale(drawn, width=48)


def test_a_job_that_runs_is_drawn_as_running(store: Store, clock: "Clock") -> None:
    """Both pictures end an attempt that still runs with its own sign."""
    job = store.enqueue("noop", {}).job
    claimed(store)
    clock.move(3.0)
    drawn = timeline(store.events(job.id), until=clock())
    for picture in (text(drawn), text_to_scale(drawn)):
        assert "=>" in picture
        assert "> still runs" in picture


def test_a_dead_workers_job_is_not_drawn_as_running(crash: Crash, clock: "Clock") -> None:
    """A job stuck in `running` after a kill shows as leased, with nobody at work."""
    events, marks = crash
    drawn = timeline(events[:3], marks, until=clock())
    for picture in (text(drawn), text_to_scale(drawn)):
        assert "X..." in picture
        assert "still runs" not in picture


def test_short_attempts_show_their_outcome(store: Store, clock: "Clock") -> None:
    """An attempt too short for the scale is the letter of its outcome."""
    job = store.enqueue("noop", {}).job
    store.fail(claimed(store), "no luck")
    clock.move(10.0)
    store.finish(claimed(store), {})
    row = text_to_scale(timeline(store.events(job.id)), width=37).splitlines()[3]
    assert row == f"w1     F{' ' * 28}D"


@pytest.mark.parametrize(
    ("seconds", "ruler"),
    [
        (0.004, "0 s       0.001 s   0.002 s   0.003 s"),
        (40.0, "0 s       10 s      20 s      30 s    40 s"),
        (600.0, "0 min   2 min   4 min   6 min   8 min"),
        (43_200.0, "0 h       5 h       10 h"),
        (864_000.0, "0 d     2 d     4 d     6 d     8 d     10 d"),
    ],
)
def test_the_ruler_has_round_numbers_of_a_fitting_unit(
    store: Store, clock: "Clock", seconds: float, ruler: str
) -> None:
    """From milliseconds to days, ticks are at 1, 2 or 5 of some unit, with room between them."""
    job = store.enqueue("noop", {}).job
    clock.move(seconds)
    top = text_to_scale(timeline(store.events(job.id), until=clock()), width=48).splitlines()[0]
    assert top.split() == ruler.split()


@pytest.mark.parametrize("width", [40, 60, 78, 100])
@pytest.mark.parametrize("draw", [text, text_to_scale])
def test_no_line_is_wider_than_asked(crash: Crash, draw: Callable[..., str], width: int) -> None:
    """Both pictures keep to the width, and to ASCII, which every terminal and reader knows."""
    picture = draw(timeline(*crash), width=width)
    assert picture.isascii()
    assert max(len(line) for line in picture.splitlines()) <= width


@pytest.mark.parametrize("draw", [text, text_to_scale])
def test_an_empty_log_is_an_empty_picture(draw: Callable[..., str]) -> None:
    """Nothing happened: there are no lanes, and no legend."""
    assert not any(sign in draw(timeline(())) for sign in "[=w")


def test_every_sign_has_its_own_meaning() -> None:
    """No letter stands for two things, and each outcome, deed and request has one."""
    assert len(set(LETTERS.values())) == len(LETTERS)
    assert LETTERS.keys() == {*Outcome, *Deed, EventName.CANCEL_REQUESTED}
    assert set(LETTERS.values()) <= MEANINGS.keys()
