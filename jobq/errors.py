"""Every error that jobq raises on purpose, in one tree.

JobqError
├── InvalidInput          what came in breaks a rule (also a ValueError)
│   └── NotStrictJson     a payload, result or error text that JSON cannot carry exactly
├── UnknownJob            no job has this id (also a LookupError)
├── IdempotencyConflict   the key was used before, for another request
├── LeaseLost             a worker wrote to a job that is no longer its own
├── SettingsInvalid       one or more settings break a rule; all are named at once
├── DataError             the sales data is missing or malformed
├── StoreError            the database cannot be used as it is
│   ├── ForeignFile       the file holds something else
│   ├── SchemaTooNew      the file was written by a later jobq
│   ├── StoreBusy         another process held the write lock for too long
│   └── UnsafeFilesystem  write-ahead logging would lose data there
└── LabError              an experiment could not be carried out
    └── WaitTimedOut      what was waited for did not come

Each message names the value, the rule and the mend.
"""

from collections.abc import Sequence


class JobqError(Exception):
    """The base of every error that jobq raises on purpose."""


class InvalidInput(JobqError, ValueError):
    """What came in breaks a rule."""


class NotStrictJson(InvalidInput):
    """A value that JSON cannot carry unchanged: NaN, NUL, a lone surrogate, too deep, too large."""


class UnknownJob(JobqError, LookupError):
    """No job has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job has the id {job_id!r}; `jobq list` shows those there are")
        self.job_id = job_id


class IdempotencyConflict(JobqError):
    """The idempotency key belongs to a job that was asked for differently."""

    def __init__(self, key: str, job_id: str, differing: Sequence[str]) -> None:
        super().__init__(
            f"idempotency key {key!r} already belongs to job {job_id}, asked for with other "
            f"values of: {', '.join(differing)}; repeat the first request exactly, or use a new key"
        )
        self.key = key
        self.job_id = job_id
        self.differing = tuple(differing)


class LeaseLost(JobqError):
    """A worker wrote to a job that is no longer its own; nothing was changed."""

    def __init__(self, job_id: str, token: int, why: str) -> None:
        super().__init__(f"the lease with token {token} on job {job_id} is lost: {why}")
        self.job_id = job_id
        self.token = token
        self.why = why


class SettingsInvalid(JobqError):
    """One or more settings break a rule; the message names all of them."""


class DataError(JobqError):
    """The sales data is missing or malformed."""


class StoreError(JobqError):
    """The database cannot be used as it is."""


class ForeignFile(StoreError):
    """The file is not a jobq store."""


class SchemaTooNew(StoreError):
    """The file was written by a later version of jobq."""


class StoreBusy(StoreError):
    """Another process held the write lock for longer than the limit."""


class UnsafeFilesystem(StoreError):
    """The file lies where write-ahead logging is not safe."""


class LabError(JobqError):
    """An experiment could not be carried out."""


class WaitTimedOut(LabError):
    """What was waited for did not come within its deadline."""
