"""What is asked of enqueue: checked at the door, and compared when its key comes again. Pure."""

import json
import reprlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from jobq import strictjson
from jobq.checks import check_integer, check_seconds
from jobq.errors import IdempotencyConflict, InvalidInput
from jobq.job import Job, Progress, Status
from jobq.retry import RetryPolicy
from jobq.store.engine import Transaction
from jobq.store.rows import MAX_PROGRESS, check_progress, to_job

MAX_ATTEMPTS = 1_000_000
MAX_PRIORITY = 1_000
AGEING_SECONDS = 60.0  # a step of priority is worth this much waiting: nobody waits for ever (G9)


class Request:
    """A job that is wanted. Raises InvalidInput for what breaks a rule."""

    def __init__(
        self,
        kind: str,
        payload: dict[str, Any],
        idempotency_key: str | None = None,
        *,
        max_attempts: int = 3,
        run_after: float = 0.0,
        priority: int = 0,
        retry: RetryPolicy | None = None,
        max_bytes: int = strictjson.MAX_BYTES,
    ) -> None:
        self.id = secrets.token_hex(
            16
        )  # now, so that a call that is repeated asks for the same job
        self._kind = strictjson.check_name(kind, "kind")
        if type(payload) is not dict:
            raise InvalidInput(f"payload is a {type(payload).__name__}: use a dict")
        self._payload = payload
        self._text = strictjson.encode(payload, "payload", max_bytes=max_bytes)
        if idempotency_key is not None:
            strictjson.check_name(idempotency_key, "idempotency key")
        self.key = idempotency_key
        self._max_attempts = check_integer(max_attempts, "max_attempts", 1, MAX_ATTEMPTS)
        self._run_after = check_seconds(run_after, "run_after", least=0)
        if retry is not None and type(retry) is not RetryPolicy:
            raise InvalidInput(f"retry is {reprlib.repr(retry)}: use a RetryPolicy")
        self._retry = retry
        self._priority = check_integer(priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)

    def columns(self, now: float) -> dict[str, Any]:
        """Return the columns of the new job's row."""
        return {
            "id": self.id,
            "kind": self._kind,
            "payload": self._text,
            "idempotency_key": self.key,
            "max_attempts": self._max_attempts,
            "priority": self._priority,
            # Jobs are taken in the order of this number: older first, as if a job with priority p
            # had come p x 60 s earlier. So an urgent job overtakes, but not those that have waited.
            "rank": now - self._priority * AGEING_SECONDS,
            "run_after": self._run_after,
            "ready": self._run_after <= now,
            "retry": None if self._retry is None else json.dumps(asdict(self._retry)),
            "created_at": now,
        }

    def job(self, now: float) -> Job:
        """Return the new job."""
        return Job(
            id=self.id,
            kind=self._kind,
            payload=strictjson.decode(self._text),  # a value of its own
            status=Status.QUEUED,
            attempts=0,
            max_attempts=self._max_attempts,
            priority=self._priority,
            token=0,
            run_after=float(self._run_after),
            created_at=now,
            idempotency_key=self.key,
            retry=self._retry,
        )

    def same_as(self, tx: Transaction) -> Job | None:
        """Return the job that has the key already, if it was asked for in the same words.

        None if there is none. Raises IdempotencyConflict, which names the fields of the payload
        that differ.
        """
        row = tx.one("job_of_key", idempotency_key=self.key)
        if row is None:
            return None
        job = to_job(row)
        differing = strictjson.differing_fields(job.payload, self._payload)
        if job.kind != self._kind:
            differing.insert(0, "kind")
        if differing:
            raise IdempotencyConflict(str(self.key), job.id, differing)
        return job


ARGUMENTS = (
    "kind",
    "payload",
    "idempotency_key",
    "max_attempts",
    "run_after",
    "priority",
    "retry",
)


def to_requests(jobs: Iterable[Mapping[str, Any]], max_bytes: int) -> list[Request]:
    """Return what is asked for by mappings of enqueue's arguments.

    Raises InvalidInput, or NotStrictJson, which says which of them breaks a rule.
    """
    requests = []
    for number, job in enumerate(jobs):
        try:
            requests.append(_to_request(job, max_bytes))
        except InvalidInput as error:
            raise type(error)(f"jobs[{number}]: {error}") from error
    return requests


def _to_request(job: Mapping[str, Any], max_bytes: int) -> Request:
    if not isinstance(job, Mapping):
        raise InvalidInput(f"it is a {type(job).__name__}: use a mapping of enqueue's arguments")
    for name in job:
        if name not in ARGUMENTS:
            raise InvalidInput(f"it has {reprlib.repr(name)}: use {', '.join(ARGUMENTS)}")
    for name in ("kind", "payload"):
        if name not in job:
            raise InvalidInput(f"it has no {name}: every job needs one")
    return Request(**job, max_bytes=max_bytes)


def progress_text(progress: Progress) -> str:
    """Return the progress as JSON. Raises InvalidInput for what breaks a rule."""
    check_progress(progress)
    return strictjson.encode(asdict(progress), "progress", max_bytes=MAX_PROGRESS)
