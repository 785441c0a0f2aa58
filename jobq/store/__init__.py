"""The store: every operation on jobs, written once for every database engine.

A job moves `queued -> running -> done`, or back to `queued` when an attempt fails and others are
left, or to `failed` or `cancelled`. Each move is one transaction that changes the job, its attempt
and the event log together. The methods that end or extend an attempt take the job as `claim`
returned it and are refused with LeaseLost when its lease is no longer the current one.

Here jobs come in; `working` has what a worker does, `operating` what an operator may do, and
`reading` what anyone may look at.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobq import strictjson
from jobq.errors import StoreError
from jobq.retry import RetryPolicy
from jobq.store.addresses import engine_of
from jobq.store.engine import Engine, Transaction
from jobq.store.enqueueing import Enqueued, insert
from jobq.store.reading import LONGEST_LOG
from jobq.store.repeating import transact
from jobq.store.requests import Request, to_requests
from jobq.store.sqlite import open_sqlite
from jobq.store.sqlitefile import path_of
from jobq.store.working import Workers

__all__ = ["LONGEST_LOG", "Enqueued", "Store", "open_store"]


class Store(Workers):
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
        policy = retry or RetryPolicy()
        super().__init__(engine, clock, policy=policy, random=random, max_bytes=max_bytes)

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
            [enqueued] = self._enqueue([request])
            return enqueued
        tx = self._engine.join(conn)
        with tx.savepoint():
            [enqueued] = insert(tx, [request], self._now(tx))
            return enqueued

    def enqueue_many(self, jobs: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Record several jobs in one transaction, all or none of them.

        Each is a mapping of the arguments of `enqueue`: `{"kind": …, "payload": …}`. The answers
        are in the same order. Raises InvalidInput and IdempotencyConflict.
        """
        requests = to_requests(jobs, self._max_bytes)  # before anybody has to wait for it
        return self._enqueue(requests)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Give a transaction for rows of the caller's own: `tx.execute(sql, parameters)`.

        It commits at the end of the block, and is undone if that raises. Keep it short: on SQLite
        nobody else can write meanwhile. Pass it to `enqueue` as `conn`.
        """
        with self._engine.write() as tx:
            yield tx

    def _enqueue(self, requests: Sequence[Request]) -> list[Enqueued]:
        tries = itertools.count()

        def enqueue(tx: Transaction) -> list[Enqueued]:
            return insert(tx, requests, self._now(tx), repeated=next(tries) > 0)

        return transact(self._engine, enqueue)


def open_store(url: str | Path, **options: Any) -> Store:
    """Open the store at a URL such as `sqlite:///jobs.db`, or at the path of a SQLite file.

    `sqlite:///` is followed by the path, as in SQLAlchemy: four slashes begin an absolute one.
    `postgresql://user:password@host:port/database` is a PostgreSQL server's, as libpq reads it.
    `synchronous` ("FULL", "NORMAL") and `busy_seconds` are the engine's; other options are those
    of `Store`. Whoever comes first makes the schema. Raises InvalidInput and StoreError.
    """
    engine_options = {k: options.pop(k) for k in ("synchronous", "busy_seconds") if k in options}
    if engine_of(url) == "sqlite":
        return Store(open_sqlite(path_of(url), **engine_options), **options)
    try:
        from jobq.store.postgres import open_postgres  # noqa: PLC0415 - an extra, and slow to load
    except ImportError as error:
        raise StoreError(
            f"a store on PostgreSQL needs psycopg ({error}): pip install 'jobq[postgres]'"
        ) from error
    return Store(open_postgres(str(url), **engine_options), **options)
