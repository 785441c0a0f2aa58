"""What an attempt's end makes of its job. Pure: `moves.end` acts on what is decided here."""

from collections.abc import Callable
from dataclasses import dataclass

from jobq.job import Job, Outcome, Status
from jobq.retry import RetryPolicy
from jobq.store.engine import Row


@dataclass(frozen=True, slots=True)
class Ending:
    """The decision: what is written about the attempt, and what the job becomes."""

    outcome: Outcome
    ended_at: float
    status: Status
    attempts: int
    run_after: float  # earliest next attempt, if the job is queued again
    error: str | None = None  # of the attempt
    job_error: str | None = None  # of the job, if it gets a new one
    result: str | None = None  # JSON text


def after_success(job: Job, result: str, now: float) -> Ending:
    """Return the end of an attempt whose handler returned."""
    return Ending(Outcome.DONE, now, Status.DONE, job.attempts, job.run_after, result=result)


def after_failure(
    job: Job,
    error: str,
    now: float,
    policy: RetryPolicy,
    random: Callable[[], float],
    *,
    final: bool,
) -> Ending:
    """Return the end of an attempt whose handler raised; `final` forgoes the attempts left."""
    if final or job.attempts >= job.max_attempts:
        status, run_after = Status.FAILED, job.run_after
    else:
        status, run_after = Status.QUEUED, now + policy.delay(job.attempts, random)
    return Ending(Outcome.FAILED, now, status, job.attempts, run_after, error, job_error=error)


def after_crash(row: Row) -> Ending:
    """Return the end of an attempt whose lease ran out.

    There is no further wait: the lease has been waited for already, and a job whose lease ran out
    is taken by the next claim (G10). The attempt counts like any other, so a job that kills its
    workers is bounded (G4). It is no error of the job's, unless it was the last.
    """
    attempts, ended_at, run_after = row["attempts"], row["locked_until"], row["run_after"]
    error = f"the lease of {row['worker']} ran out without a heartbeat"
    if attempts < row["max_attempts"]:
        return Ending(Outcome.CRASHED, ended_at, Status.QUEUED, attempts, run_after, error)
    last = f"{error}; that was the last of {attempts} attempts"
    return Ending(Outcome.CRASHED, ended_at, Status.FAILED, attempts, run_after, error, last)


def after_release(job: Job, now: float) -> Ending:
    """Return the end of an attempt given back unharmed: not counted, and runnable at once."""
    return Ending(Outcome.RELEASED, now, Status.QUEUED, job.attempts - 1, job.run_after)
