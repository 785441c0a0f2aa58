"""The demonstration: a worker is killed in the middle of a job, and the job gets done."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from jobq.errors import LabError
from jobq.job import EventName, Job
from jobq.lab.lab import Lab, LabJob
from jobq.lab.plot import plot_timeline
from jobq.lab.programs import WorkerProcess
from jobq.lab.text import text_to_scale
from jobq.lab.timeline import Timeline

YEAR = 2025
SLOW_SECONDS = 1.5  # of work: time enough to be killed in
LOOKS, LOOK_SECONDS = 3, 0.3  # at a job that nobody works on; one lease is longer
PICTURE = "crash.png"
TITLE = "kill -9 in the middle of a job"

Say = Callable[[str], None]


def crash(say: Say, folder: Path) -> None:
    """Tell and show how a job survives its worker; leave `crash.png` in the folder.

    `say` is given each line as it happens. Nothing else is left, also after an interruption.
    Raises LabError if the job did not run again within the promised time.
    """
    with Lab() as lab:
        run = _crash_and_recover(lab, _Telling(lab, say))
        timeline = lab.timeline(run.job)
        say(f"\n{_result(lab.job(run.job))}")
        say(f"\n{_judgement(lab, run)}")
        say(f"\n{text_to_scale(timeline)}")
    say(f"\nprocesses left running: {len(lab.running())}")
    say(_picture(timeline, folder / PICTURE))


class _Crash(NamedTuple):
    """What happened; times by the store's clock."""

    job: LabJob
    victim: str
    killed_at: float
    heir: str
    heir_at: float  # when it was ready to claim


class _Telling:
    """Says what happens, with the seconds since the start."""

    def __init__(self, lab: Lab, say: Say) -> None:
        self._lab = lab
        self._say = say
        self._start = time.monotonic()
        self._last = 0  # the number of the last event that was told

    def line(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._start:6.2f} s  {text}")

    def started(self, worker: WorkerProcess) -> None:
        self.line(f"{worker} started, as process {worker.pid}")

    def events_until(self, name: EventName, job: LabJob) -> None:
        """Tell every event as it comes, up to the next one of that name."""
        what = f"{job} to have the event {name}"
        self._lab.wait_until(lambda: name in self._new_events(), what)

    def _new_events(self) -> list[EventName]:
        events = self._lab.store.events(after=self._last)
        for event in events:
            self._last = event.seq
            self.line(self._lab.sentence(event))
        return [event.name for event in events]


def _crash_and_recover(lab: Lab, telling: _Telling) -> _Crash:
    telling.line(f"a new queue; a worker's lease is {lab.lease:g} s, its heartbeat extends it")
    victim = lab.start_worker()
    telling.started(victim)
    telling.line(f"asked for: the sales report of {YEAR}, {SLOW_SECONDS:g} s of work")
    job = lab.enqueue("sales_report", {"year": YEAR, "slow_seconds": SLOW_SECONDS})
    telling.events_until(EventName.HEARTBEAT, job)
    lab.kill(victim)
    killed_at = lab.store.now()
    telling.line(f"kill -9 {victim.pid}: {victim} is gone ({victim.ending})")
    for _ in range(LOOKS):
        telling.line(f"{job} is {lab.job(job).status}; workers alive: {len(lab.running())}")
        time.sleep(LOOK_SECONDS)  # to be watched, not to wait for something
    heir = lab.start_worker()
    heir_at = lab.store.now()
    telling.started(heir)
    telling.events_until(EventName.DONE, job)
    lab.stop(heir)
    telling.line(f"{heir} stopped ({heir.ending})")
    return _Crash(job, victim.name, killed_at, heir.name, heir_at)


def _result(job: Job) -> str:
    result = job.result
    return (
        f"sales of {result['year']} (invented data): {result['total_cents'] / 100:,.2f} euro net, "
        f"{result['orders']:,} orders; {job.attempts} attempts"
    )


def _picture(timeline: Timeline, path: Path) -> str:
    try:
        plot_timeline(timeline, title=TITLE).save(path)
    except (LabError, OSError) as error:
        return f"no picture: {error}"
    return f"picture: {path.name}"


def _judgement(lab: Lab, run: _Crash) -> str:
    """Return whether the job ran again as promised: one poll after its lease ran out (G10)."""
    events = lab.store.events(run.job.id)
    claim = [event for event in events if event.name is EventName.CLAIMED][-1]
    lease_end = max(e.locked_until for e in events if e.locked_until and e.seq < claim.seq)
    since, what = max(
        (lease_end, f"the lease of {run.victim} ran out"),
        (run.heir_at, f"{run.heir} was there"),
    )
    waited = max(0.0, claim.at - since)  # a new worker claims before its log is read
    found = (
        f"{run.job} ran again {claim.at - run.killed_at:.2f} s after the kill, "
        f"{waited:.3f} s after {what}; promised: {lab.poll:g} s at the most"
    )
    if waited > lab.poll:
        raise LabError(f"{found}. Too late: is this machine very busy? Try once more")
    return found
