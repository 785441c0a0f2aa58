"""The moves of a job, as steps within a transaction that the store has begun.

Every step changes the job, its attempt and the event log together, and says in its statement
what it believes about the job: status and token (see `sqlite.sql`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

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
    tx.each("insert_event", [event(job, name, at, worker, error=error, progress=progress)])


def event(
    job: Row,
    name: EventName,
    at: float,
    worker: str | None,
    *,
    error: str | None = None,
    progress: str | None = None,
) -> dict[str, Any]:
    """Return the columns of an event; `job` is the row after it."""
    queued = job["status"] == Status.QUEUED
    return {
        "job_id": readable(job["id"]),
        "at": at,
        "name": name,
        "status": job["status"],
        "attempt": job["attempts"],
        "token": job["token"],
        "worker": worker,
        "locked_until": job["locked_until"],
        "run_after": job["run_after"] if queued else None,
        "error": error,
        "progress": progress,
    }


def make_ready(tx: Transaction, now: float) -> bool:
    """Put what has become runnable into the order of runnable jobs; False if there is more.

    Attempts whose lease ran out are closed: their jobs are queued again, or failed if that was
    the last attempt (G4). Delayed jobs whose time has come are woken.
    """
    woken = tx.run("wake_delayed", now=now, limit=WAKE)
    expired = tx.all("expired", now=now, limit=SWEEP)
    for row in expired:
        lease = Lease(row["id"], row["token"], row["worker"])
        try:
            with tx.savepoint():
                end(tx, [(lease, after_crash(row))], now)
        except RowRefused as error:
            set_aside(tx, row, now, f"this job's lease ran out and cannot be closed: {error}")
    return len(expired) < SWEEP and woken < WAKE


def end(tx: Transaction, endings: Sequence[tuple[Lease, Ending]], now: float) -> dict[str, Row]:
    """End leases as decided, of jobs that are all different.

    Returns the rows of the jobs after it by their ids, without those that are not under their
    lease any more: of these nothing has changed.
    """
    written = tx.each("end_lease", [_columns(lease, ending, now) for lease, ending in endings])
    rows = {row["id"]: row for row in written}
    ended = [(lease, ending) for lease, ending in endings if lease.job_id in rows]
    tx.each(
        "end_attempt",
        [
            {
                "job_id": lease.job_id,
                "token": lease.token,
                "ended_at": ending.ended_at,
                "outcome": ending.outcome,
                "error": ending.error,
            }
            for lease, ending in ended
        ],
    )
    tx.each(
        "insert_event",
        [
            event(rows[lease.job_id], name, now, lease.worker, error=ending.error)
            for lease, ending in ended
            for name in [EventName(ending.outcome)]
        ],
    )
    return rows


def _columns(lease: Lease, ending: Ending, now: float) -> dict[str, Any]:
    return {
        "id": lease.job_id,
        "token": lease.token,
        "status": ending.status,
        "attempts": ending.attempts,
        "run_after": ending.run_after,
        "ready": ending.run_after <= now,
        "result": ending.result,
        "error": ending.job_error,
        "finished_at": now if ending.status.final else None,
        "releases": ending.releases,
    }


class Claimer(NamedTuple):
    """Who claims, for how long, and when."""

    worker: str
    lease_seconds: float
    now: float  # by which jobs are runnable
    test_now: float | None  # when the attempt begins; None: whenever the database gets to it


def take(tx: Transaction, claimer: Claimer, limit: int) -> list[Job]:
    """Claim the first runnable jobs.

    Raises RowRefused or UnreadableJob for a row that cannot be claimed; `take_singly` passes it
    over.
    """
    return _begun(tx, tx.all("claim", **claimer._asdict(), limit=limit), claimer)


def take_singly(tx: Transaction, claimer: Claimer, limit: int) -> list[Job]:
    """Claim the first runnable jobs one by one; one that cannot be claimed is failed."""
    jobs: list[Job] = []
    while len(jobs) < limit:
        first = tx.one("first_runnable", now=claimer.now)
        if first is None:
            break
        try:
            with tx.savepoint():
                rows = tx.all("claim_this", **claimer._asdict(), seq=first["seq"])
                jobs += _begun(tx, rows, claimer)
        except (RowRefused, UnreadableJob) as error:
            set_aside(tx, first, claimer.now, f"this job cannot be claimed: {error}")
    return jobs


def _begun(tx: Transaction, rows: Sequence[Row], claimer: Claimer) -> list[Job]:
    """Record that the attempts at claimed jobs have begun; return the jobs in their order."""
    rows = sorted(rows, key=lambda row: (row["rank"], row["seq"]))
    tx.each(
        "insert_attempt",
        [
            {
                "job_id": row["id"],
                "token": row["token"],
                "number": row["attempts"],
                "worker": claimer.worker,
                "started_at": row["started_at"],
            }
            for row in rows
        ],
    )
    tx.each(
        "insert_event",
        [event(row, EventName.CLAIMED, row["started_at"], claimer.worker) for row in rows],
    )
    return [to_job(row) for row in rows]


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
