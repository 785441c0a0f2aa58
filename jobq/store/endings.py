"""What an attempt's end makes of its job. Pure: `moves.end` acts on what is decided here.

Each function is given the job's row as it is under the lease.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jobq.job import Outcome, Status
from jobq.store.engine import Row

RAN_OUT = "ran out without a heartbeat"  # so ends the error of an attempt that ended with its lease
MAX_RELEASES = 100  # attempts that a job may be given back; they do not count among the others


@dataclass(frozen=True, slots=True)
class Ending:
    """The decision: what is written about the attempt, and what the job becomes."""

    outcome: Outcome
    ended_at: float
    status: Status
    attempts: int
    run_after: float  # earliest next attempt, if the job is queued again
    releases: int
    error: str | None = None  # of the attempt
    job_error: str | None = None  # of the job, if it gets a new one
    result: str | None = None  # JSON text


def after_success(row: Row, result: str, now: float) -> Ending:
    """Return the end of an attempt whose handler returned."""
    return _ending(row, Outcome.DONE, now, Status.DONE, result=result)


def after_failure(
    row: Row,
    error: str,
    now: float,
    delay: Callable[[int], float],
    *,
    final: bool,
    crashed: bool,
) -> Ending:
    """Return the end of an attempt whose handler raised, or whose process was seen to die.

    `delay` gives the wait in seconds after so many attempts; `final` forgoes those left.
    """
    outcome = Outcome.CRASHED if crashed else Outcome.FAILED
    errors, status = {"error": error, "job_error": error}, _next(row)
    if status is not Status.QUEUED:
        return _ending(row, outcome, now, status, **errors)
    if final:
        return _ending(row, outcome, now, Status.FAILED, **errors)
    return _ending(row, outcome, now, status, run_after=now + delay(row["attempts"]), **errors)


def after_crash(row: Row) -> Ending:
    """Return the end of an attempt whose lease ran out.

    There is no further wait: the lease has been waited for already, and a job whose lease ran out
    is taken by the next claim (G10). The attempt counts like any other, so a job that kills its
    workers is bounded (G4). It is no error of the job's, unless it was the last.
    """
    error, status, job_error = f"the lease of {row['worker']} {RAN_OUT}", _next(row), None
    if status is Status.FAILED:
        job_error = f"{error}; that was the last of {row['attempts']} attempts"
    return _ending(
        row, Outcome.CRASHED, row["locked_until"], status, error=error, job_error=job_error
    )


def after_release(row: Row, now: float) -> Ending:
    """Return the end of an attempt given back unharmed: not counted, and runnable at once.

    It counts among the releases, so that a job which is given back every time is bounded too.
    """
    releases = row["releases"] + 1
    status, error = Status.QUEUED, None
    if row["cancel_requested"]:
        status = Status.CANCELLED
    elif releases >= MAX_RELEASES:
        status, error = Status.FAILED, f"given back {releases} times and never brought to an end"
    changes = {"attempts": row["attempts"] - 1, "releases": releases}
    return _ending(row, Outcome.RELEASED, now, status, error=error, job_error=error, **changes)


def after_cancel(row: Row, now: float) -> Ending:
    """Return the end of an attempt that was stopped because its job is to be cancelled."""
    return _ending(row, Outcome.CANCELLED, now, Status.CANCELLED)


def _next(row: Row) -> Status:
    """Return what becomes of a job after an attempt that did not succeed.

    A job that is to be cancelled is cancelled, also after its last attempt: as a failed one it
    would be among those that an operator retries, who did not want it any more.
    """
    if row["cancel_requested"]:
        return Status.CANCELLED
    return Status.FAILED if row["attempts"] >= row["max_attempts"] else Status.QUEUED


def _ending(row: Row, outcome: Outcome, ended_at: float, status: Status, **changes: Any) -> Ending:
    """Return a decision that leaves the row's numbers as they are, but for the changes."""
    kept = {name: row[name] for name in ("attempts", "run_after", "releases")}
    return Ending(outcome, ended_at, status, **(kept | changes))
