"""Carrying out a check: what it finds, and what it means that it could not be carried out."""

import sqlite3
from collections.abc import Callable, Iterable

import psutil

from jobq.doctor.finding import Finding, Grade, fail, warn
from jobq.errors import JobqError

PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT}
MENDS = {
    sqlite3.SQLITE_CANTOPEN: "make the file and its folder readable and writable",
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_IOERR: "see whether its disk is full or broken",
}
FORBIDDEN = "42501"  # of PostgreSQL's codes: insufficient_privilege
LATER = "look again in a moment"

Found = Finding | Iterable[Finding]


def tried(what: str, check: Callable[[], Found]) -> list[Finding]:
    """Return what the check finds; one that cannot be carried out is a finding too."""
    try:
        found = check()
        return [found] if isinstance(found, Finding) else list(found)
    except Exception as error:  # noqa: BLE001 - the other checks are to be carried out all the same
        return [broken(what, error)]


def broken(what: str, error: Exception) -> Finding:
    """Return the finding that an error amounts to; jobq's own name the mend themselves."""
    if isinstance(error, JobqError):
        return Finding(Grade.FAIL, str(error))
    if isinstance(error, sqlite3.Error):
        return _broken_sqlite(what, error)
    if hasattr(error, "sqlstate"):  # psycopg's, which not every install has
        return _refused(what, error.sqlstate, str(error).partition("\n")[0])
    if isinstance(error, PermissionError):
        return fail(f"{what} may not be looked at ({error})", "make its folder readable")
    if isinstance(error, OSError | psutil.Error):
        return warn(f"{what} could not be looked at ({error})", LATER)
    text = f"{what} could not be looked at ({type(error).__name__}: {error})"
    return warn(text, "this is a fault of jobq's own")


def _broken_sqlite(what: str, error: sqlite3.Error) -> Finding:
    """Return the finding for a question that SQLite did not answer."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in PASSING:
        return warn(f"{what} could not be looked at ({error})", LATER)
    return fail(f"{what} cannot be read ({error})", MENDS.get(code, "restore it from a copy"))


def _refused(what: str, code: str | None, why: str) -> Finding:
    """Return the finding for a question that PostgreSQL did not answer."""
    if code == FORBIDDEN:
        return warn(f"{what} may not be looked at ({why})", "let its owner grant it, or look")
    return warn(f"{what} could not be looked at ({why})", LATER)
