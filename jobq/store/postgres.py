"""The store's engine on PostgreSQL: one database, many threads, processes and machines.

READ COMMITTED, because each write says in its statement what it believes, and takes the rows that
it decides about with FOR UPDATE. The server's clock is the only one. Nothing relies on the state of
a connection, so that a proxy may give each transaction another one; the listener alone has its own.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from psycopg import sql

from jobq.checks import check_seconds
from jobq.errors import ForeignFile, InvalidInput, SchemaTooNew, StoreError
from jobq.store.addresses import shown
from jobq.store.engine import Severed, Transaction
from jobq.store.listener import Listener
from jobq.store.pgconnection import (
    SESSION,
    STATEMENTS,
    OpenTransaction,
    Patient,
    RawConnection,
    Statements,
    explained,
    notify,
)
from jobq.store.pgjoining import join
from jobq.store.pgpool import Connections

SCHEMA_VERSION = 2  # the number of the SQLite schema that has the same columns
OLDEST_SERVER = 15
IDLE_SECONDS = 10.0  # at least, that a transaction may do nothing before the server ends it
SETTLE_PAUSE_SECONDS = 0.002  # between two looks at the transactions that write


def open_postgres(url: str, *, synchronous: str = "FULL", busy_seconds: float = 10.0) -> "Postgres":
    """Connect to the server and see to the schema; whoever comes first makes it.

    `busy_seconds` bounds how long a statement, or the wait for a lock or for a connection, takes.
    """
    if synchronous not in {"FULL", "NORMAL"}:
        raise InvalidInput(f"synchronous is {synchronous!r}: use 'FULL' or 'NORMAL'")
    check_seconds(busy_seconds, "busy_seconds", least=0)
    engine = Postgres(url, relaxed=synchronous == "NORMAL", busy_seconds=busy_seconds)
    try:
        engine.prepare()
    except BaseException:
        engine.close()
        raise
    return engine


class Postgres:
    """Connections to one database, kept in a pool; none is used across a fork."""

    one_writer = False

    def __init__(self, url: str, *, relaxed: bool, busy_seconds: float) -> None:
        self.shown = shown(url)
        self._connections = Connections(url, busy_seconds)
        self._begin = sql.SQL(SESSION["begin"]).format(
            milliseconds=_milliseconds(busy_seconds),
            idle=_milliseconds(max(busy_seconds, IDLE_SECONDS)),
            relaxed=sql.Literal(relaxed),
        )
        self._store_id = ""
        self._channel = ""
        self._here = threading.local()
        self._making = threading.Lock()
        self._listener: Listener | None = None
        _engines.add(self)

    def __repr__(self) -> str:
        return f"Postgres({self.shown!r})"

    @contextmanager
    def write(self) -> Iterator[OpenTransaction]:
        """Begin a transaction that may write; commit at its end, roll back if it raises."""
        if getattr(self._here, "writing", False):
            raise InvalidInput(
                "this thread has a transaction open, and the store cannot begin another: "
                "pass it on (conn=…), or call the store after its end"
            )
        self._here.writing = True
        try:
            with self._transaction() as tx:
                yield tx
        finally:
            self._here.writing = False

    @contextmanager
    def read(self) -> Iterator[OpenTransaction]:
        """Give a transaction for reading; each statement sees its own snapshot."""
        done = False
        try:
            with self._transaction() as tx:
                yield tx
                done = True
        except Severed:
            if not done:  # else everything was read before its end got lost
                raise

    def join(self, connection: Any) -> Statements:
        """Return the transaction that a caller has open on a connection of its own."""
        return join(connection, self.shown, self._store_id, self._channel)

    def settle(self, tx: Transaction, seconds: float) -> bool:
        """Wait until each transaction that now writes events has ended; False if one goes on."""
        deadline = time.monotonic() + seconds
        writers = _writers(tx)
        while writers and time.monotonic() < deadline:
            time.sleep(SETTLE_PAUSE_SECONDS)
            writers &= _writers(tx)
        return not writers

    def change_mark(self) -> int:
        """Return a number that is another one soon after somebody has written."""
        return self._listening().mark

    def wait_for_change(self, mark: int, seconds: float, stop: Callable[[], bool]) -> None:
        """Wait in the monotonic clock's time: no step of the clock matters."""
        self._listening().wait(mark, seconds, stop)

    def close(self) -> None:
        """Close every connection of this process; a later call opens new ones."""
        with self._making:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self._connections.close()

    def prepare(self) -> None:
        """Make the schema if there is none; refuse one that is not ours, or too new."""
        with self._connections.one() as raw:
            version = raw.info.server_version // 10_000
            if version < OLDEST_SERVER:
                raise StoreError(
                    f"{self.shown} is PostgreSQL {version}: jobq needs {OLDEST_SERVER} or newer"
                )
            encoding = raw.info.parameter_status("server_encoding") or "UTF8"
            if encoding != "UTF8":
                raise StoreError(
                    f"{self.shown} keeps its text as {encoding}, which has not every character: "
                    "make a database with ENCODING 'UTF8' (and TEMPLATE template0)"
                )
            tx = Statements(raw, self.shown)
            schema = tx.ask("schema_name")[0]["name"]
            if schema is None:
                raise StoreError(
                    f"{self.shown}: there is no schema of the name that search_path has: make it "
                    "(CREATE SCHEMA …), or name another"
                )
            self._channel = _channel_of(schema)
            if not self._is_current(tx):
                self._make_schema(raw)

    def _make_schema(self, raw: RawConnection) -> None:
        tx = OpenTransaction(raw, self.shown, self._begin)
        tx.ask("alone")
        if not self._is_current(tx):  # still: somebody else may have been here meanwhile
            with explained(self.shown):
                raw.execute(STATEMENTS["schema"])  # without parameters it may be many
            tx.ask("set_version", version=SCHEMA_VERSION)
            self._is_current(tx)
        tx.commit()

    def _is_current(self, tx: Statements) -> bool:
        """Whether the schema is there, and of our version; False if there is none."""
        [tables] = tx.ask("tables")
        if not tables["ours"]:
            if tables["jobs"]:
                raise ForeignFile(
                    f"{self.shown} has tables that are not jobq's ({tables['names']}): name "
                    "another database, or another schema (?options=-csearch_path%3Dname)"
                )
            return False
        [row] = tx.ask("version")
        if row["version"] > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"{self.shown} has schema {row['version']}, and this jobq knows {SCHEMA_VERSION}: "
                "update jobq, or name another database"
            )
        self._store_id = row["store_id"]
        return True

    @contextmanager
    def _transaction(self) -> Iterator[OpenTransaction]:
        for again in (True, False):
            begun = False
            try:
                with self._connections.lend() as raw:
                    tx = OpenTransaction(raw, self.shown, self._begin)
                    begun = True
                    try:
                        yield tx
                        tx.commit()
                        self._tell(raw, tx)
                    finally:
                        tx.end()
            except Severed:
                # One that lay idle may have died unnoticed: nothing was done with it, so once more.
                if begun or not again:
                    raise
            else:
                return

    def _tell(self, raw: Patient, tx: OpenTransaction) -> None:
        """Notify after the commit: within it, all transactions would commit one after another.

        Nobody relies on it: who waits looks for himself now and then.
        """
        if tx.changed:
            with suppress(StoreError):
                notify(Statements(raw, self.shown), self._channel, tx.changed)

    def _notify(self, text: str) -> None:
        """Tell those who listen something, by a connection of the pool."""
        with self._connections.lend() as raw:
            notify(Statements(raw, self.shown), self._channel, [text])

    def _listening(self) -> Listener:
        with self._making:
            if self._listener is None:
                self._listener = Listener(self._connections.one, self._notify, self._channel)
            return self._listener

    def leave_to_parent(self) -> None:
        """Forget, in a forked child, what belongs to the parent."""
        _inherited.append(self._listener)  # not closed: the server would hear it
        self._listener = None
        self._connections.leave_to_parent()
        self._making = threading.Lock()
        self._here = threading.local()


def _channel_of(schema: str) -> str:
    """Return the name on which a store's changes are told: at most 63 bytes."""
    return f"jobq.{schema}".encode()[:63].decode(errors="ignore")


def _milliseconds(seconds: float) -> sql.Literal:
    return sql.Literal(str(max(1, round(seconds * 1000))))


def _writers(tx: Transaction) -> set[str]:
    return {row["writer"] for row in tx.execute(SESSION["writers"])}


_engines: weakref.WeakSet[Postgres] = weakref.WeakSet()
_inherited: list[Any] = []


def _after_fork() -> None:
    for engine in _engines:
        engine.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
