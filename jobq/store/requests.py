"""What is asked of enqueue: checked at the door, and compared when its key comes again. Pure."""

from typing import Any

from jobq import strictjson
from jobq.checks import check_integer, check_seconds
from jobq.errors import IdempotencyConflict, InvalidInput
from jobq.job import Job
from jobq.store.engine import Row
from jobq.store.rows import to_job

MAX_ATTEMPTS = 1_000_000
MAX_PRIORITY = 1_000
AGEING_SECONDS = 60.0  # a step of priority is worth this much waiting: nobody waits for ever (G9)


class Request:
    """A job that is wanted. Raises InvalidInput for what breaks a rule."""

    def __init__(
        self,
        kind: str,
        payload: dict[str, Any],
        idempotency_key: str | None,
        *,
        max_attempts: int,
        run_after: float,
        priority: int,
        max_bytes: int,
    ) -> None:
        self._kind = strictjson.check_name(kind, "kind")
        if type(payload) is not dict:
            raise InvalidInput(f"payload is a {type(payload).__name__}: use a dict")
        self._payload = payload
        self._text = strictjson.encode(payload, "payload", max_bytes=max_bytes)
        if idempotency_key is not None:
            strictjson.check_name(idempotency_key, "idempotency key")
        self._key = idempotency_key
        self._max_attempts = check_integer(max_attempts, "max_attempts", 1, MAX_ATTEMPTS)
        self._run_after = check_seconds(run_after, "run_after", least=0)
        self._priority = check_integer(priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)

    def columns(self, now: float) -> dict[str, Any]:
        """Return the columns of the new job's row, but for its id."""
        return {
            "kind": self._kind,
            "payload": self._text,
            "idempotency_key": self._key,
            "max_attempts": self._max_attempts,
            "priority": self._priority,
            # Jobs are taken in the order of this number: older first, as if a job with priority p
            # had come p x 60 s earlier. So an urgent job overtakes, but not those that have waited.
            "rank": now - self._priority * AGEING_SECONDS,
            "run_after": self._run_after,
            "ready": self._run_after <= now,
            "created_at": now,
        }

    def same_as(self, row: Row) -> Job:
        """Return the job that has the key already, if it was asked for in the same words.

        Raises IdempotencyConflict, which names the fields of the payload that differ.
        """
        job = to_job(row)
        differing = strictjson.differing_fields(job.payload, self._payload)
        if job.kind != self._kind:
            differing.insert(0, "kind")
        if differing:
            raise IdempotencyConflict(str(self._key), job.id, differing)
        return job
