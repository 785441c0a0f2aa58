"""The store: every operation on jobs, written once for every database engine.

A job moves `queued -> running -> done`, or back to `queued` when an attempt fails and others are
left, or to `failed`. Each move is one transaction that changes the job, its attempt and the event
log together. The methods that end or extend an attempt take the job as `claim` returned it and
are refused with LeaseLost when its lease is no longer the current one.
"""

import random
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jobq import strictjson
from jobq.checks import check_integer, check_seconds
from jobq.errors import InvalidInput, UnknownJob
from jobq.job import Attempt, Event, EventName, Job, Stats, Status
from jobq.retry import RetryPolicy
from jobq.store import endings, moves
from jobq.store.endings import Ending
from jobq.store.engine import Engine, Row, Transaction
from jobq.store.moves import Lease
from jobq.store.requests import Request
from jobq.store.rows import to_attempt, to_event, to_job
from jobq.store.sqlite import open_sqlite

__all__ = ["LONGEST_LOG", "Enqueued", "Store", "open_store"]

Jobs = list[Job]  # Store.list shadows the built-in name inside the class

FIRST_PAGE = 2**62
HEX = re.compile("[0-9a-f]+")
LONGEST_PAGE, LONGEST_LOG = 1_000, 1_000_000  # rows of one answer


class Enqueued(NamedTuple):
    """What enqueue answers: the job, and whether this call made it."""

    job: Job
    created: bool


