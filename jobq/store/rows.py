"""From rows of the database to the values of `jobq.job`."""

from jobq import strictjson
from jobq.errors import StoreError
from jobq.job import Attempt, Event, EventName, Job, Outcome, Status
from jobq.store.engine import Row


class UnreadableJob(StoreError):
    """A row that some other program changed into something that is no job."""


def to_job(row: Row) -> Job:
    """Return the job; raise UnreadableJob if its row holds what jobq would not have written."""
    try:
        f"{row['id']}{row['kind']}{row['payload']}".encode()  # fails for bytes that are no text
        return _job(row)
    except (ValueError, RecursionError) as error:
        raise UnreadableJob(
            f"something other than jobq has changed job {readable(row['id'])}: {error}"
        ) from error


def readable(text: str) -> str:
    """Return the text with escapes for those bytes that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _job(row: Row) -> Job:
    return Job(
        id=row["id"],
        kind=row["kind"],
        payload=strictjson.decode(row["payload"]),
        status=Status(row["status"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        priority=row["priority"],
        token=row["token"],
        run_after=float(row["run_after"]),
        created_at=float(row["created_at"]),
        worker=row["worker"],
        locked_until=_time(row["locked_until"]),
        finished_at=_time(row["finished_at"]),
        idempotency_key=row["idempotency_key"],
        result=None if row["result"] is None else strictjson.decode(row["result"]),
        error=row["error"],
    )


def to_attempt(row: Row) -> Attempt:
    """Return the attempt."""
    return Attempt(
        job_id=row["job_id"],
        number=row["number"],
        token=row["token"],
        worker=row["worker"],
        started_at=float(row["started_at"]),
        ended_at=_time(row["ended_at"]),
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        error=row["error"],
    )


def to_event(row: Row) -> Event:
    """Return the event."""
    return Event(
        seq=row["seq"],
        job_id=row["job_id"],
        at=float(row["at"]),
        name=EventName(row["name"]),
        status=Status(row["status"]),
        attempt=row["attempt"],
        token=row["token"],
        worker=row["worker"],
        locked_until=_time(row["locked_until"]),
        run_after=_time(row["run_after"]),
        error=row["error"],
    )


def _time(value: float | None) -> float | None:
    """Return a time as a float: SQLite gives a whole number of seconds as an int."""
    return None if value is None else float(value)
