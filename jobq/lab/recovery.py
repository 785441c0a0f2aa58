"""Kill a worker in the middle of a job, and measure how long until another one runs it."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobq.errors import LabError
from jobq.job import EventName, Status
from jobq.lab.lab import Lab
from jobq.lab.programs import WorkerProcess

REACTION_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """One experiment; all in seconds."""

    lease: float
    poll: float  # the longest wait of a worker between two looks for a job
    seconds: float  # from the kill until the job ran again

    @property
    def bound(self) -> float:
        """The promise: one lease and one poll (G10)."""
        return self.lease + self.poll

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        return self.seconds <= self.bound


def measure_recovery(lab: Lab, lease: float) -> Recovery:
    """Start two workers, kill the one that took a job, and see when the other one runs it.

    The kill comes right after a heartbeat, when the lease has longest to run. Raises LabError
    while other workers are running: they would take the job too, with a lease of their own.
    """
    others = [process.name for process in lab.running() if isinstance(process, WorkerProcess)]
    if others:
        raise LabError(f"{', '.join(others)} would take the job: stop the other workers first")
    workers = [lab.start_worker(lease=lease) for _ in range(2)]
    # Long enough for the first heartbeat, at a third of the lease, and for us to see it.
    job = lab.enqueue("nap", {"seconds": lease / 3 + REACTION_SECONDS})
    owner = lab.wait_for_event(job, EventName.HEARTBEAT).worker
    victim, heir = sorted(workers, key=lambda worker: worker.worker != owner)
    lab.kill(victim)
    killed_at = lab.store.now()
    again = lab.wait_for_event(job, EventName.CLAIMED, count=2)
    lab.wait_for(job, Status.DONE)
    lab.stop(heir)
    return Recovery(lease, lab.poll, again.at - killed_at)


def text_recovery(recoveries: Sequence[Recovery]) -> str:
    """Return what `plot_recovery` shows as text: whether each promise was kept, and no times."""
    rows = [
        f"lease {r.lease:g} s: runs again within {r.bound:g} s: {'yes' if r.kept else 'NO'}"
        for r in recoveries
    ]
    return "\n".join(rows)