class Store:
    """A durable job queue in a database.

    `clock` gives seconds since 1970 (UTC); without one the engine's own time holds. `random`
    gives numbers in [0, 1) for the jitter of `retry`. One store serves every thread of a process.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], float] | None = None,
        retry: RetryPolicy | None = None,
        random: Callable[[], float] = random.random,
        max_bytes: int = strictjson.MAX_BYTES,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._retry = retry or RetryPolicy()
        self._random = random
        self._max_bytes = max_bytes

    def now(self) -> float:
        """Return the time by which this store judges leases and waits (seconds since 1970)."""
        with self._engine.read() as tx:
            return self._now(tx)

    def enqueue(
        self,
        kind: str,
        payload: dict[str, Any],
        idempotency_key: str | None = None,
        *,
        max_attempts: int = 3,
        run_after: float = 0.0,
        priority: int = 0,
    ) -> Enqueued:
        """Record a job durably and return it.

        With an idempotency key that was used before, the job of that first call is returned and
        nothing is created (G5); if kind or payload differ, IdempotencyConflict names the fields.
        `run_after` is a time, not a wait. Raises InvalidInput for what breaks a rule.
        """
        request = Request(
            kind,
            payload,
            idempotency_key,
            max_attempts=max_attempts,
            run_after=run_after,
            priority=priority,
            max_bytes=self._max_bytes,
        )
        with self._engine.write() as tx:
            now = self._now(tx)
            row = tx.one("insert_job", id=uuid.uuid4().hex, **request.columns(now))
            if row is None:  # the key was used before
                [row] = tx.all("job_of_key", idempotency_key=idempotency_key)
                return Enqueued(request.same_as(row), created=False)
            moves.log(tx, row, EventName.ENQUEUED, now, worker=None)
            return Enqueued(to_job(row), created=True)

    def get(self, job_id: str) -> Job | None:
        """Return the job, or None if there is none with this id."""
        with self._engine.read() as tx:
            row = _row(tx, job_id)
        return None if row is None else to_job(row)

    def find(self, start: str, *, limit: int = 2) -> Jobs:
        """Return jobs whose id begins so, in the order of their ids."""
        check_integer(limit, "limit", 1, LONGEST_PAGE)
        if not HEX.fullmatch(start):
            return []
        with self._engine.read() as tx:
            return [to_job(r) for r in tx.all("jobs_whose_id_begins", start=start, limit=limit)]

    def claim(self, worker: str, lease_seconds: float = 30.0) -> Job | None:
        """Take the most urgent, then oldest runnable job for this worker; None if there is none.

        Leases that ran out are closed first, as crashed attempts (G2, G4, G10); many of them in
        several transactions, so that a heartbeat need not wait for all. The claimed job is this
        worker's until its lease runs out; heartbeat extends it.
        """
        strictjson.check_name(worker, "worker")
        check_seconds(lease_seconds, "lease_seconds", least=0.001)
        now, due = self._next_due()  # an idle worker's look takes no lock
        if due is None or due > now:
            return None
        while True:
            with self._engine.write() as tx:
                now = self._now(tx)
                if moves.make_ready(tx, now):
                    return moves.take_first(tx, worker, now, lease_seconds)

    def heartbeat(self, job: Job, lease_seconds: float = 30.0) -> Job:
        """Extend the lease to `lease_seconds` from now and return the job as it is.

        Raises LeaseLost when the job is no longer this lease's.
        """
        check_seconds(lease_seconds, "lease_seconds", least=0.001)
        with self._engine.write() as tx:
            now = self._now(tx)
            row = tx.one(
                "heartbeat", id=job.id, token=job.token, now=now, locked_until=now + lease_seconds
            )
            if row is None:
                raise moves.lease_lost(tx, job)
            moves.log(tx, row, EventName.HEARTBEAT, now, worker=row["worker"])
            return to_job(row)

    def finish(self, job: Job, result: Any) -> Job:
        """Record the result of the attempt: the job is done.

        Raises LeaseLost, and NotStrictJson for a result that JSON cannot carry; either way
        nothing has changed, and after NotStrictJson the attempt can still be failed.
        """
        text = strictjson.encode(result, "result", max_bytes=self._max_bytes)
        return self._end(job, lambda now: endings.after_success(job, text, now))

    def fail(self, job: Job, error: str, *, final: bool = False) -> Job:
        """Record why the attempt failed: the job is queued again, after a wait, or failed.

        `final` means that another attempt could not succeed. Raises LeaseLost; NotStrictJson for
        an error text that some database could not keep.
        """
        strictjson.check_text(error, "error", max_bytes=self._max_bytes)
        return self._end(
            job,
            lambda now: endings.after_failure(
                job, error, now, self._retry, self._random, final=final
            ),
        )

    def release(self, job: Job) -> Job:
        """Give the job back unharmed: runnable at once, the attempt not counted (G11)."""
        return self._end(job, lambda now: endings.after_release(job, now))

    def list(
        self,
        *,
        status: Status | None = None,
        kind: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Jobs:
        """Return jobs, newest first; `before` is the id of the last job of the page before."""
        check_integer(limit, "limit", 1, LONGEST_PAGE)
        if status is not None and status not in set(Status):
            raise InvalidInput(f"status is {status!r}: use {', '.join(Status)}")
        with self._engine.read() as tx:
            seq = FIRST_PAGE if before is None else _existing(tx, before)["seq"]
            if status is None:
                rows = tx.all("jobs", before=seq, kind=kind, limit=limit)
            else:
                rows = tx.all("jobs_with_status", status=status, before=seq, kind=kind, limit=limit)
        return [to_job(row) for row in rows]

    def attempts(self, job_id: str) -> tuple[Attempt, ...]:
        """Return the job's attempts, first one first. Raises UnknownJob."""
        with self._engine.read() as tx:
            _existing(tx, job_id)
            return tuple(to_attempt(row) for row in tx.all("attempts", job_id=job_id))

    def events(
        self, job_id: str | None = None, *, after: int = 0, limit: int = 10_000
    ) -> tuple[Event, ...]:
        """Return the log of one job, or of all, in the order of the commits.

        `after` is the `seq` of the last event already seen. Raises UnknownJob.
        """
        check_integer(limit, "limit", 1, LONGEST_LOG)
        with self._engine.read() as tx:
            if job_id is None:
                rows = tx.all("events", after=after, limit=limit)
            else:
                _existing(tx, job_id)
                rows = tx.all("events_of_job", job_id=job_id, after=after, limit=limit)
        return tuple(to_event(row) for row in rows)

    def stats(self) -> Stats:
        """Return how many jobs stand where, and how long the oldest has waited."""
        with self._engine.read() as tx:
            counts = {Status(row["status"]): row["jobs"] for row in tx.all("counts")}
            oldest = tx.one("oldest_waiting")
            now = self._now(tx)
        created_at = oldest["created_at"] if oldest else None
        return Stats(
            counts={status: counts.get(status, 0) for status in Status},
            oldest_waiting_seconds=None if created_at is None else max(0.0, now - created_at),
        )

    def change_mark(self) -> int:
        """Return a number to pass to `wait`; take it before the claim that finds nothing."""
        return self._engine.change_mark()

    def wait(self, mark: int, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until something is due or has changed since `mark`, but at most `seconds`."""
        check_seconds(seconds, "seconds", least=0)
        now, due = self._next_due()
        if due is not None:
            seconds = min(seconds, max(0.0, due - now))
        self._engine.wait_for_change(mark, seconds, stop)

    def close(self) -> None:
        """Close every connection of this process."""
        self._engine.close()

    def _now(self, tx: Transaction) -> float:
        return tx.now() if self._clock is None else float(self._clock())

    def _next_due(self) -> tuple[float, float | None]:
        """Return the time, and the time at which a claim may first find something."""
        with self._engine.read() as tx:
            now = self._now(tx)
            [row] = tx.all("next_due", now=now)
        return now, row["due"]

    def _end(self, job: Job, decide: Callable[[float], Ending]) -> Job:
        with self._engine.write() as tx:
            if job.status != Status.RUNNING:  # never claimed: no lease that could be lost
                raise moves.lease_lost(tx, job)
            now = self._now(tx)
            row = moves.end(tx, Lease(job.id, job.token, job.worker), decide(now), now)
            if row is None:
                raise moves.lease_lost(tx, job)
            return to_job(row)


def open_store(url: str | Path, **options: Any) -> Store:
    """Open the store at a URL such as `sqlite:///jobs.db`, or at the path of a SQLite file.

    `sqlite:///` is followed by the path, as in SQLAlchemy: four slashes begin an absolute one.
    `synchronous` ("FULL", "NORMAL") and `busy_seconds` are the engine's; other options are those
    of `Store`. Whoever comes first makes the schema. Raises InvalidInput and StoreError.
    """
    engine_options = {k: options.pop(k) for k in ("synchronous", "busy_seconds") if k in options}
    scheme, separator, rest = str(url).partition("://")
    if not separator:
        return Store(open_sqlite(Path(url), **engine_options), **options)
    if scheme == "sqlite" and rest.startswith("/"):
        return Store(open_sqlite(Path(rest[1:]), **engine_options), **options)
    raise InvalidInput(
        f"store URL {str(url)!r} is not one of sqlite:///relative.db, sqlite:////absolute.db"
    )


def _existing(tx: Transaction, job_id: str) -> Row:
    row = _row(tx, job_id)
    if row is None:
        raise UnknownJob(job_id)
    return row


def _row(tx: Transaction, job_id: str) -> Row | None:
    # An id comes from a URL or a command line, and may hold what a database refuses to look for.
    return tx.one("job", id=job_id) if HEX.fullmatch(job_id) else None
