"""Recording jobs that are asked for, many as one."""

from collections.abc import Sequence
from typing import NamedTuple

from jobq.job import EventName, Job, Status
from jobq.store import moves
from jobq.store.engine import Transaction, Undone
from jobq.store.requests import Request
from jobq.store.rows import to_job

BATCH = 1_000  # jobs that one statement records
NEW = {"status": Status.QUEUED, "attempts": 0, "token": 0, "locked_until": None}


class Enqueued(NamedTuple):
    """What enqueue answers: the job, and whether this call made it."""

    job: Job
    created: bool


def insert(
    tx: Transaction, requests: Sequence[Request], now: float, *, repeated: bool = False
) -> list[Enqueued]:
    """Record what is asked for, in this order; `repeated` if it may be there already.

    Raises IdempotencyConflict.
    """
    batches = (requests[start : start + BATCH] for start in range(0, len(requests), BATCH))
    return [
        enqueued
        for batch in batches
        for enqueued in _insert_batch(tx, batch, now, surely_new=not repeated)
    ]


def _insert_batch(
    tx: Transaction, requests: Sequence[Request], now: float, *, surely_new: bool
) -> list[Enqueued]:
    jobs = [request.columns(now) for request in requests]
    if surely_new and all(job["idempotency_key"] is None for job in jobs):
        tx.insert_all("insert_job", jobs)
        created = {job["id"] for job in jobs}
    else:
        created = {row["id"] for row in tx.each("insert_job", jobs)}
    events = [
        moves.event(NEW | job, EventName.ENQUEUED, now, worker=None)
        for job in jobs
        if job["id"] in created
    ]
    tx.insert_all("insert_event", events)
    return [
        Enqueued(request.job(now), created=True)
        if request.id in created
        else _earlier(tx, request, now, alone=len(requests) == 1)
        for request in requests
    ]


def _earlier(tx: Transaction, request: Request, now: float, *, alone: bool) -> Enqueued:
    """Return the job that was recorded for the request before, by this call or with its key."""
    if (row := tx.one("job", id=request.id)) is not None:
        return Enqueued(to_job(row), created=True)  # and only the answer had been lost
    if (job := request.same_as(tx)) is not None:
        return Enqueued(job, created=False)
    if not alone:  # out of the order of the keys, which keeps two batches from a deadlock
        raise Undone("a job with one of the keys was deleted at this moment; try again")
    [enqueued] = _insert_batch(
        tx, [request], now, surely_new=False
    )  # that job has been deleted meanwhile
    return enqueued
