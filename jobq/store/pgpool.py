"""Connections of one process to a PostgreSQL database, in a pool and one by one."""

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from jobq.errors import InvalidInput, StoreUnreachable
from jobq.store import refusals
from jobq.store.addresses import FORMS, shown
from jobq.store.engine import Severed
from jobq.store.pgconnection import SESSION, Patient, explained

MOST = 10  # of one process, beside the listener's
CLOSING_SECONDS = 0.5  # that a pool's threads have to end
CONNECT_SECONDS = 5.0  # at most, for a connection to be made
LATE_SECONDS = 2.0  # after its limit on the server, until a statement is given up here
# What libpq is told unless the URL says otherwise (postgresql.org/docs/current/libpq-connect.html).
LIMITS = {
    "keepalives_idle": "30",  # seconds
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",  # milliseconds
    "fallback_application_name": "jobq",
}
KEPT_STATELESS: dict[str, Any] = {
    "autocommit": True,  # the engine begins its transactions itself
    "prepare_threshold": None,  # but see _configure
}
PREPARE_AFTER = 2  # times that a connection was given a statement

logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # what it warns of, we raise


class Connections:
    """Makes, lends and closes connections; none is used across a fork."""

    def __init__(self, url: str, busy_seconds: float) -> None:
        self._shown = shown(url)
        self._conninfo = _with_limits(url, min(busy_seconds, CONNECT_SECONDS))
        self._busy_seconds = busy_seconds
        self._patience = busy_seconds + LATE_SECONDS
        self._making = threading.Lock()
        self._pool: ConnectionPool[Patient] | None = None
        self._reached = False  # the server, since the last connection broke
        self._refusal: tuple[float, str] | None = None  # the last: when, and what was said

    @contextmanager
    def one(self) -> Iterator[Patient]:
        """Give a connection of its own. Raises StoreUnreachable, which says what keeps it away."""
        try:
            raw = Patient.connect(self._conninfo, **KEPT_STATELESS)
        except psycopg.Error as error:
            why = f"{self._shown}: {refusals.reason(error)}; {refusals.mend(error)}"
            raise StoreUnreachable(why) from error
        self._reached = True
        try:
            raw.patience = self._patience
            yield raw
        finally:
            raw.close()

    @contextmanager
    def lend(self) -> Iterator[Patient]:
        """Give one of the pool's, and take it back without an open transaction."""
        pool, raw = self._take()
        try:
            yield raw
        except Severed:
            self._let_go(pool)  # the others are likely to be broken too
            raise
        finally:
            _roll_back(raw)
            pool.putconn(raw)

    def close(self) -> None:
        """Close every one; a later call makes new ones."""
        if (pool := self._pool) is not None:
            self._let_go(pool)

    def leave_to_parent(self) -> None:
        """Forget, in a forked child, what belongs to the parent."""
        _inherited.append(self._pool)  # not closed: the server would hear it
        self._pool = None
        self._making = threading.Lock()

    def _take(self) -> tuple[ConnectionPool[Patient], Patient]:
        while True:
            pool = self._made_pool()
            try:
                return pool, pool.getconn(self._patience)
            except PoolClosed:  # by another thread, whose connection had broken
                continue
            except PoolTimeout as error:
                self._let_go(pool)
                with self.one():  # which says why, if the server is the reason
                    pass
                raise StoreUnreachable(
                    f"{self._shown}: all {MOST} connections of this process were in use for "
                    f"{self._busy_seconds:g} s; keep transactions short"
                ) from error

    def _made_pool(self) -> ConnectionPool[Patient]:
        asked = time.monotonic()
        with self._making:
            if self._pool is None:
                if not self._reached:
                    self._reach(asked)
                self._pool = ConnectionPool(
                    self._conninfo,
                    connection_class=Patient,
                    kwargs=KEPT_STATELESS,
                    min_size=1,
                    max_size=MOST,
                    configure=self._configure,
                    open=True,
                    name="jobq",
                )
            return self._pool

    def _reach(self, asked: float) -> None:
        """See whether there is a server: a pool would try for long before it says why it cannot.

        Threads that waited for their turn since `asked`, while another tried, hear what it heard.
        """
        if self._refusal is not None and self._refusal[0] > asked:
            raise StoreUnreachable(self._refusal[1])
        try:
            with self.one():
                pass
        except StoreUnreachable as error:
            self._refusal = time.monotonic(), str(error)
            raise

    def _let_go(self, pool: ConnectionPool[Patient]) -> None:
        """Have the next transaction begin with new connections."""
        if self._pool is not pool:  # no lock: under it somebody may be trying to reach the server
            return
        with self._making:
            if self._pool is not pool:
                return
            self._pool, self._reached = None, False
        pool.close(CLOSING_SECONDS)

    def _configure(self, raw: Patient) -> None:
        """Set what a connection keeps.

        Statements are prepared, which saves a fifth of a job's cost, where the connection is the
        server's own. A proxy gives itself out for another backend than the one it asks.
        """
        raw.patience = self._patience
        with explained(self._shown):
            [answer] = raw.execute(SESSION["backend"]).fetchall()
        if answer["pid"] == raw.info.backend_pid:
            raw.prepare_threshold = PREPARE_AFTER


def _with_limits(url: str, connect_seconds: float) -> str:
    """Return the URL as libpq's own text, with what a broken network needs. Raises InvalidInput."""
    limits = {"connect_timeout": str(max(1, math.ceil(connect_seconds)))} | LIMITS
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise InvalidInput(
            f"store URL {shown(url)!r} cannot be read: {error}; use {FORMS}"
        ) from None
    return make_conninfo(**{key: str(value) for key, value in (limits | given).items()})


def _roll_back(raw: Patient) -> None:
    """Undo the transaction if one is open; a connection that cannot do that is closed."""
    if raw.info.transaction_status == TransactionStatus.IDLE:
        return
    try:
        raw.execute("ROLLBACK")
    except psycopg.Error:
        raw.close()


_inherited: list[Any] = []
