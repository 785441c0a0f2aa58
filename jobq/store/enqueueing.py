"""Recording jobs that are asked for, many as one."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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
    if not repeated and all(request.key is None for request in requests):
        return _insert_new(tx, requests, now)
    batches = (requests[start : start + BATCH] for start in range(0, len(requests), BATCH))
    return [enqueued for batch in batches for enqueued in _insert_batch(tx, batch, now)]


def _insert_new(tx: Transaction, requests: Sequence[Request], now: float) -> list[Enqueued]:
    """Record jobs of which none can be there already."""
    made: list[Enqueued] = []

    def jobs() -> Iterator[dict[str, Any]]:
        for request in requests:
            made.append(Enqueued(request.job(now), created=True))
            yield request.columns(now)

    tx.insert_all("insert_job", jobs())
    tx.insert_all("insert_event", (_event(request.columns(now), now) for request in requests))
    return made


def _insert_batch(tx: Transaction, requests: Sequence[Request], now: float) -> list[Enqueued]:
    jobs = [request.columns(now) for request in requests]
    created = {row["id"] for row in tx.each("insert_job", jobs)}
    tx.each("insert_event", [_event(job, now) for job in jobs if job["id"] in created])
    return [
        Enqueued(request.job(now), created=True)
        if request.id in created
        else _earlier(tx, request, now, alone=len(requests) == 1)
        for request in requests
    ]


def _event(job: dict[str, Any], now: float) -> dict[str, Any]:
    return moves.event(NEW | job, EventName.ENQUEUED, now, worker=None)


def _earlier(tx: Transaction, request: Request, now: float, *, alone: bool) -> Enqueued:
    """Return the job that was recorded for the request before, by this call or with its key."""
    if (row := tx.one("job", id=request.id)) is not None:
        return Enqueued(to_job(row), created=True)  # and only the answer had been lost
    if (job := request.same_as(tx)) is not None:
        return Enqueued(job, created=False)
    if not alone:  # out of the order of the keys, which keeps two batches from a deadlock
        raise Undone("a job with one of the keys was deleted at this moment; try again")
    # The job that had the key has been deleted meanwhile.
    [enqueued] = _insert_batch(tx, [request], now)
    return enqueued
