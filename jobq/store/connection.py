"""One thread's connection to a SQLite file, and what SQLite's errors mean."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from jobq.errors import ForeignFile, StoreBusy, StoreError
from jobq.store.doorbell import Doorbell
from jobq.store.engine import Row, RowRefused, named_statements
from jobq.store.fairlock import FairLock

STATEMENTS = named_statements("sqlite.sql")

Synchronous = Literal["FULL", "NORMAL"]


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

    @cached_property
    def bell(self) -> Doorbell:
        """What tells that some connection has written; made for a thread that waits."""
        return Doorbell(self.lock.path)

    def now(self) -> float:
        """Return the machine's time: all processes on one file share it."""
        return time.time()

    def roll_back(self) -> None:
        """Undo the transaction, if one is open."""
        with self._explained():
            self._raw.rollback()

    def close(self) -> None:
        """Close everything."""
        self._raw.close()
        self.let_go()

    def let_go(self) -> None:
        """Close what is beside the database: the lock's file, and the bell."""
        self.lock.close()
        if "bell" in vars(self):
            self.bell.close()

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
    sqlite3.SQLITE_NOTADB: (ForeignFile, "so it is not a jobq store: name another file"),
    sqlite3.SQLITE_CORRUPT: (StoreError, "restore it from a copy"),
}
