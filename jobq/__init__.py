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
from jobq.job import Attempt, Event, EventName, Job, Outcome, Stats, Status
from jobq.retry import RetryPolicy
from jobq.store import Enqueued, Store, open_store

__all__ = [
    "Attempt",
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
    "RetryPolicy",
    "SchemaTooNew",
    "Stats",
    "Status",
    "Store",
    "StoreBusy",
    "StoreError",
    "UnknownJob",
    "open_store",
]
