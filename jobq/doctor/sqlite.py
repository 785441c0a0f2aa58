"""A SQLite store: its file, the database in it, and those who use it."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jobq.doctor import database, disk, holders, queue, wal
from jobq.doctor.checking import broken, tried
from jobq.doctor.database import Look
from jobq.doctor.finding import Finding, Grade
from jobq.errors import JobqError

LOOKS = 5  # at who holds what; a hold that is met each time is a long one
BETWEEN_SECONDS = 0.05  # two looks


def examine(path: Path, now: Callable[[], float]) -> Iterator[Finding]:
    """Yield what there is to say about the store; what keeps other checks from it comes last."""
    yield from (file := tried("the file", lambda: disk.file(path)))
    if file[0].grade is Grade.FAIL:
        return
    yield from tried("the disk's space", lambda: disk.space(path.parent))
    yield from tried("the clock", lambda: disk.clock(path.parent, now()))
    if file[0].grade is Grade.OK:
        yield from _examine_database(path, now)


def _examine_database(path: Path, now: Callable[[], float]) -> Iterator[Finding]:
    """Yield what there is to say about the database and those who use it."""
    try:
        with database.looking(path) as look:
            yield from (schema := tried("the schema", lambda: database.schema(look)))
            if schema[0].grade is not Grade.OK:
                return
            yield from _examine_users(path, look)
            yield from tried("the journal mode", lambda: database.journal(look))
            yield from tried("the tables", lambda: database.parts(look))
            size = path.stat().st_size + wal.size(path)
            yield from tried("the structure", lambda: database.whole(look, size))
            yield from tried("the events", lambda: queue.times(look, now()))
            yield from tried("the jobs", lambda: queue.unattended(look, now()))
    except (JobqError, sqlite3.Error, OSError) as error:
        yield broken("the database", error)
        yield from tried("who uses it", lambda: holders.users(holders.holders(path)))


def _examine_users(path: Path, look: Look) -> Iterator[Finding]:
    """Yield what processes do to the store."""
    looks, checkpoints, marks = [], [], set()
    for number in range(LOOKS):
        time.sleep(BETWEEN_SECONDS if number else 0)
        marks.add(look.value("data_version"))
        checkpoints.append(wal.checkpoint(look))
        looks.append(holders.holders(path))
    still = len(marks) == 1
    yield from tried("who uses it", lambda: holders.users(looks[-1]))
    yield from tried("who writes", lambda: holders.writers(looks, still=still))
    yield from tried("the log", lambda: wal.log(checkpoints, looks, wal.size(path)))
