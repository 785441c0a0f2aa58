"""A client of the HTTP API: submit a job, wait for it, follow its events.

    with jobq.Client("http://127.0.0.1:8718") as client:
        job = client.submit("sales_report", {"year": 2026})
        job = client.wait(job, seconds=60)

It is patient where that is safe: a server that is away, restarts or answers 503 is asked again,
after waits that grow and are never shorter than Retry-After says. A POST is sent again only with
its idempotency key, or if it cannot have arrived.
"""

import random
import reprlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Self
from urllib.parse import quote

import httpx

from jobq import strictjson
from jobq.checks import check_integer, check_seconds
from jobq.client.following import follow
from jobq.client.remote import RemoteEvent, RemoteJob
from jobq.client.requests import Answer, Requests
from jobq.errors import InvalidInput, JobUnfinished
from jobq.job import Status

__all__ = ["Client", "RemoteEvent", "RemoteJob"]

PATIENCE = 30.0  # seconds for which a request without an answer is repeated
LONGEST_WAIT = 30  # seconds that the server may wait for the end of a job before it answers
POLL_SECONDS = 1.0  # between two looks, where the server says nothing about it
LARGEST_BODY = 100_000_000  # bytes; what a server takes it says itself
PAGE = 100  # jobs of one answer
NOT_MODIFIED = 304

Jobs = list[RemoteJob]  # Client.list shadows the built-in name inside the class


class Client:
    """Talks to one server. Threads may share it.

    `patience` bounds in seconds how long a request is repeated. `clock` counts seconds, `sleep`
    lets them pass, and `random` gives numbers in [0, 1). The environment's proxies are not used;
    whoever needs one passes a `transport` of httpx.

    Every method raises ServerRefused for what the server declines, ServerUnreachable when its
    patience ends, and ClientError for an answer that no jobq server gives.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: float = PATIENCE,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._patience = check_seconds(patience, "patience", least=0)
        self._clock = clock
        self._sleep = sleep
        self._requests = Requests(
            url, token, transport=transport, clock=clock, sleep=sleep, random=random
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._requests.url!r})"

    def close(self) -> None:
        """Close the connections to the server."""
        self._requests.close()

    def submit(
        self,
        kind: str,
        payload: dict[str, Any],
        idempotency_key: str | None = None,
        *,
        delay_seconds: float | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
    ) -> RemoteJob:
        """Ask for a job and return it.

        Without a key it gets a new one, so that this call may send it again until it is answered;
        a key of the caller's makes it safe to repeat the call, too. Raises InvalidInput for what
        cannot be sent.
        """
        options = {
            "delay_seconds": delay_seconds,
            "priority": priority,
            "max_attempts": max_attempts,
        }
        given = {name: value for name, value in options.items() if value is not None}
        body = {"kind": kind, "payload": payload, **given}
        answer = self._requests.ask(
            "POST",
            "jobs",
            self._deadline(),
            body=strictjson.encode(body, "the request", max_bytes=LARGEST_BODY),
            key=uuid.uuid4().hex if idempotency_key is None else _checked(idempotency_key),
        )
        return self.get(answer.member("job_id", str))

    def get(self, job: RemoteJob | str) -> RemoteJob:
        """Return the job as it stands."""
        return _job(self._requests.ask("GET", _path(job), self._deadline()))

    def wait(self, job: RemoteJob | str, seconds: float = 60.0) -> RemoteJob:
        """Return the job once it is done, failed or cancelled: its `status` says which.

        Raises JobUnfinished if that takes longer than `seconds`. Meanwhile the server may go away
        and come back.
        """
        deadline = self._clock() + check_seconds(seconds, "seconds", least=0)
        etag, seen = None, None
        while True:
            began = self._clock()
            wait = max(0, min(LONGEST_WAIT, int(deadline - began) - 1))
            answer = self._requests.ask("GET", _path(job), deadline, wait=wait, etag=etag)
            if seen is None or answer.status != NOT_MODIFIED:
                seen = _job(answer)
            if seen.status.final:
                return seen
            if (left := deadline - self._clock()) <= 0:
                raise JobUnfinished(seen.id, seen.status, seconds)
            # A server that waits is not told what was seen: it would answer at each heartbeat.
            waited = wait > 0 and "Preference-Applied" in answer.headers
            etag = None if waited else answer.headers.get("ETag", etag)
            # One that waited no longer than half the time may be stopping, and is given a pause.
            if not waited or self._clock() - began < wait / 2:
                self._sleep(min(left, answer.retry_after or POLL_SECONDS))

    def cancel(self, job: RemoteJob | str) -> RemoteJob:
        """Have the job cancelled and return it: at once if it waits, soon if it runs."""
        return self._operate(job, "cancel")

    def retry(self, job: RemoteJob | str) -> RemoteJob:
        """Have a failed or cancelled job tried anew, and return it."""
        return self._operate(job, "retry")

    def list(
        self, *, status: Status | str | None = None, kind: str | None = None, limit: int = 50
    ) -> Jobs:
        """Return jobs, newest first, at most `limit`, by as many requests as that takes."""
        check_integer(limit, "limit", 1, 1_000_000)
        found: Jobs = []
        while len(found) < limit:
            query = {
                "status": status,
                "kind": kind,
                "limit": min(PAGE, limit - len(found)),
                "before": found[-1].id if found else None,
            }
            answer = self._requests.ask("GET", "jobs", self._deadline(), query=query)
            jobs = [RemoteJob.of(job) for job in answer.member("jobs", list)]
            found += jobs
            if not jobs or answer.member("next", object) is None:
                break
        return found

    def events(
        self, job: RemoteJob | str | None = None, *, after: int | None = None
    ) -> Iterator[RemoteEvent]:
        """Yield what happens to the job until it is final, or to all jobs for ever.

        A job's events begin with its first one, those of all jobs now; or, with `after`, behind
        the event with that number. A connection that is lost is made again, for `patience` at a
        time, and goes on where it was: no event is missed, and none comes twice.
        """
        path = "events" if job is None else f"{_path(job)}/events"
        return follow(self._requests, path, after, self._patience, forever=job is None)

    def _operate(self, job: RemoteJob | str, verb: str) -> RemoteJob:
        """Ask for a change. It has no key, so it is not sent again if it may have arrived."""
        return _job(self._requests.ask("POST", f"{_path(job)}/{verb}", self._deadline()))

    def _deadline(self) -> float:
        return self._clock() + self._patience


def _job(answer: Answer) -> RemoteJob:
    return RemoteJob.of(answer.json())


def _path(job: RemoteJob | str) -> str:
    return f"jobs/{quote(job.id if isinstance(job, RemoteJob) else job, safe='')}"


def _checked(key: str) -> str:
    """Return a key that a header can carry, and the server takes. Raises InvalidInput."""
    strictjson.check_name(key, "idempotency_key")
    if not (key.isascii() and key.isprintable()):
        raise InvalidInput(
            f"idempotency_key is {reprlib.repr(key)}: use printable ASCII characters, for it "
            "travels in a header"
        )
    return key
