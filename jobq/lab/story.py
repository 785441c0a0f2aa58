"""The event log, and what was done to the processes, in plain words. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from jobq.job import Event, EventName, Status
from jobq.oneline import one_line

ERROR_LENGTH = 100  # characters of an error that a line shows

Name = Callable[[str], str]

SENTENCES = {
    EventName.ENQUEUED: "{job} enqueued{later}",
    EventName.CLAIMED: "{worker} took {job} (attempt {attempt})",
    EventName.HEARTBEAT: "{worker} extended its lease on {job}",
    EventName.DONE: "{worker} finished {job}",
    EventName.FAILED: "{worker} failed {job}: {error}; {fate}{later}",
    EventName.CRASHED: "{job}'s lease ran out; attempt {attempt} is closed as crashed{and_failed}",
    EventName.RELEASED: "{worker} released {job}; the attempt is not counted",
    EventName.REJECTED: "{job} was rejected: {error}",
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
    job, failed = name_job(happening.job_id), happening.status is Status.FAILED
    return SENTENCES[happening.name].format(
        job=job,
        worker=name_worker(happening.worker or "nobody"),
        attempt=happening.attempt,
        error=_short(happening.error),
        later=_later(happening, in_seconds=waits),
        fate="failed for good" if failed else "queued again",
        and_failed=f"; {job} has failed for good" if failed else "",
    )


def _later(event: Event, *, in_seconds: bool) -> str:
    wait = (event.run_after or 0.0) - event.at
    if wait <= 0:
        return ""
    return f", for {wait:.2f} s later" if in_seconds else ", for later"


def _short(error: str | None) -> str:
    """Return an error as one line of bounded length that cannot command a terminal."""
    text = one_line(" ".join((error or "no reason given").split()))
    return text if len(text) <= ERROR_LENGTH else f"{text[: ERROR_LENGTH - 1]}…"
