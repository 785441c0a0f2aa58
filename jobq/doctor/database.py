"""The database: what it holds, and whether it is whole. Nothing here changes it."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from jobq.doctor.finding import Finding, fail, in_bytes, ok, warn
from jobq.errors import StoreError
from jobq.oneline import in_units
from jobq.store.engine import named_statements
from jobq.store.sqlite import SCHEMA_VERSION
from jobq.store.sqlitefile import APPLICATION_ID, foreign

STATEMENTS = named_statements("sqlite_doctor.sql")
SCHEMA = named_statements("sqlite.sql")["schema"]
BUSY_SECONDS = 1.0  # for a lock that should not be there
STATEMENT_SECONDS = 5.0  # for one question; what takes longer is given up
LARGE = 100_000_000  # bytes; a larger file takes long to read through
AHEAD_SECONDS = 2.0  # of the clock
UNATTENDED_SECONDS = 10.0  # since a job could be taken


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


def times(look: Look, now: float) -> Finding:
    """Check that what was written last was not written in the future."""
    newest = look.ask("newest_event")
    ahead = newest[0]["at"] - now if newest else 0.0
    if ahead > AHEAD_SECONDS:
        return warn(
            f"the newest event is dated {in_units(ahead)} from now",
            "set the clock: until then leases and waits last longer by as much",
        )
    return ok("no event is dated in the future")


def unattended(look: Look, now: float) -> Iterator[Finding]:
    """Check that somebody does the work: an idle worker takes what it can within a second."""
    long_ago = now - UNATTENDED_SECONDS
    mend = "start a worker: `jobq worker`"
    left = look.ask("abandoned", before=long_ago)[0]
    if left["jobs"]:
        ago = in_units(now - left["since"])
        yield warn(f"the lease of {_jobs(left)} ran out, {ago} ago, and nobody took over", mend)
    waiting = look.ask("waiting", before=long_ago)[0]
    alone = waiting["jobs"] and not look.ask("running", now=now)[0]["jobs"]
    if alone:
        ago = in_units(now - waiting["since"])
        yield warn(f"{_jobs(waiting)} can be run, the first for {ago}, and nothing runs", mend)
    if not left["jobs"] and not alone:
        yield ok("no job is left alone")


def _jobs(row: sqlite3.Row) -> str:
    return f"{row['jobs']:,} job" + ("" if row["jobs"] == 1 else "s")


def _expected() -> dict[str, str]:
    """Return the statement that makes each table and index, as SQLite gives it back."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(SCHEMA)
        rows = empty.execute(STATEMENTS["parts"]).fetchall()
    return {name: " ".join(sql.split()) for _, name, sql in rows}
