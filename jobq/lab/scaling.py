"""What more workers bring, on each engine: many runs, the best of each kind, kept in a file."""

import itertools
import json
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from jobq.errors import LabError
from jobq.lab.pgserver import NoServer, temporary_server
from jobq.lab.throughput import BATCH, WAIT, Throughput, Way, measure_throughput

WORKERS = (1, 2, 4, 8)
DAY = 86_400  # seconds
JOBS = {Way.SINGLE: 1_000, Way.BATCHED: 10_000}  # a few seconds of work
WRITES = 100  # of which the median is told
WAITING_JOBS = 100  # for each worker: two seconds of waiting
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
SAYS = {
    Way.SINGLE: "jobs that do nothing, one at a time",
    Way.BATCHED: f"jobs that do nothing, {BATCH} at a time",
    Way.WAITING: f"jobs that wait {WAIT * 1000:.0f} ms, one at a time",
}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scaling:
    """The best run of each kind, and where and how they were measured."""

    machine: str  # what the figures depend on, in words
    durable: str  # the settings by which an acknowledged job survives a power cut
    rounds: int  # of which the best counts: whatever else a machine does makes a run slower
    runs: tuple[Throughput, ...]

    def of(self, engine: str, way: Way) -> list[Throughput]:
        """Return the runs of one line of the picture, the fewest workers first."""
        runs = (run for run in self.runs if (run.engine, run.way) == (engine, way))
        return sorted(runs, key=lambda run: run.workers)


def measure_scaling(
    folder: Path,
    say: Say,
    *,
    workers: Sequence[int] = WORKERS,
    rounds: int = 1,
    scale: float = 1.0,
) -> Scaling:
    """Measure each way with each number of workers on SQLite and on PostgreSQL.

    The engines take turns, so that a busy minute of the machine counts for both. `folder` is for
    SQLite's files, on a disk and not in memory; `scale` makes the runs longer or shorter. `say` is
    given a line for each run. Raises LabError if a run lost a job or ran one twice, and NoServer
    where there is no PostgreSQL.
    """
    best: dict[tuple[str, Way, int], Throughput] = {}
    with fresh_schemas() as (schemas, settings):
        urls = {"sqlite": _fresh_files(folder), "postgresql": schemas}
        for way, number, _ in itertools.product(Way, workers, range(rounds)):
            jobs = max(number, round(scale * JOBS.get(way, WAITING_JOBS * number)))
            for engine, fresh in urls.items():
                run = measure_throughput(next(fresh), way, number, jobs)
                say(f"{NAMES[engine]}, {SAYS[way]}, workers: {number}: {run.per_second:,.0f}/s")
                kind = engine, way, number
                best[kind] = max(best.get(kind, run), run, key=lambda run: run.per_second)
    machine = f"{os.cpu_count()} cores, a write to disk takes {_disk_seconds(folder) * 1e3:.2f} ms"
    engines = f"SQLite {sqlite3.sqlite_version}, PostgreSQL {settings['server_version']}"
    machine += f"; Python {platform.python_version()}, {engines}"
    durable = "SQLite: synchronous=FULL; PostgreSQL: " + ", ".join(
        f"{name}={settings[name]}" for name in ("fsync", "synchronous_commit")
    )
    return Scaling(machine, durable, rounds, tuple(best.values()))


@contextmanager
def fresh_schemas(
    options: Mapping[str, str] | None = None,
) -> Iterator[tuple[Iterator[str], dict[str, str]]]:
    """Run a server of our own; give URLs of schemas that are new in it, and its settings.

    `options` are settings that it is to have. Raises NoServer, also without psycopg.
    """
    try:
        import psycopg  # noqa: PLC0415 - an extra brings it; a plain install has none
        from psycopg import sql  # noqa: PLC0415 - as above
    except ImportError as error:
        raise NoServer(f"PostgreSQL needs psycopg ({error}): pip install 'jobq[course]'") from error
    with (
        temporary_server(options=options) as server,
        psycopg.connect(server.url(), autocommit=True) as admin,
    ):

        def schemas() -> Iterator[str]:
            for name in map("run_{}".format, itertools.count(1)):
                admin.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
                yield f"{server.url()}?options=-csearch_path%3D{name}"

        rows = admin.execute("SELECT name, setting FROM pg_settings").fetchall()
        yield schemas(), dict(rows)


def _disk_seconds(folder: Path) -> float:
    """Return how long a small write takes until it is on the disk: next to nothing in memory."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(WRITES):
            file.write(b"x" * 4096)
            file.flush()
            before = time.perf_counter()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - before)
    return statistics.median(took)


def _fresh_files(folder: Path) -> Iterator[str]:
    """Give URLs of files that are new; a file goes when the next one comes."""
    for number in itertools.count(1):
        yield f"sqlite:///{(folder / f'{number}.db').as_posix()}"
        for file in folder.glob(f"{number}.db*"):
            file.unlink()


def text_scaling(scaling: Scaling) -> str:
    """Return what `plot_scaling` shows as a table, in jobs a second."""
    numbers = sorted({run.workers for run in scaling.runs})
    lines = ["jobs a second, by workers".ljust(46) + "".join(f"{n:>9}" for n in numbers)]
    for way, engine in itertools.product(Way, NAMES):
        cells = "".join(f"{run.per_second:>9,.0f}" for run in scaling.of(engine, way))
        lines.append(f"{SAYS[way]:<36}{NAMES[engine]:<10}{cells}")
    return "\n".join([*lines, _a_day(scaling), *how_measured(scaling)])


def _a_day(scaling: Scaling) -> str:
    """Return how many jobs PostgreSQL's best runs would do in a day."""
    single, batched = (
        max(run.per_second for run in scaling.of("postgresql", way)) * DAY / 1e6
        for way in (Way.SINGLE, Way.BATCHED)
    )
    return (
        f"PostgreSQL in a day: {single:,.0f} million jobs one at a time, {batched:,.0f} in batches"
    )


def how_measured(scaling: Scaling) -> list[str]:
    """Return, in two lines, what the figures hold for."""
    rounds = "one run each" if scaling.rounds == 1 else f"best of {scaling.rounds} runs"
    return [f"{scaling.machine}; {rounds}, all processes on one machine", scaling.durable]


def write_scaling(scaling: Scaling, path: Path) -> None:
    """Write the measurement as JSON, to be drawn again; over an older one, but no other file.

    Raises LabError if the file is something else.
    """
    check_measurement(path)
    path.write_text(json.dumps(asdict(scaling), indent=1) + "\n", encoding="utf-8")


def check_measurement(path: Path) -> None:
    """Raise LabError if there is a file that is something else than a measurement."""
    if path.exists():
        read_scaling(path)


def read_scaling(path: Path) -> Scaling:
    """Return a measurement that `write_scaling` wrote. Raises LabError for any other file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        runs = [Throughput(**{**run, "way": Way(run["way"])}) for run in found.pop("runs")]
        return Scaling(**found, runs=tuple(runs))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise LabError(f"{path} is no measurement of scaling: {error}") from error
