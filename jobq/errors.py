"""Every error that jobq raises on purpose, in one tree.

JobqError
├── InvalidInput          what came in breaks a rule (also a ValueError)
│   └── NotStrictJson     a payload, result or error text that JSON cannot carry exactly
├── UnknownJob            no job has this id (also a LookupError)
├── WrongStatus           an operator asked for what the job's status does not allow
├── IdempotencyConflict   the key was used before, for another request
├── LeaseLost             a worker wrote to a job that is no longer its own
├── WriteFailed           what was to be committed with a result could not be written
├── Retry                 raised by a handler: try again, after a wait of its own choice
├── Permanent             raised by a handler: another attempt could not succeed
├── Cancelled             raised by a handler, or by its Context: the job is to be cancelled
├── ClientError           the API gave no answer that a client could use
│   ├── ServerRefused     it declined, and says why
│   ├── ServerUnreachable it did not answer in time
│   └── JobUnfinished     the job was not final in time
├── SettingsInvalid       one or more settings break a rule; all are named at once
├── DataError             the sales data is missing or malformed
├── StoreError            the database cannot be used as it is
│   ├── ForeignFile       the database holds something else
│   ├── SchemaTooNew      the store was made by a later jobq
│   ├── StoreBusy         another transaction was in the way for too long
│   ├── StoreUnreachable  the database's server does not answer, or the connection to it broke
│   └── UnsafeFilesystem  write-ahead logging would lose data there
└── LabError              an experiment could not be carried out
    └── WaitTimedOut      what was waited for did not come

Each message names the value, the rule and the mend.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any


class JobqError(Exception):
    """The base of every error that jobq raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes: the ordinary way would call __init__ with the message."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[JobqError], args: tuple[Any, ...], state: dict[str, Any]) -> JobqError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidInput(JobqError, ValueError):
    """What came in breaks a rule."""


class NotStrictJson(InvalidInput):
    """A value that JSON cannot carry unchanged: NaN, NUL, a lone surrogate, too deep, too large."""


class UnknownJob(JobqError, LookupError):
    """No job has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job has the id {job_id!r}; `jobq list` shows those there are")
        self.job_id = job_id


class WrongStatus(JobqError):
    """What was asked for is not possible for a job of this status; nothing was changed."""

    def __init__(self, job_id: str, status: str, rule: str) -> None:
        super().__init__(f"job {job_id} is {status}: {rule}")
        self.job_id = job_id
        self.status = status


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


class WriteFailed(JobqError):
    """A write that was to be committed together with a result raised; nothing was changed."""


class Retry(JobqError):
    """Raised by a handler that wants another attempt, `after` seconds from now.

    The attempt counts like any that failed, so that no job is tried for ever. Without `after` the
    retry policy says how long to wait.
    """

    def __init__(
        self, why: str = "the handler asked for another attempt", *, after: float | None = None
    ) -> None:
        super().__init__(why)
        if after is not None and (type(after) not in {int, float} or not 0 <= after < math.inf):
            raise InvalidInput(f"after is {after!r}: use a number of seconds of at least 0")
        self.after = after


class Permanent(JobqError):
    """Raised by a handler when another attempt could not succeed: the job is failed at once."""


class Cancelled(JobqError):
    """Raised by a handler that stops because the job is to be cancelled."""


class ClientError(JobqError):
    """The API gave no answer that a client could use."""


class ServerRefused(ClientError):
    """The API declined a request. `problem` is its document (RFC 9457), `type` what to compare."""

    def __init__(self, request: str, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.type = str(problem.get("type", "about:blank"))
        self.detail = str(problem.get("detail", ""))
        title = str(problem.get("title", "no problem document"))
        super().__init__(f"{request}: {status} {title}: {self.detail}")


class ServerUnreachable(ClientError):
    """The API did not answer in time, though it was asked again and again."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{url} gives no answer ({why}): is `jobq serve` running there?")


class JobUnfinished(ClientError):
    """A job was not final in time; it goes on all the same."""

    def __init__(self, job_id: str, status: str, seconds: float) -> None:
        super().__init__(
            f"job {job_id} is still {status} after {seconds:g} s: wait longer, or see that a "
            "worker runs (`jobq worker`)"
        )
        self.job_id = job_id
        self.status = status


class SettingsInvalid(JobqError):
    """One or more settings break a rule; the message names all of them."""


class DataError(JobqError):
    """The sales data is missing or malformed."""


class StoreError(JobqError):
    """The database cannot be used as it is."""


class ForeignFile(StoreError):
    """The file, or the schema of the database, is not a jobq store."""


class SchemaTooNew(StoreError):
    """The store was made by a later version of jobq."""


class StoreBusy(StoreError):
    """Another transaction was in the way for longer than the limit; nothing was changed."""


class StoreUnreachable(StoreError):
    """The database's server does not answer, or the connection to it broke."""


class UnsafeFilesystem(StoreError):
    """The file lies where write-ahead logging is not safe."""


class LabError(JobqError):
    """An experiment could not be carried out."""


class WaitTimedOut(LabError):
    """What was waited for did not come within its deadline."""
