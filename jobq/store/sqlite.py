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
from typing import Any, Literal

from jobq.errors import ForeignFile, InvalidInput, SchemaTooNew, StoreBusy, StoreError
from jobq.store.engine import Row, RowRefused, named_statements
from jobq.store.fairlock import FairLock
from jobq.store.sqlitefile import APPLICATION_ID, check_file, foreign

STATEMENTS = named_statements("sqlite.sql")
SCHEMA_VERSION = 1
OLDEST_SQLITE = (3, 37, 0)  # STRICT tables; RETURNING came with 3.35
LOOK_SECONDS = 0.003  # between two looks for a change: finds work in 1.5 ms at under 1 % of a core

Synchronous = Literal["FULL", "NORMAL"]


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
    def write(self) -> Iterator["Connection"]:
        """Begin a transaction that may write; commit at its end, roll back if it raises."""
        with self._turn() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                connection.roll_back()  # does nothing after the commit

    @contextmanager
    def read(self) -> Iterator["Connection"]:
        """Give the connection outside of a transaction, so that no snapshot is held open."""
        yield self._connection()

    def change_mark(self) -> int:
        """Return SQLite's `data_version`: another number after another connection's commit."""
        return int(self._connection().execute("PRAGMA data_version")[0][0])

    def wait_for_change(self, mark: int, seconds: float, stop: Callable[[], bool]) -> None:
        """Look again and again, in the monotonic clock's time: no step of the clock matters."""
        deadline = time.monotonic() + seconds
        while not stop() and self.change_mark() == mark:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(LOOK_SECONDS, left))

    def close(self) -> None:
        """Close every connection of this process; a later call opens a new one."""
        for connection in list(self._connections):
            connection.close()
        self._here = threading.local()

    def prepare(self) -> None:
        """Make the schema in an empty file; refuse a file that is not ours, or too new."""
        with self.read() as tx:  # no lock: a store can be looked into while somebody holds it
            if self._is_ours(tx):
                return
        with self._turn() as tx:
            self._switch_to_wal(tx)
        with self.write() as tx:
            if self._is_ours(tx):  # meanwhile
                return
            for statement in STATEMENTS["schema"].split(";\n"):
                tx.execute(statement)
            tx.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            tx.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextmanager
    def _turn(self) -> Iterator["Connection"]:
        """Hold the write lock."""
        connection = self._connection()
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
        try:
            yield connection
        finally:
            connection.lock.release()

    def _is_ours(self, tx: "Connection") -> bool:
        """Whether the schema is there; False if the file is empty.

        In this order: whoever makes the schema may commit it between two statements here.
        """
        if not tx.execute("SELECT name FROM sqlite_schema LIMIT 1"):
            return False
        if tx.execute("PRAGMA application_id")[0][0] != APPLICATION_ID:
            raise foreign(self._path)
        version = tx.execute("PRAGMA user_version")[0][0]
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"{self._path} has schema {version}, and this jobq knows {SCHEMA_VERSION}: "
                "update jobq, or name another file"
            )
        return True

    def _switch_to_wal(self, tx: "Connection") -> None:
        """Set the mode, which stays with the file; SQLite refuses to as long as anybody reads."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                tx.execute("PRAGMA journal_mode = WAL")
            except StoreBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)
            else:
                return

    def _connection(self) -> "Connection":
        connection: Connection | None = getattr(self._here, "connection", None)
        if connection is None:
            connection = Connection(self._path, self._synchronous, self._busy_seconds)
            self._here.connection = connection
            self._connections.add(connection)
        return connection

    def leave_to_parent(self) -> None:
        """Forget, in a forked child, what belongs to the parent."""
        for connection in self._connections:
            connection.lock.close()  # else the child would hold on to a lock of a dead parent
            _inherited.append(connection)  # not closed: that would disturb the parent's locks
        self._connections = weakref.WeakSet()
        self._here = threading.local()


class Connection:
    """One thread's connection, which is also its transaction: SQLite knows no other."""

    def __init__(self, path: Path, synchronous: Synchronous, busy_seconds: float) -> None:
        self._path = path
        self.lock = FairLock(path.with_name(path.name + "-lock"))
        with self._explained():
            self._raw = sqlite3.connect(
                path,
                timeout=busy_seconds,
                isolation_level=None,
                check_same_thread=False,  # for Sqlite.close alone
                cached_statements=len(STATEMENTS) + 16,
            )
        self._raw.row_factory = sqlite3.Row
        # Bytes that are no UTF-8 must not stop a claim in its tracks: `to_job` finds them.
        self._raw.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        self.execute(f"PRAGMA synchronous = {synchronous}")

    def execute(self, sql: str, parameters: dict[str, Any] | None = None) -> list[Any]:
        """Run one statement of SQL and return its rows, all of them: no snapshot stays open."""
        with self._explained():
            return self._raw.execute(sql, parameters or {}).fetchall()

    def one(self, statement: str, **parameters: Any) -> Row | None:
        """Return the first row that the statement gives, if any."""
        rows = self.execute(STATEMENTS[statement], parameters)
        return rows[0] if rows else None

    def all(self, statement: str, **parameters: Any) -> list[Row]:
        """Return every row that the statement gives."""
        return self.execute(STATEMENTS[statement], parameters)

    def run(self, statement: str, **parameters: Any) -> int:
        """Return the number of rows that the statement changed."""
        with self._explained():
            return self._raw.execute(STATEMENTS[statement], parameters).rowcount

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what was done within if it raises; the transaction goes on."""
        self.execute("SAVEPOINT here")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK TO here")
            raise
        finally:
            self.execute("RELEASE here")

    def now(self) -> float:
        """Return the machine's time: all processes on one file share it."""
        return time.time()

    def roll_back(self) -> None:
        """Undo the transaction, if one is open."""
        with self._explained():
            self._raw.rollback()

    def close(self) -> None:
        """Close the database and the lock's file."""
        self._raw.close()
        self.lock.close()

    def __del__(self) -> None:
        if hasattr(self, "_raw"):
            self.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, with the mend."""
        try:
            yield
        except (sqlite3.IntegrityError, UnicodeEncodeError) as error:
            raise RowRefused(f"{self._path} refused a row: {error}") from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            kind, mend = _MENDS.get(code, (StoreError, "nothing was changed"))
            raise kind(f"{self._path}: {error}; {mend}") from error


_MENDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreBusy, "another program writes to it: end that first"),
    sqlite3.SQLITE_FULL: (StoreError, "nothing was changed: free some space and try again"),
    sqlite3.SQLITE_READONLY: (StoreError, "make the file and its folder writable"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "make the file and its folder readable and writable"),
    sqlite3.SQLITE_NOTADB: (ForeignFile, "name another file"),
    sqlite3.SQLITE_CORRUPT: (StoreError, "restore it from a copy"),
}

_engines: weakref.WeakSet[Sqlite] = weakref.WeakSet()
_inherited: list[Connection] = []


def _after_fork() -> None:
    for engine in _engines:
        engine.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
