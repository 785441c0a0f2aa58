"""What is wrong with a store, or with the machine it is on, and how to mend it.

Each check is a function that is given what it needs and returns a Finding or several. Nothing is
changed, and nobody is kept waiting: a doctor may look in while workers run.
"""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jobq.doctor import machine, postgres, sqlite
from jobq.doctor.checking import tried
from jobq.doctor.finding import Finding, Grade
from jobq.store.addresses import engine_of
from jobq.store.sqlite import OLDEST_SQLITE
from jobq.store.sqlitefile import path_of

__all__ = ["Finding", "Grade", "examine_machine", "examine_store"]


def examine_machine(host: str, port: int, leftovers: Sequence[Path]) -> Iterator[Finding]:
    """Yield what there is to say about this machine; `leftovers` are folders of dead labs."""
    yield from tried("Python", lambda: machine.python(tuple(sys.version_info[:3])))
    version = sqlite3.sqlite_version_info
    yield from tried("SQLite", lambda: machine.sqlite(version, OLDEST_SQLITE))
    yield from tried("Jupyter's kernel", lambda: machine.kernel(sys.executable))
    yield from tried("the port", lambda: machine.port(host, port))
    yield from tried("earlier labs", lambda: machine.leftovers(leftovers))


def examine_store(url: str | Path, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield what there is to say about the store at a URL, or at the path of a SQLite file.

    `now` is this machine's clock. Raises InvalidInput for a URL that names no engine.
    """
    if engine_of(url) == "postgresql":
        yield from postgres.examine(str(url), now)
    else:
        yield from sqlite.examine(path_of(url), now)
