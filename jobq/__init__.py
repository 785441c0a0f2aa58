"""jobq: a durable job queue to learn from, with the course that breaks it on purpose.

A job lives in the store; a worker runs it; the api answers for it.
"""

import typing

from jobq.context import Context
from jobq.errors import (
    Cancelled,
    ClientError,
    DataError,
    ForeignFile,
    IdempotencyConflict,
    InvalidInput,
    JobqError,
    JobUnfinished,
    LabError,
    LeaseLost,
    NotStrictJson,
    Permanent,
    Retry,
    SchemaTooNew,
    ServerRefused,
    ServerUnreachable,
    SettingsInvalid,
    StoreBusy,
    StoreError,
    StoreUnreachable,
    UnknownJob,
    UnsafeFilesystem,
    WaitTimedOut,
    WriteFailed,
    WrongStatus,
)
from jobq.handlers import Kind, Registry, handler
from jobq.job import Attempt, Event, EventName, Job, Outcome, Progress, Stats, Status
from jobq.retry import RetryPolicy
from jobq.store import Enqueued, Store, open_store
from jobq.worker import Worker

if typing.TYPE_CHECKING:
    from jobq.client import Client

__all__ = [
    "Attempt",
    "Cancelled",
    "Client",
    "ClientError",
    "Context",
    "DataError",
    "Enqueued",
    "Event",
    "EventName",
    "ForeignFile",
    "IdempotencyConflict",
    "InvalidInput",
    "Job",
    "JobUnfinished",
    "JobqError",
    "Kind",
    "LabError",
    "LeaseLost",
    "NotStrictJson",
    "Outcome",
    "Permanent",
    "Progress",
    "Registry",
    "Retry",
    "RetryPolicy",
    "SchemaTooNew",
    "ServerRefused",
    "ServerUnreachable",
    "SettingsInvalid",
    "Stats",
    "Status",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreUnreachable",
    "UnknownJob",
    "UnsafeFilesystem",
    "WaitTimedOut",
    "Worker",
    "WriteFailed",
    "WrongStatus",
    "handler",
    "open_store",
]


def __getattr__(name: str) -> typing.Any:
    """Import the client when it is first asked for: httpx takes as long as all the rest."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jobq.client import Client  # noqa: PLC0415 - see above

    return Client


def __dir__() -> list[str]:
    """Name the client too, for whoever completes a name in a notebook."""
    return sorted({*globals(), *__all__})
