"""What is wrong with a store, or with the machine it is on, and how to mend it.

Each check is a function that is given what it needs and returns a Finding or several. Nothing is
changed, and nobody is kept waiting: a doctor may look in while workers run.
"""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from jobq.doctor import database, disk, holders, machine, wal
from jobq.doctor.database import Look
from jobq.doctor.finding import Finding, Grade, fail, warn
from jobq.errors import JobqError
from jobq.store.sqlite import OLDEST_SQLITE

__all__ = ["Finding", "Grade", "examine_machine", "examine_store"]

LOOKS = 5  # at who holds what; a hold that is met each time is a long one
BETWEEN_SECONDS = 0.05  # two looks

PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT}
MENDS = {
    sqlite3.SQLITE_CANTOPEN: "make the file and its folder readable and writable",
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_IOERR: "see whether its disk is full or broken",
}

Found = Finding | Iterable[Finding]


def examine_machine(host: str, port: int, leftovers: Sequence[Path]) -> Iterator[Finding]:
    """Yield what there is to say about this machine; `leftovers` are folders of dead labs."""
    yield from _tried("Python", lambda: machine.python(tuple(sys.version_info[:3])))
    sqlite = sqlite3.sqlite_version_info
    yield from _tried("SQLite", lambda: machine.sqlite(sqlite, OLDEST_SQLITE))
    yield from _tried("Jupyter's kernel", lambda: machine.kernel(sys.executable))
    yield from _tried("the port", lambda: machine.port(host, port))
    yield from _tried("earlier labs", lambda: machine.leftovers(leftovers))


def examine_store(path: Path, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield what there is to say about a store; what keeps other checks from it comes last."""
    yield from (file := _tried("the file", lambda: disk.file(path)))
    if file[0].grade is Grade.FAIL:
        return
    yield from _tried("the disk's space", lambda: disk.space(path.parent))
    yield from _tried("the clock", lambda: disk.clock(path.parent, now()))
    if file[0].grade is Grade.OK:
        yield from _examine_database(path, now)


def _examine_database(path: Path, now: Callable[[], float]) -> Iterator[Finding]:
    """Yield what there is to say about the database and those who use it."""
    try:
        with database.looking(path) as look:
            yield from (schema := _tried("the schema", lambda: database.schema(look)))
            if schema[0].grade is not Grade.OK:
                return
            yield from _examine_users(path, look)
            yield from _tried("the journal mode", lambda: database.journal(look))
            yield from _tried("the tables", lambda: database.parts(look))
            size = path.stat().st_size + wal.size(path)
            yield from _tried("the structure", lambda: database.whole(look, size))
            yield from _tried("the events", lambda: database.times(look, now()))
            yield from _tried("the jobs", lambda: database.unattended(look, now()))
    except (JobqError, sqlite3.Error, OSError) as error:
        yield _broken("the database", error)
        yield from _tried("who uses it", lambda: holders.users(holders.holders(path)))


def _examine_users(path: Path, look: Look) -> Iterator[Finding]:
    """Yield what processes do to the store."""
    looks, checkpoints, marks = [], [], set()
    for number in range(LOOKS):
        time.sleep(BETWEEN_SECONDS if number else 0)
        marks.add(look.value("data_version"))
        checkpoints.append(wal.checkpoint(look))
        looks.append(holders.holders(path))
    still = len(marks) == 1
    yield from _tried("who uses it", lambda: holders.users(looks[-1]))
    yield from _tried("who writes", lambda: holders.writers(looks, still=still))
    yield from _tried("the log", lambda: wal.log(checkpoints, looks, wal.size(path)))


def _tried(what: str, check: Callable[[], Found]) -> list[Finding]:
    """Return what the check finds; one that cannot be carried out is a finding too."""
    try:
        found = check()
        return [found] if isinstance(found, Finding) else list(found)
    except Exception as error:  # noqa: BLE001 - the other checks are to be carried out all the same
        return [_broken(what, error)]


def _broken(what: str, error: Exception) -> Finding:
    """Return the finding that an error amounts to; jobq's own name the mend themselves."""
    if isinstance(error, JobqError):
        return Finding(Grade.FAIL, str(error))
    if isinstance(error, PermissionError):
        return fail(f"{what} may not be looked at ({error})", "make its folder readable")
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in PASSING:
            return warn(f"{what} could not be looked at ({error})", "look again in a moment")
        return fail(f"{what} cannot be read ({error})", MENDS.get(code, "restore it from a copy"))
    if isinstance(error, OSError | psutil.Error):
        return warn(f"{what} could not be looked at ({error})", "look again in a moment")
    text = f"{what} could not be looked at ({type(error).__name__}: {error})"
    return warn(text, "this is a fault of jobq's own")
