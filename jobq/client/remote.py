"""Jobs and events as the API tells of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from jobq.errors import ClientError
from jobq.job import EventName, Progress, Status


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """A job as it was when the server told of it."""

    id: str
    status: Status
    attempts: int  # counted attempts so far, the present one included
    result: Any = field(repr=False)
    error: str | None
    progress: Progress | None
    cancel_requested: bool  # while it runs
    kind: str | None  # where operators are told: cancel, retry, list

    @classmethod
    def of(cls, data: Any) -> Self:
        """Return the job that the API describes so. Raises ClientError."""
        try:
            return cls(
                id=str(data["id"]),
                status=Status(data["status"]),
                attempts=int(data["attempts"]),
                result=data["result"],
                error=data["error"],
                progress=_progress(data.get("progress")),
                cancel_requested=bool(data.get("cancel_requested")),
                kind=data.get("kind"),
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise _strange("job", data, error) from None


@dataclass(frozen=True, slots=True)
class RemoteEvent:
    """One line of the server's event log."""

    seq: int  # grows with every event of the store
    job_id: str
    at: datetime
    name: EventName
    status: Status  # of the job, after the event
    attempt: int
    worker: str | None
    error: str | None
    progress: Progress | None

    @classmethod
    def of(cls, data: Any) -> Self:
        """Return the event that the API describes so. Raises ClientError."""
        try:
            return cls(
                seq=int(data["seq"]),
                job_id=str(data["job_id"]),
                at=datetime.fromisoformat(data["at"]),
                name=EventName(data["name"]),
                status=Status(data["status"]),
                attempt=int(data["attempt"]),
                worker=data["worker"],
                error=data["error"],
                progress=_progress(data["progress"]),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise _strange("event", data, error) from None


def _progress(data: Mapping[str, Any] | None) -> Progress | None:
    return None if data is None else Progress(data["done"], data["total"], data["message"])


def _strange(what: str, data: Any, error: Exception) -> ClientError:
    why = f"{type(error).__name__}: {error}"
    return ClientError(
        f"the server tells of a {what} as no jobq of this version does ({why}): {data!r:.200}"
    )
