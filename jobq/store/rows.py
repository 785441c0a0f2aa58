"""From rows of the database to the values of `jobq.job`."""

import reprlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jobq import strictjson
from jobq.checks import check_number
from jobq.errors import InvalidInput, StoreError
from jobq.job import Attempt, Event, EventName, Job, Outcome, Progress, Status
from jobq.retry import RetryPolicy
from jobq.store.engine import Row

MAX_PROGRESS = 4_000  # bytes of JSON, with each heartbeat


class UnreadableJob(StoreError):
    """A row that some other program changed into something that is no job."""


def to_job(row: Row) -> Job:
    """Return the job; raise UnreadableJob if its row holds what jobq would not have written."""
    job, faults = _read(row)
    if faults:
        raise _unreadable(row, faults)
    return job


def to_listed_job(row: Row) -> Job:
    """Return the job; of a row that is no job what can be read, with the fault as its error.

    So one such row does not hide the others of its page.
    """
    job, faults = _read(row)
    return replace(job, error=str(_unreadable(row, faults))) if faults else job


def readable(text: str) -> str:
    """Return the text with escapes for those bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def to_attempt(row: Row) -> Attempt:
    """Return the attempt."""
    return Attempt(
        job_id=row["job_id"],
        number=row["number"],
        token=row["token"],
        worker=readable(row["worker"]),
        started_at=float(row["started_at"]),
        ended_at=_time(row["ended_at"]),
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        error=None if row["error"] is None else readable(row["error"]),
    )


def to_event(row: Row) -> Event | None:
    """Return the event; None for a row that is none, so that it does not stop the log."""
    try:
        return Event(
            seq=row["seq"],
            job_id=_text(row["job_id"]),
            at=float(row["at"]),
            name=EventName(row["name"]),
            status=Status(row["status"]),
            attempt=row["attempt"],
            token=row["token"],
            worker=_or_none(_text)(row["worker"]),
            locked_until=_time(row["locked_until"]),
            run_after=_time(row["run_after"]),
            error=_or_none(_text)(row["error"]),
            progress=_or_none(_progress)(row["progress"]),
        )
    except FAULTS:
        return None


def _read(row: Row) -> tuple[Job, list[str]]:
    """Return what can be read of the job, and what is wrong with the rest."""
    fields: dict[str, Any] = {}
    faults = []
    for name, (read, instead) in _COLUMNS.items():
        value = row[name]
        try:
            fields[name] = read(value)
        except FAULTS as error:
            fields[name] = instead(value)
            faults.append(f"{name}: {error}")
    return Job(**fields), faults


def _unreadable(row: Row, faults: list[str]) -> UnreadableJob:
    return UnreadableJob(
        f"something other than jobq has changed job {readable(row['id'])}: {'; '.join(faults)}"
    )


def _text(value: str) -> str:
    value.encode()  # raises for bytes that are no UTF-8
    return value


def _kind(value: str) -> str:
    return strictjson.check_name(_text(value), "kind")


def _payload(value: str) -> dict[str, Any]:
    payload = strictjson.decode(_text(value))
    if type(payload) is not dict:
        raise TypeError(f"a {type(payload).__name__}, not a dict")
    return payload


def _json(value: str) -> Any:
    return strictjson.decode(_text(value))


def check_progress(progress: Progress) -> Progress:
    """Return progress that every store can keep. Raises InvalidInput."""
    if type(progress) is not Progress:
        raise InvalidInput(f"progress is {reprlib.repr(progress)}: use a Progress")
    check_number(progress.done, "progress done", least=0)
    if progress.total is not None:
        check_number(progress.total, "progress total", least=0)
    strictjson.check_text(progress.message, "progress message", max_bytes=MAX_PROGRESS)
    return progress


def _progress(value: str) -> Progress:
    return check_progress(Progress(**_json(value)))


def _policy(value: str) -> RetryPolicy:
    return RetryPolicy(**_json(value))


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _time(value: float | None) -> float | None:
    """Return a time as a float: SQLite gives a whole number of seconds as an int."""
    return None if value is None else float(value)


def _same(value: Any) -> Any:
    return value


def _nothing(_: Any) -> None:
    return None


FAULTS = (ValueError, TypeError, RecursionError)  # of a reader that met what jobq does not write

# How each column is read, and what stands in its place if that cannot be. The tables are STRICT,
# so that every value is of its column's type.
_COLUMNS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "id": (_text, readable),
    "kind": (_kind, readable),
    "payload": (_payload, lambda _: {}),
    "status": (Status, lambda _: Status.FAILED),
    "attempts": (_same, _same),
    "max_attempts": (_same, _same),
    "priority": (_same, _same),
    "token": (_same, _same),
    "run_after": (float, _same),
    "created_at": (float, _same),
    "worker": (_or_none(_text), readable),
    "locked_until": (_time, _same),
    "started_at": (_time, _same),
    "finished_at": (_time, _same),
    "cancel_requested": (bool, _same),
    "progress": (_or_none(_progress), _nothing),
    "retry": (_or_none(_policy), _nothing),
    "idempotency_key": (_or_none(_text), readable),
    "result": (_or_none(_json), _nothing),
    "error": (_or_none(_text), readable),
}
