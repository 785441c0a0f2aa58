"""jobq: a durable job queue to learn from, with the course that breaks it on purpose.

A job lives in the store; a worker runs it; the api answers for it.
"""

from jobq.errors import (
    DataError,
    ForeignFile,
    IdempotencyConflict,
    InvalidInput,
    JobqError,
    LabError,
    LeaseLost,
    NotStrictJson,
    SchemaTooNew,
    SettingsInvalid,
    StoreBusy,
    StoreError,
    UnknownJob,
    UnsafeFilesystem,
    WaitTimedOut,
)
from jobq.handlers import Context, Registry, handler
from jobq.job import Attempt, Event, EventName, Job, Outcome, Stats, Status
from jobq.retry import RetryPolicy
from jobq.store import Enqueued, Store, open_store
from jobq.worker import Worker

__all__ = [
    "Attempt",
    "Context",
    "DataError",
    "Enqueued",
    "Event",
    "EventName",
    "ForeignFile",
    "IdempotencyConflict",
    "InvalidInput",
    "Job",
    "JobqError",
    "LabError",
    "LeaseLost",
    "NotStrictJson",
    "Outcome",
    "Registry",
    "RetryPolicy",
    "SchemaTooNew",
    "SettingsInvalid",
    "Stats",
    "Status",
    "Store",
    "StoreBusy",
    "StoreError",
    "UnknownJob",
    "UnsafeFilesystem",
    "WaitTimedOut",
    "Worker",
    "handler",
    "open_store",
]
