"""jobq: a durable job queue to learn from, with the course that breaks it on purpose.

A job lives in the store; a worker runs it; the api answers for it.
"""

from jobq.errors import (
    ForeignFile,
    IdempotencyConflict,
    InvalidInput,
    JobqError,
    LeaseLost,
    NotStrictJson,
    SchemaTooNew,
    StoreBusy,
    StoreError,
    UnknownJob,
)
from jobq.handlers import Context, Registry, handler
from jobq.job import Attempt, Event, EventName, Job, Outcome, Stats, Status
from jobq.retry import RetryPolicy
from jobq.store import Enqueued, Store, open_store
from jobq.worker import Worker

__all__ = [
    "Attempt",
    "Context",
    "Enqueued",
    "Event",
    "EventName",
    "ForeignFile",
    "IdempotencyConflict",
    "InvalidInput",
    "Job",
    "JobqError",
    "LeaseLost",
    "NotStrictJson",
    "Outcome",
    "Registry",
    "RetryPolicy",
    "SchemaTooNew",
    "Stats",
    "Status",
    "Store",
    "StoreBusy",
    "StoreError",
    "UnknownJob",
    "Worker",
    "handler",
    "open_store",
]
