"""jobq.job: the states, the table of moves, and values that keep still."""

import dataclasses

import pytest

from jobq import EventName, Job, Outcome, Status
from jobq.job import MOVES

FINAL = {Status.DONE, Status.FAILED, Status.CANCELLED}


def test_the_table_of_moves_knows_every_event() -> None:
    """No event is without its move."""
    assert set(MOVES) == set(EventName)


def test_a_job_begins_queued_and_only_once() -> None:
    """The one event that needs no state before it is `enqueued`."""
    beginnings = [name for name, (before, _) in MOVES.items() if None in before]
    assert beginnings == [EventName.ENQUEUED]


def test_only_an_operators_retry_leaves_a_final_state() -> None:
    """Done, failed and cancelled are final for every worker (G3), and done is for everybody."""
    assert {status for status in Status if status.final} == FINAL
    leaving = {name: before & FINAL for name, (before, _) in MOVES.items() if before & FINAL}
    assert leaving == {EventName.RETRIED: {Status.FAILED, Status.CANCELLED}}


def test_no_move_leads_to_a_state_without_a_way_on() -> None:
    """From every state that is not final some event leads on (G2)."""
    reached = {status for _, after in MOVES.values() for status in after}
    left = {status for before, after in MOVES.values() if after - before for status in before}
    assert {status for status in reached if not status.final} <= left


def test_each_way_an_attempt_ends_is_an_event_of_the_same_name() -> None:
    """Outcome and event use one word for one thing, and each leads out of running."""
    for outcome in Outcome:
        before, after = MOVES[EventName(outcome)]
        assert Status.RUNNING in before
        assert Status.RUNNING not in after


def test_a_job_cannot_be_changed_in_place() -> None:
    """A job is what was read; changing the queue is the store's."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        a_job().status = Status.DONE  # type: ignore[misc]  # the very thing that must fail


def test_a_jobs_repr_keeps_what_may_be_secret() -> None:
    """Payload, result and idempotency key stay out of logs and tracebacks."""
    job = dataclasses.replace(a_job(), result="opened", idempotency_key="order-7")
    assert all(word not in repr(job) for word in ("sesame", "opened", "order-7"))


def a_job() -> Job:
    """Return a queued job."""
    return Job("j", "nap", {"word": "sesame"}, Status.QUEUED, 0, 3, 0, 0, 0.0, 0.0)
