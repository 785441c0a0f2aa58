"""The store: every operation on jobs, written once for every database engine.

A job moves `queued -> running -> done`, or back to `queued` when an attempt fails and others are
left, or to `failed` or `cancelled`. Each move is one transaction that changes the job, its attempt
and the event log together. The methods that end or extend an attempt take the job as `claim`
returned it and are refused with LeaseLost when its lease is no longer the current one.

Here is what the API and the workers do; `reading` has what anyone may look at, `operating` what an
operator may do.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from jobq import strictjson
from jobq.checks import check_seconds
from jobq.errors import StoreBusy, WriteFailed
from jobq.job import EventName, Job, Progress, Status
from jobq.retry import RetryPolicy
from jobq.store import endings, moves
from jobq.store.endings import Ending
from jobq.store.engine import Engine, Row, Transaction
from jobq.store.moves import Lease
from jobq.store.operating import Operators
from jobq.store.reading import LONGEST_LOG
from jobq.store.requests import Request, progress_text, to_requests
from jobq.store.rows import to_job
from jobq.store.sqlite import open_sqlite
from jobq.store.sqlitefile import path_of

__all__ = ["LONGEST_LOG", "Enqueued", "Store", "open_store"]


class Enqueued(NamedTuple):
    """What enqueue answers: the job, and whether this call made it."""

    job: Job
    created: bool


class Store(Operators):
    """A durable job queue in a database.

    `clock` gives seconds since 1970 (UTC); without one the engine's own time holds. `random`
    gives numbers in [0, 1) for the jitter of `retry`. `max_bytes` bounds payloads and results.
    One store serves every thread of a process.
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
        super().__init__(engine, clock)
        self._policy = retry or RetryPolicy()
        self._random = random
        self._max_bytes = max_bytes

    def enqueue(
        self,
        kind: str,
        payload: dict[str, Any],
        idempotency_key: str | None = None,
        *,
        max_attempts: int = 3,
        run_after: float = 0.0,
        priority: int = 0,
        retry: RetryPolicy | None = None,
        conn: Any = None,
    ) -> Enqueued:
        """Record a job durably and return it.

        With an idempotency key that was used before, the job of that first call is returned and
        nothing is created (G5); if kind or payload differ, IdempotencyConflict names the fields.
        `run_after` is a time, not a wait; `retry` is the job's own policy. With `conn`, a
        connection with an open transaction or what `transaction` gives, the job is recorded when
        that commits, together with the caller's own rows. Raises InvalidInput for what breaks a
        rule.
        """
        request = Request(
            kind,
            payload,
            idempotency_key,
            max_attempts=max_attempts,
            run_after=run_after,
            priority=priority,
            retry=retry,
            max_bytes=self._max_bytes,
        )
        if conn is None:
            with self._engine.write() as tx:
                return self._insert(tx, request)
        tx = self._engine.join(conn)
        with tx.savepoint():
            return self._insert(tx, request)

    def enqueue_many(self, jobs: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Record several jobs in one transaction, all or none of them.

        Each is a mapping of the arguments of `enqueue`: `{"kind": …, "payload": …}`. The answers
        are in the same order. Raises InvalidInput and IdempotencyConflict.
        """
        requests = to_requests(jobs, self._max_bytes)  # before anybody has to wait for it
        with self._engine.write() as tx:
            return [self._insert(tx, request) for request in requests]

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Give a transaction for rows of the caller's own: `tx.execute(sql, parameters)`.

        It commits at the end of the block, and is undone if that raises. Nobody else can write
        meanwhile, so keep it short. Pass it to `enqueue` as `conn`.
        """
        with self._engine.write() as tx:
            yield tx

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

    def heartbeat(
        self, job: Job, lease_seconds: float = 30.0, progress: Progress | None = None
    ) -> Job:
        """Extend the lease to `lease_seconds` from now and return the job as it is.

        The reply's `cancel_requested` says whether the work should stop. `progress` is kept with
        the job. Raises LeaseLost when the job is no longer this lease's.
        """
        check_seconds(lease_seconds, "lease_seconds", least=0.001)
        text = None if progress is None else progress_text(progress)
        with self._engine.write() as tx:
            now = self._now(tx)
            row = tx.one(
                "heartbeat",
                id=job.id,
                token=job.token,
                progress=text,
                locked_until=now + lease_seconds,
            )
            if row is None:
                raise moves.lease_lost(tx, job)
            moves.log(tx, row, EventName.HEARTBEAT, now, worker=row["worker"], progress=text)
            return to_job(row)

    def finish(
        self, job: Job, result: Any, *, also: Callable[[Transaction], object] | None = None
    ) -> Job:
        """Record the result of the attempt: the job is done.

        `also(transaction)` may write rows of the caller's own, which are committed together with
        the result or not at all. Raises LeaseLost, NotStrictJson for a result that JSON cannot
        carry, and WriteFailed for what `also` raises; each time nothing has changed, and after
        the last two the attempt can still be failed.
        """
        text = strictjson.encode(result, "result", max_bytes=self._max_bytes)
        return self._end(job, lambda row, now: endings.after_success(row, text, now), also)

    def fail(
        self,
        job: Job,
        error: str,
        *,
        final: bool = False,
        after: float | None = None,
        crashed: bool = False,
        policy: RetryPolicy | None = None,
    ) -> Job:
        """Record why the attempt failed: the job is queued again, after a wait, or failed.

        The wait is `after` seconds, or what the job's own policy says, or else `policy`, or else
        the store's. `final` means that another attempt could not succeed, `crashed` that the
        attempt's process was seen to die. Raises LeaseLost; NotStrictJson for an error text that
        some database could not keep.
        """
        strictjson.check_text(error, "error")  # with a limit of its own: others may be too small
        chosen = job.retry or policy or self._policy
        if after is not None:
            check_seconds(after, "after", least=0)

        def delay(failures: int) -> float:
            return chosen.delay(failures, self._random) if after is None else after

        return self._end(
            job,
            lambda row, now: endings.after_failure(
                row, error, now, delay, final=final, crashed=crashed
            ),
        )

    def release(self, job: Job) -> Job:
        """Give the job back unharmed: runnable at once, the attempt not counted (G11).

        A job that was given back `endings.MAX_RELEASES` times is failed.
        """
        return self._end(job, endings.after_release)

    def confirm_cancel(self, job: Job) -> Job:
        """Record that the attempt was stopped because the job is to be cancelled: it is now."""
        return self._end(job, endings.after_cancel)

    def is_done(self, job: Job, key: str) -> bool:
        """Whether an attempt at the job has marked this key. Raises LeaseLost."""
        strictjson.check_name(key, "key")
        with self._engine.read() as tx:
            self._leased(tx, job)
            return tx.one("mark", job_id=job.id, key=key) is not None

    def mark_done(self, job: Job, key: str) -> None:
        """Mark the key as done, for this and every later attempt at the job. Raises LeaseLost."""
        strictjson.check_name(key, "key")
        with self._engine.write() as tx:
            self._leased(tx, job)
            tx.run("insert_mark", job_id=job.id, key=key, at=self._now(tx))

    def _insert(self, tx: Transaction, request: Request) -> Enqueued:
        now = self._now(tx)
        row = tx.one("insert_job", id=uuid.uuid4().hex, **request.columns(now))
        if row is None:  # the key was used before
            return Enqueued(request.same_as(tx), created=False)
        moves.log(tx, row, EventName.ENQUEUED, now, worker=None)
        return Enqueued(to_job(row), created=True)

    def _end(
        self,
        job: Job,
        decide: Callable[[Row, float], Ending],
        also: Callable[[Transaction], object] | None = None,
    ) -> Job:
        with self._engine.write() as tx:
            now = self._now(tx)
            ending = decide(self._leased(tx, job), now)
            row = moves.end(tx, Lease(job.id, job.token, job.worker), ending, now)
            if row is None:
                raise moves.lease_lost(tx, job)
            if also is not None:
                _write(also, tx)
            return to_job(row)

    def _leased(self, tx: Transaction, job: Job) -> Row:
        """Return the row of a job that this lease still holds. Raises LeaseLost."""
        row = tx.one("leased", id=job.id, token=job.token)
        if row is None or job.status != Status.RUNNING:  # never claimed: nothing to be lost
            raise moves.lease_lost(tx, job)
        return row


def _write(also: Callable[[Transaction], object], tx: Transaction) -> None:
    try:
        also(tx)
        tx.one("last_event")  # raises if some statement of theirs has undone the transaction
    except StoreBusy:  # may pass
        raise
    except Exception as error:
        raise WriteFailed(f"{type(error).__name__}: {error}") from error


def open_store(url: str | Path, **options: Any) -> Store:
    """Open the store at a URL such as `sqlite:///jobs.db`, or at the path of a SQLite file.

    `sqlite:///` is followed by the path, as in SQLAlchemy: four slashes begin an absolute one.
    `synchronous` ("FULL", "NORMAL") and `busy_seconds` are the engine's; other options are those
    of `Store`. Whoever comes first makes the schema. Raises InvalidInput and StoreError.
    """
    engine_options = {k: options.pop(k) for k in ("synchronous", "busy_seconds") if k in options}
    return Store(open_sqlite(path_of(url), **engine_options), **options)
