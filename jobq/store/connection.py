"""One thread's connection to a SQLite file, and what SQLite's errors mean."""

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from jobq.errors import ForeignFile, StoreBusy, StoreError
from jobq.store.doorbell import Doorbell
from jobq.store.engine import Parameters, Row, RowRefused, named_statements
from jobq.store.fairlock import FairLock
from jobq.store.guard import Guard, check_sql
from jobq.store.statements import Named

STATEMENTS = named_statements("sqlite.sql")

Synchronous = Literal["FULL", "NORMAL"]


class Statements(Named):
    """Runs SQL on a connection, in whatever transaction is open there."""

    named = STATEMENTS

    def __init__(self, path: Path, raw: sqlite3.Connection) -> None:
        self.path = path
        self.raw = raw

    def each(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Run the statement for each of these rows of parameters; return the rows that it gives."""
        return [given for row in rows for given in self.all(statement, **row)]

    def insert_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run an inserting statement for all these rows, of which none can be there already."""
        for row in rows:
            self._run(STATEMENTS[statement], row)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.raw.in_transaction

    def now(self) -> float:
        """Return the machine's time: all processes on one file share it."""
        return time.time()

    def _run(self, sql: str, parameters: Parameters) -> tuple[list[Any], int]:
        """Return the rows that a statement gives, and how many it changed."""
        with self._explained():
            cursor = self.raw.cursor()
            cursor.row_factory = sqlite3.Row  # whatever the connection's own is
            return cursor.execute(sql, parameters).fetchall(), cursor.rowcount

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, with the mend."""
        try:
            yield
        except (sqlite3.IntegrityError, UnicodeEncodeError, OverflowError) as error:
            raise RowRefused(f"{self.path} refused a row: {error}") from error
        except (sqlite3.Error, sqlite3.Warning) as error:  # Warning: two statements, before 3.12
            code = getattr(error, "sqlite_errorcode", 0)
            kind, mend = _MENDS.get(code) or _MENDS.get(code & 0xFF, _NO_MEND)
            raise kind(f"{self.path}: {error}; {mend}") from error


class Connection(Statements):
    """One thread's connection, which is also its transaction: SQLite knows no other."""

    def __init__(self, path: Path, synchronous: Synchronous, busy_seconds: float) -> None:
        self.path = path
        real = path.resolve()  # one lock for the file, by whatever name it is opened
        self.lock = FairLock(real.with_name(real.name + "-lock"))
        with self._explained():
            raw = sqlite3.connect(
                path,
                timeout=busy_seconds,
                isolation_level=None,
                check_same_thread=False,  # for Sqlite.close alone
                cached_statements=len(STATEMENTS) + 16,
            )
        super().__init__(path, raw)
        self._using = threading.RLock()
        self._depth = 0  # of the blocks in which its thread uses it
        self._closing = False
        self.closed = False
        # Bytes that are no UTF-8 must not stop a claim in its tracks: `to_job` finds them.
        self.raw.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        self.execute(f"PRAGMA synchronous = {synchronous}")

    @cached_property
    def bell(self) -> Doorbell:
        """What tells that some connection has written; made for a thread that waits."""
        return Doorbell(self.lock.path)

    def roll_back(self) -> None:
        """Undo the transaction, if one is open."""
        with self._explained():
            self.raw.rollback()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the connection open while its thread is at work with it."""
        try:
            with self._using:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
        finally:
            if self._closing:
                self.close()

    def close(self) -> None:
        """Close everything; if its thread is at work with it, once that has come to the end.

        To close a connection in the middle of a statement would be the end of the process, and a
        lock that is waited for must not be closed either: its number may be another file's then.
        """
        self._closing = True
        if self._using.acquire(blocking=False):
            try:
                if self._depth == 0:  # more, if it is this thread that is at work
                    self._close()
            finally:
                self._using.release()

    def _close(self) -> None:
        self.closed = True
        self.raw.close()
        self.let_go()

    def let_go(self) -> None:
        """Close what is beside the database: the lock's file, and the bell."""
        self.lock.close()
        if "bell" in vars(self):
            self.bell.close()

    def __del__(self) -> None:
        if hasattr(self, "raw"):
            self._close()


class OpenTransaction(Statements):
    """What runs in one transaction of a connection, in its thread and until its end."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.path, connection.raw)
        self._guard = Guard()
        self.end = self._guard.end

    def execute(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """Run one statement of SQL, but none that would begin or end a transaction."""
        check_sql(sql)
        return super().execute(sql, parameters)

    def commit(self) -> None:
        """Make everything true at once."""
        self._run("COMMIT", ())

    def _run(self, sql: str, parameters: Parameters) -> tuple[list[Any], int]:
        self._guard.check(undone=not self.in_transaction)  # by a statement: ON CONFLICT ROLLBACK
        return super()._run(sql, parameters)


_MENDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY_SNAPSHOT: (
        StoreBusy,
        "another program wrote after this transaction had read: begin with BEGIN IMMEDIATE",
    ),
    sqlite3.SQLITE_BUSY: (StoreBusy, "another program writes to it: end that first"),
    sqlite3.SQLITE_FULL: (StoreError, "nothing was changed: free some space and try again"),
    sqlite3.SQLITE_READONLY: (StoreError, "make the file and its folder writable"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "make the file and its folder readable and writable"),
    sqlite3.SQLITE_NOTADB: (ForeignFile, "so it is not a jobq store: name another file"),
    sqlite3.SQLITE_CORRUPT: (StoreError, "restore it from a copy"),
}
_NO_MEND = (StoreError, "nothing was changed")
