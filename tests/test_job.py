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
    beginnings = [name for name, (before, _) in MOVES.items() if before is None]
    assert beginnings == [EventName.ENQUEUED]


def test_no_event_leaves_a_final_state() -> None:
    """Done, failed and cancelled are final for every worker (G3)."""
    assert {status for status in Status if status.final} == FINAL
    assert not FINAL & {before for before, _ in MOVES.values()}


def test_no_move_leads_to_a_state_without_a_way_on() -> None:
    """From every state that is not final some event leads on (G2)."""
    reached = {status for _, after in MOVES.values() for status in after}
    assert {status for status in reached if not status.final} <= {b for b, _ in MOVES.values()}


def test_each_way_a_worker_ends_an_attempt_is_an_event_of_the_same_name() -> None:
    """Outcome and event use one word for one thing; `cancelled` has no event yet."""
    assert set(Outcome) - set(EventName) == {Outcome.CANCELLED}


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
