"""The store's engine on SQLite: one file, many threads and processes on one machine.

Write-ahead logging, so that readers and the writer do not wait for one another; BEGIN IMMEDIATE,
because a transaction that reads first and writes later fails at once when another writer came
between, whatever the timeout; `synchronous=FULL`, so that what was acknowledged survives a power
cut. NORMAL is faster and may lose the last commits then; a killed process loses nothing either
way (sqlite.org/pragma.html#pragma_synchronous).
"""

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobq.checks import check_seconds
from jobq.errors import InvalidInput, SchemaTooNew, StoreBusy, StoreError
from jobq.store.connection import STATEMENTS, Connection, OpenTransaction, Statements, Synchronous
from jobq.store.engine import Transaction
from jobq.store.joining import join
from jobq.store.sqlitefile import APPLICATION_ID, check_file, foreign

SCHEMA_VERSION = 2
OLDEST_SQLITE = (3, 37, 0)  # STRICT tables; RETURNING came with 3.35
RETRY_SECONDS = 0.003  # between two tries to switch the mode while somebody reads


def open_sqlite(
    path: Path, *, synchronous: Synchronous = "FULL", busy_seconds: float = 10.0
) -> "Sqlite":
    """Open the file and see to its schema; whoever comes first makes it.

    `busy_seconds` bounds how long a transaction waits for its turn to write.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(
            f"this Python has SQLite {sqlite3.sqlite_version}; jobq needs 3.37 or newer"
        )
    if synchronous not in {"FULL", "NORMAL"}:
        raise InvalidInput(f"synchronous is {synchronous!r}: use 'FULL' or 'NORMAL'")
    check_seconds(busy_seconds, "busy_seconds", least=0)
    check_file(path)
    engine = Sqlite(path, synchronous, busy_seconds)
    try:
        engine.prepare()
    except BaseException:
        engine.close()
        raise
    return engine


class Sqlite:
    """Connections to one file: one per thread, none across a fork."""

    one_writer = True

    def __init__(self, path: Path, synchronous: Synchronous, busy_seconds: float) -> None:
        self._path = path
        self._synchronous = synchronous
        self._busy_seconds = busy_seconds
        self._here = threading.local()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        _engines.add(self)

    def __repr__(self) -> str:
        return f"Sqlite({self._path.name!r}, synchronous={self._synchronous})"

    @contextmanager
    def write(self) -> Iterator[OpenTransaction]:
        """Begin a transaction that may write; commit at its end, roll back if it raises."""
        with self._in_use() as connection:
            if connection.in_transaction:
                raise InvalidInput(
                    "this thread has a transaction open, and the store cannot begin another: "
                    "pass it on (conn=…), or call the store after its end"
                )
            with self._turn(connection):
                tx = OpenTransaction(connection)
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    yield tx
                    tx.commit()
                    connection.lock.ring()
                finally:
                    tx.end()
                    connection.roll_back()  # does nothing after the commit

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give the connection outside of a transaction, so that no snapshot is held open."""
        with self._in_use() as connection:
            yield connection

    def join(self, connection: Any) -> Statements:
        """Return the transaction that a caller has open on a connection of its own."""
        return join(self._path, connection)

    def settle(self, tx: Transaction, seconds: float) -> bool:  # noqa: ARG002 - no need to wait
        """Say that whatever was written is to be seen: there is one writer at a time."""
        return True

    def change_mark(self) -> int:
        """Return SQLite's `data_version`: another number after another connection's commit."""
        with self.read() as tx:
            return int(tx.execute("PRAGMA data_version")[0][0])

    def wait_for_change(self, mark: int, seconds: float, stop: Callable[[], bool]) -> None:
        """Wait in the monotonic clock's time: no step of the clock matters.

        The bell wakes, and `data_version` decides: a bell that was missed, or that nobody rang,
        costs a glance and no more.
        """
        deadline = time.monotonic() + seconds
        with self._in_use() as connection:
            while not stop() and self.change_mark() == mark:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                connection.bell.wait(left)

    def close(self) -> None:
        """Close every connection of this process; a later call opens a new one."""
        for connection in list(self._connections):
            connection.close()

    def prepare(self) -> None:
        """Make the schema in an empty file; refuse a file that is not ours, or too new."""
        with self.read() as tx:  # no lock: a store can be looked into while somebody holds it
            current = self._version(tx) == SCHEMA_VERSION
            if current and tx.execute("PRAGMA journal_mode")[0][0] == "wal":
                return
        with self._in_use() as connection, self._turn(connection):
            self._switch_to_wal(connection)
        with self.write() as tx:
            version = self._version(tx)
            if version < SCHEMA_VERSION:  # still: somebody else may have been here meanwhile
                name = f"upgrade_from_{version}" if version else "schema"
                for statement in STATEMENTS[name].split(";\n"):
                    tx.execute(statement)
                tx.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                tx.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextmanager
    def _turn(self, connection: Connection) -> Iterator[None]:
        """Hold the write lock."""
        try:
            self._acquire(connection)
            yield
        finally:
            connection.lock.release()  # does nothing if it was not granted

    def _acquire(self, connection: Connection) -> None:
        try:
            granted = connection.lock.acquire(self._busy_seconds)
        except OSError as error:
            raise StoreError(
                f"{error.filename}: {error.strerror}; make the file and its folder writable"
            ) from error
        if not granted:
            raise StoreBusy(
                f"{self._path}: another process held the write lock for {self._busy_seconds:g} s; "
                "is one stopped in the middle of a write? Continue it (kill -CONT) or end it"
            )

    def _version(self, tx: Statements) -> int:
        """Return the version of the file's schema; 0 if the file is empty.

        In this order: whoever makes the schema may commit it between two statements here.
        """
        if not tx.execute("SELECT name FROM sqlite_schema LIMIT 1"):
            return 0
        if tx.execute("PRAGMA application_id")[0][0] != APPLICATION_ID:
            raise foreign(self._path)
        version = int(tx.execute("PRAGMA user_version")[0][0])
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"{self._path} has schema {version}, and this jobq knows {SCHEMA_VERSION}: "
                "update jobq, or name another file"
            )
        return version

    def _switch_to_wal(self, tx: Connection) -> None:
        """Set the mode, which stays with the file; SQLite refuses to as long as anybody reads."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                tx.execute("PRAGMA journal_mode = WAL")
            except StoreBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                return

    @contextmanager
    def _in_use(self) -> Iterator[Connection]:
        """Give the thread's connection, which stays open as long as it is used."""
        while True:
            connection = self._connection()
            with connection.in_use():
                if not connection.closed:  # by another thread, in the moment between
                    yield connection
                    return

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._here, "connection", None)
        if connection is None or connection.closed:
            connection = Connection(self._path, self._synchronous, self._busy_seconds)
            self._here.connection = connection
            self._connections.add(connection)
        return connection

    def leave_to_parent(self) -> None:
        """Forget, in a forked child, what belongs to the parent."""
        for connection in self._connections:
            connection.let_go()  # else the child would hold on to a lock of a dead parent
            _inherited.append(connection)  # not closed: that would disturb the parent's locks
        self._connections = weakref.WeakSet()
        self._here = threading.local()


_engines: weakref.WeakSet[Sqlite] = weakref.WeakSet()
_inherited: list[Connection] = []


def _after_fork() -> None:
    for engine in _engines:
        engine.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
