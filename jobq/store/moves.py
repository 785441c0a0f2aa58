"""The moves of a job, as steps within a transaction that the store has begun.

Every step changes the job, its attempt and the event log together, and says in its statement
what it believes about the job: status and token (see `sqlite.sql`).
"""

from typing import NamedTuple

from jobq.errors import LeaseLost
from jobq.job import EventName, Job, Status
from jobq.store.endings import Ending, after_crash
from jobq.store.engine import Row, RowRefused, Transaction
from jobq.store.rows import UnreadableJob, readable, to_job

SWEEP, WAKE = 100, 1_000  # jobs that one transaction moves at the most, so that others get on


class Lease(NamedTuple):
    """What a writer believes it holds."""

    job_id: str
    token: int
    worker: str | None


def log(
    tx: Transaction,
    job: Row,
    name: EventName,
    at: float,
    *,
    worker: str | None,
    error: str | None = None,
    progress: str | None = None,
) -> None:
    """Append what just happened to the event log; `job` is the row after it."""
    queued = job["status"] == Status.QUEUED
    tx.run(
        "insert_event",
        job_id=readable(job["id"]),
        at=at,
        name=name,
        status=job["status"],
        attempt=job["attempts"],
        token=job["token"],
        worker=worker,
        locked_until=job["locked_until"],
        run_after=job["run_after"] if queued else None,
        error=error,
        progress=progress,
    )


def make_ready(tx: Transaction, now: float) -> bool:
    """Put what has become runnable into the order of runnable jobs; False if there is more.

    Attempts whose lease ran out are closed: their jobs are queued again, or failed if that was
    the last attempt (G4). Delayed jobs whose time has come are woken.
    """
    woken = tx.run("wake_delayed", now=now, limit=WAKE)
    expired = tx.all("expired", now=now, limit=SWEEP)
    for row in expired:
        try:
            with tx.savepoint():
                end(tx, Lease(row["id"], row["token"], row["worker"]), after_crash(row), now)
        except RowRefused as error:
            set_aside(tx, row, now, f"this job's lease ran out and cannot be closed: {error}")
    return len(expired) < SWEEP and woken < WAKE


def end(tx: Transaction, lease: Lease, ending: Ending, now: float) -> Row | None:
    """End a lease as decided; None, and nothing changed, if the job is not under it any more."""
    row = tx.one(
        "end_lease",
        id=lease.job_id,
        token=lease.token,
        status=ending.status,
        attempts=ending.attempts,
        run_after=ending.run_after,
        ready=ending.run_after <= now,
        result=ending.result,
        error=ending.job_error,
        finished_at=now if ending.status.final else None,
        releases=ending.releases,
    )
    if row is None:
        return None
    tx.run(
        "end_attempt",
        job_id=lease.job_id,
        token=lease.token,
        ended_at=ending.ended_at,
        outcome=ending.outcome,
        error=ending.error,
    )
    log(tx, row, EventName(ending.outcome), now, worker=lease.worker, error=ending.error)
    return row


def take_first(tx: Transaction, worker: str, now: float, lease_seconds: float) -> Job | None:
    """Claim the first runnable job. A row that cannot be claimed is failed and passed over."""
    while True:
        try:
            with tx.savepoint():
                row = tx.one("claim", worker=worker, now=now, locked_until=now + lease_seconds)
                if row is None:
                    return None
                tx.run(
                    "insert_attempt",
                    job_id=row["id"],
                    token=row["token"],
                    number=row["attempts"],
                    worker=worker,
                    started_at=now,
                )
                log(tx, row, EventName.CLAIMED, now, worker=worker)
                return to_job(row)
        except (RowRefused, UnreadableJob) as error:
            [first] = tx.all("first_runnable", now=now)
            set_aside(tx, first, now, f"this job cannot be claimed: {error}")


def set_aside(tx: Transaction, job: Row, now: float, error: str) -> None:
    """Fail a job whose row some other program spoilt, so that those behind it are served."""
    [row] = tx.all("set_aside", seq=job["seq"], now=now, error=error)
    log(tx, row, EventName.REJECTED, now, worker=None, error=error)


def lease_lost(tx: Transaction, job: Job) -> LeaseLost:
    """Return the error that tells a late writer what became of the job."""
    row = tx.one("job", id=job.id)
    if row is None:
        why = "there is no such job any more"
    elif row["status"] != Status.RUNNING:
        why = f"the job is {row['status']}"
    else:
        why = f"{row['worker']} runs the job now, with token {row['token']}"
    return LeaseLost(job.id, job.token, why)
