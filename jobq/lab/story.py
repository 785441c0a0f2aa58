"""The event log, and what was done to the processes, in plain words. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from jobq.job import Event, EventName, Status
from jobq.oneline import in_words, short
from jobq.store.endings import RAN_OUT

Name = Callable[[str], str]

SENTENCES = {
    EventName.ENQUEUED: "{job} enqueued{later}",
    EventName.CLAIMED: "{worker} took {job} (attempt {attempt})",
    EventName.HEARTBEAT: "{worker} extended its lease on {job}{progress}",
    EventName.DONE: "{worker} finished {job}",
    EventName.FAILED: "{worker} failed {job}: {error}; {fate}{later}",
    EventName.CRASHED: "{job}'s lease ran out; attempt {attempt} is closed as crashed{and_so}",
    EventName.RELEASED: "{worker} released {job}; the attempt is not counted{and_so}",
    EventName.CANCEL_REQUESTED: "{job} is to be cancelled; the next heartbeat tells {worker}",
    EventName.CANCELLED: "{job} is cancelled{by_worker}",
    EventName.RETRIED: "{job} is queued again by an operator; its attempts begin anew",
    EventName.REJECTED: "{job} was rejected: {error}",
}


DIED = "{worker} saw {job} crash: {error}; {fate}{later}"  # a crash before its lease ran out
FATES = {  # of a job whose attempt did not succeed
    Status.QUEUED: "queued again",
    Status.FAILED: "failed for good",
    Status.CANCELLED: "cancelled, as was asked for",
}


class Deed(StrEnum):
    """What was done to a worker's process."""

    KILLED = "killed"
    PAUSED = "paused"
    CONTINUED = "continued"
    STOPPED = "stopped"
    EXITED = "exited"  # by itself


@dataclass(frozen=True, slots=True)
class Mark:
    """A deed, at a time by the clock of the events."""

    at: float
    worker: str  # as the events name it
    deed: Deed
    how: str  # SIGKILL, SIGSTOP, exit code 0 …


def tell(
    events: Iterable[Event],
    *,
    name_job: Name,
    name_worker: Name,
    marks: Sequence[Mark] = (),
    times: bool = False,
) -> str:
    """Return the story, a line for each event but the heartbeats, and for each mark.

    `name_job` and `name_worker` say how ids and workers are called. With `times` each line begins
    with the seconds since the first one, and waits are told in seconds; without, nothing in the
    story depends on a clock.
    """
    happenings = [h for h in in_order(events, marks) if not is_heartbeat(h)]
    lines = [sentence(h, name_job, name_worker, waits=times) for h in happenings]
    if times:
        start = happenings[0].at if happenings else 0.0
        lines = [
            f"{h.at - start:7.2f} s  {line}" for h, line in zip(happenings, lines, strict=True)
        ]
    return "\n".join(lines)


def in_order(events: Iterable[Event], marks: Sequence[Mark]) -> Iterator[Event | Mark]:
    """Give both in one order: the events' own, each mark before the first later event."""
    waiting = sorted(marks, key=lambda mark: mark.at, reverse=True)
    for event in events:
        while waiting and waiting[-1].at < event.at:
            yield waiting.pop()
        yield event
    yield from reversed(waiting)


def is_heartbeat(happening: Event | Mark) -> bool:
    """Whether this is a heartbeat; how many there are depends on the machine's speed."""
    return isinstance(happening, Event) and happening.name is EventName.HEARTBEAT


def sentence(
    happening: Event | Mark, name_job: Name, name_worker: Name, *, waits: bool = False
) -> str:
    """Return what happened, as a sentence; with `waits` it gives waits in seconds."""
    if isinstance(happening, Mark):
        return f"{name_worker(happening.worker)} {happening.deed} ({happening.how})"
    job, worker = name_job(happening.job_id), name_worker(happening.worker or "nobody")
    died = happening.name is EventName.CRASHED and not ran_out(happening)
    return (DIED if died else SENTENCES[happening.name]).format(
        job=job,
        worker=worker,
        attempt=happening.attempt,
        error=short(happening.error or "no reason given"),
        later=_later(happening, in_seconds=waits),
        fate=FATES.get(happening.status, happening.status),
        and_so=_and_so(happening, job),
        by_worker=f"; {worker} has stopped" if happening.worker else "",
        progress=f": {in_words(happening.progress)}" if happening.progress else "",
    )


def ran_out(event: Event) -> bool:
    """Whether an attempt ended with its lease; another crash is a process that was seen to die."""
    return event.name is EventName.CRASHED and (event.error or "").endswith(RAN_OUT)


def _and_so(event: Event, job: str) -> str:
    """Return what else became of a job that is not queued again."""
    if event.status is Status.FAILED:
        return f"; {job} has failed for good"
    return f"; {job} is cancelled, as was asked for" if event.status is Status.CANCELLED else ""


def _later(event: Event, *, in_seconds: bool) -> str:
    wait = (event.run_after or 0.0) - event.at
    if wait <= 0:
        return ""
    return f", for {wait:.2f} s later" if in_seconds else ", for later"
