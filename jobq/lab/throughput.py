"""How many jobs a second: real worker processes on one store, and every job looked for afterwards.

A run is measured by the store's own log, from the first claim to the last finish. A run that lost
a job, or ran one twice, has no figure.
"""

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from jobq.errors import LabError
from jobq.job import Event, EventName
from jobq.lab.folders import fresh_folder
from jobq.lab.programs import BatchProcess, WorkerProcess
from jobq.lab.waiting import wait_until
from jobq.store import LONGEST_LOG, open_store
from jobq.store.addresses import engine_of

BATCH = 100  # jobs
WAIT = 0.02  # seconds; what a handler mostly does is wait for somebody else
PATIENCE = 300.0  # seconds for a run
LEASE = 60.0  # seconds: longer than any job, also where many workers share a core
LOOK_SECONDS = 0.1  # between two looks whether a run is over, which cost it something
TOOK = re.compile(r"^\S+ took (?:(\d+) jobs$)?", re.MULTILINE)


class Way(StrEnum):
    """What the jobs are, and how they are taken."""

    SINGLE = "single"  # jobs that do nothing, each claimed and finished alone, by `jobq worker`
    BATCHED = "batched"  # the same, claimed and finished a batch at a time
    WAITING = "waiting"  # jobs that wait, each claimed and finished alone, by `jobq worker`


@dataclass(frozen=True, slots=True)
class Throughput:
    """One run, in which every job was done once."""

    engine: str  # as `engine_of` names it
    way: Way
    workers: int
    jobs: int
    seconds: float  # from the first claim to the last finish, by the store's clock

    @property
    def per_second(self) -> float:
        """How many jobs were done in a second."""
        return self.jobs / self.seconds


def measure_throughput(url: str, way: Way, workers: int, jobs: int) -> Throughput:
    """Run jobs in a new, empty store with so many workers, each a process of its own.

    The workers are there, and idle, before the jobs come, all in one transaction. Raises LabError
    if the store is not empty, and if a job was lost or ran twice.
    """
    with ExitStack() as end:
        store = end.enter_context(closing(open_store(url)))
        if store.last_event():
            raise LabError("a run is measured in a store of its own, and this one has jobs")
        folder = fresh_folder()
        end.callback(shutil.rmtree, folder, ignore_errors=True)
        processes = [_process(way, f"w{n}", folder, url) for n in range(1, workers + 1)]
        for process in processes:
            end.callback(process.kill)
        for process in processes:
            process.wait_until_started()
        ids = [entry.job.id for entry in store.enqueue_many([_job(way)] * jobs)]
        ended = f"{jobs} jobs to end"
        wait_until(lambda: not store.unfinished(), ended, PATIENCE, every=LOOK_SECONDS)
        for process in processes:
            process.stop()
        took = [_count(process.log) for process in processes]
        seconds = seconds_of(store.events(limit=LONGEST_LOG), ids, took)
    return Throughput(engine_of(url), way, workers, jobs, seconds)


def seconds_of(events: Sequence[Event], ids: Sequence[str], took: Sequence[int]) -> float:
    """Return the seconds from the first claim to the last finish.

    `took` is how many jobs each worker says it took; they keep no count of the store's. Raises
    LabError unless each job of `ids`, and no other, was claimed once and done once.
    """
    for name in (EventName.CLAIMED, EventName.DONE):
        counts = Counter(event.job_id for event in events if event.name is name)
        lost = [job for job in ids if not counts[job]]
        twice = [job for job, count in counts.items() if count > 1]
        if lost or twice:
            raise LabError(f"no figure: {len(lost)} jobs were never {name}, {len(twice)} twice")
    if sum(took) != len(ids):
        raise LabError(f"no figure: of {len(ids)} jobs, the workers say that they took {took}")
    begin = min(event.at for event in events if event.name is EventName.CLAIMED)
    return max(event.at for event in events if event.name is EventName.DONE) - begin


def _process(way: Way, name: str, folder: Path, url: str) -> BatchProcess | WorkerProcess:
    if way is Way.BATCHED:
        return BatchProcess(name, folder, url, BATCH)
    return WorkerProcess(name, folder, url, ["--lease", str(LEASE)])


def _job(way: Way) -> dict[str, Any]:
    if way is Way.WAITING:
        return {"kind": "nap", "payload": {"seconds": WAIT}}
    return {"kind": "noop", "payload": {}}


def _count(log: str) -> int:
    """Return how many jobs a worker says that it took, one by one or many at a time."""
    return sum(int(number or 1) for number in TOOK.findall(log))
