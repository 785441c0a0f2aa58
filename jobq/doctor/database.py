"""The database: what it holds, and whether it is whole. Nothing here changes it."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from jobq.doctor.finding import Finding, fail, in_bytes, ok, one_statement, warn
from jobq.errors import StoreError
from jobq.store.engine import named_statements
from jobq.store.sqlite import SCHEMA_VERSION
from jobq.store.sqlitefile import APPLICATION_ID, foreign

STATEMENTS = named_statements("sqlite_doctor.sql")
SCHEMA = named_statements("sqlite.sql")["schema"]
BUSY_SECONDS = 1.0  # for a lock that should not be there
STATEMENT_SECONDS = 5.0  # for one question; what takes longer is given up
LARGE = 100_000_000  # bytes; a larger file takes long to read through


class Look:
    """A connection for looking."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._raw.row_factory = sqlite3.Row
        self._raw.execute("PRAGMA query_only = ON")

    def ask(self, statement: str, **parameters: Any) -> list[sqlite3.Row]:
        """Return every row. Raises sqlite3.OperationalError for what takes too long."""
        end = time.monotonic() + STATEMENT_SECONDS
        self._raw.set_progress_handler(lambda: time.monotonic() > end, 100_000)
        return self._raw.execute(STATEMENTS[statement], parameters).fetchall()

    def value(self, statement: str) -> Any:
        """Return the one value that the statement gives."""
        return self.ask(statement)[0][0]


@contextmanager
def looking(path: Path) -> Iterator[Look]:
    """Connect to a store. Raises ForeignFile for a file that is none, and sqlite3.Error.

    Through SQLite alone: to open and close the file in another way would drop the locks that
    this process has on it (sqlite.org/howtocorrupt.html, section 2.2).
    """
    uri = f"{path.resolve().as_uri()}?mode=rw"  # an absent file stays absent
    with closing(
        sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    ) as connection:
        look = Look(connection)
        try:
            mark = look.value("application_id")
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise foreign(path) from None
            raise
        if mark != APPLICATION_ID and look.ask("parts"):
            raise foreign(path)
        yield look


def schema(look: Look) -> Finding:
    """Check which version made the tables. Raises StoreError for a later one."""
    version = look.value("schema_version")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"the store has schema {version}, and this jobq knows {SCHEMA_VERSION}: update jobq"
        )
    if version < SCHEMA_VERSION:
        text = f"the store has schema {version}, not yet {SCHEMA_VERSION}"
        return warn(text, "`jobq list` brings it up to date")
    return ok(f"the schema is version {version}")


def journal(look: Look) -> Finding:
    """Check that writers and readers do not wait for one another."""
    mode = look.value("journal_mode")
    if mode != "wal":
        return warn(f"the journal mode is {mode}, not wal", "`jobq list` sets it back")
    return ok("the journal mode is wal")


def parts(look: Look) -> Iterator[Finding]:
    """Check that no table and no index is missing."""
    here = {row["name"] for row in look.ask("parts")}
    missing = {name: sql for name, sql in _expected().items() if name not in here}
    for name, sql in missing.items():
        yield fail(f"{name} is missing from the schema", f"run this in the database: {sql};")
    if not missing:
        yield ok("no table and no index is missing")


def whole(look: Look, size: int) -> Finding:
    """Check the structure of a file that is not too large for it."""
    if size > LARGE:
        return ok(f"with {in_bytes(size)} it is too large to be read through here")
    fault = look.value("quick_check")
    if fault != "ok":
        return fail(f"the file is damaged ({fault.splitlines()[-1]})", "restore it from a copy")
    return ok("its structure is whole")


def _expected() -> dict[str, str]:
    """Return the statement that makes each table and index, as SQLite gives it back."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(SCHEMA)
        rows = empty.execute(STATEMENTS["parts"]).fetchall()
    return {name: one_statement(sql) for _, name, sql in rows}
