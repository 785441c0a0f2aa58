"""What happened when, on which worker: the data of every picture. Pure.

Times are seconds since the first happening: an event, or a mark.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from jobq.job import Event, EventName, Outcome, Status
from jobq.lab.story import Deed, Mark, Name, in_order, is_heartbeat, ran_out

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt: who held the lease, from when to when, and what came of it."""

    worker: str
    job: str
    number: int
    start: float
    end: float
    outcome: Outcome | None  # None while it runs
    heartbeats: tuple[float, ...]
    idle: tuple[Interval, ...]  # the lease held, but the process was dead or stood still
    ran_out: bool = False  # it crashed with its lease; else a crash is a process seen to die


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which a job had no lease and waited for one."""

    job: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Step:
    """One happening of the story; heartbeats are none."""

    at: float
    name: EventName | Deed
    worker: str | None
    job: str | None
    attempt: int = 0

    @property
    def within(self) -> bool:
        """Whether it came to a worker during an attempt, or between two, and is no end of one."""
        return isinstance(self.name, Deed) or self.name is EventName.CANCEL_REQUESTED


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lanes of the workers, and what lies in them."""

    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    waits: tuple[Wait, ...]
    steps: tuple[Step, ...]
    span: float  # seconds from the first happening to the last


def build(
    events: Iterable[Event],
    *,
    name_job: Name,
    name_worker: Name,
    marks: Sequence[Mark] = (),
    lanes: Sequence[str] = (),
    until: float | None = None,
) -> Timeline:
    """Return the timeline of the events, which are in the log's order, and the marks.

    `lanes` are workers, as the events name them, that have a lane in any case, in this order;
    the others follow as they appear. While a job is not final the timeline goes on to `until`, a
    time by the events' clock; without it, to the last happening.
    """
    log = list(events)
    origin = min([e.at for e in log[:1]] + [mark.at for mark in marks], default=0.0)
    log = [_relative(event, origin, name_job, name_worker) for event in log]
    marks = sorted(marks, key=lambda mark: mark.at)
    deeds = [replace(m, at=m.at - origin, worker=name_worker(m.worker)) for m in marks]
    steps = tuple(_step(h) for h in in_order(log, deeds) if not is_heartbeat(h))
    last = [event.at for event in log[-1:]] + [deed.at for deed in deeds]
    final = all({event.job_id: event.status.final for event in log}.values())
    span = max([*last, 0.0 if until is None or final else until - origin])
    bars = tuple(_bars(log, deeds, span))
    seen = [step.worker for step in steps if step.worker is not None]
    return Timeline(
        lanes=tuple(dict.fromkeys([*map(name_worker, lanes), *seen])),
        bars=bars,
        waits=tuple(_waits(log, span)),
        steps=steps,
        span=span,
    )


def _relative(event: Event, origin: float, name_job: Name, name_worker: Name) -> Event:
    """Return the event with its names for people, and times counted from the origin."""
    return replace(
        event,
        at=event.at - origin,
        job_id=name_job(event.job_id),
        worker=None if event.worker is None else name_worker(event.worker),
        locked_until=None if event.locked_until is None else event.locked_until - origin,
    )


def _step(happening: Event | Mark) -> Step:
    if isinstance(happening, Mark):
        return Step(happening.at, happening.deed, happening.worker, job=None)
    return Step(happening.at, happening.name, happening.worker, happening.job_id, happening.attempt)


def _bars(log: Sequence[Event], deeds: Sequence[Mark], until: float) -> Iterator[Bar]:
    """Give the attempts in the order of their starts."""
    leases: dict[tuple[str, int], list[Event]] = {}
    for event in log:
        if event.worker is not None:  # what happens under no lease has none
            leases.setdefault((event.job_id, event.token), []).append(event)
    for lease in leases.values():
        first, last = lease[0], lease[-1]
        outcome = Outcome(last.name) if last.status is not Status.RUNNING else None
        end = last.at if outcome else until
        if ran_out(last):
            # Whoever finds that a lease ran out writes so later: the attempt ended with the lease.
            end = next(e.locked_until for e in reversed(lease) if e.locked_until is not None)
        yield Bar(
            worker=first.worker or "nobody",
            job=first.job_id,
            number=first.attempt,
            start=first.at,
            end=end,
            outcome=outcome,
            heartbeats=tuple(e.at for e in lease if e.name is EventName.HEARTBEAT),
            idle=tuple(_idle(first.worker, first.at, end, deeds)),
            ran_out=ran_out(last),
        )


def _idle(
    worker: str | None, start: float, end: float, deeds: Sequence[Mark]
) -> Iterator[Interval]:
    """Give the parts of an attempt in which its worker's process was dead or stood still."""
    own = [deed for deed in deeds if deed.worker == worker]
    for deed, following in pairwise([*own, None]):
        if deed is None or deed.deed is Deed.CONTINUED:
            continue
        away, back = deed.at, math.inf if following is None else following.at
        if away <= end and back > start:
            yield max(away, start), min(back, end)


def _waits(log: Sequence[Event], until: float) -> Iterator[Wait]:
    """Give the times in which a job that could have been claimed, or will be, had no lease."""
    for job in dict.fromkeys(event.job_id for event in log):
        begin: float | None = None
        lease_end = 0.0
        for event in (event for event in log if event.job_id == job):
            if event.status is Status.QUEUED:
                begin = lease_end if ran_out(event) else event.at
            elif begin is not None:
                yield from _wait(job, begin, event.at)
                begin = None
            lease_end = event.at if event.locked_until is None else event.locked_until
        if begin is not None:
            yield from _wait(job, begin, until)


def _wait(job: str, begin: float, end: float) -> Iterator[Wait]:
    if begin < end:
        yield Wait(job, begin, end)
