"""What a job is: its states, the moves between them, its attempts and its events.

Pure values: nothing here reads a clock, a database or the environment. Times are seconds since
1970 in UTC, as `time.time()` gives them.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from jobq.retry import RetryPolicy


class Status(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether no worker may change the job any more (G3)."""
        return self in {Status.DONE, Status.FAILED, Status.CANCELLED}


class Outcome(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    FAILED = "failed"
    CRASHED = "crashed"  # its lease ran out, or its process died
    RELEASED = "released"  # given back unharmed; not counted
    CANCELLED = "cancelled"


class EventName(StrEnum):
    """What happened to a job; one row of the event log each."""

    ENQUEUED = "enqueued"
    CLAIMED = "claimed"
    HEARTBEAT = "heartbeat"
    DONE = "done"
    FAILED = "failed"
    CRASHED = "crashed"
    RELEASED = "released"
    CANCEL_REQUESTED = "cancel_requested"  # while it runs: its worker is told
    CANCELLED = "cancelled"
    RETRIED = "retried"  # by an operator: its attempts begin anew
    REJECTED = "rejected"  # a row that could not be claimed, put out of the way


# The state machine: what each event may turn a job from, and into. The SQL guards the left side
# (status and token are part of every update); the tests replay event logs against this table.
# An attempt that did not succeed leads to `cancelled` if that was asked for meanwhile.
_STOPPED = frozenset({Status.QUEUED, Status.FAILED, Status.CANCELLED})
_ACTIVE = frozenset({Status.QUEUED, Status.RUNNING})
MOVES: dict[EventName, tuple[frozenset[Status | None], frozenset[Status]]] = {
    EventName.ENQUEUED: (frozenset({None}), frozenset({Status.QUEUED})),
    EventName.CLAIMED: (frozenset({Status.QUEUED}), frozenset({Status.RUNNING})),
    EventName.HEARTBEAT: (frozenset({Status.RUNNING}), frozenset({Status.RUNNING})),
    EventName.DONE: (frozenset({Status.RUNNING}), frozenset({Status.DONE})),
    EventName.FAILED: (frozenset({Status.RUNNING}), _STOPPED),
    EventName.CRASHED: (frozenset({Status.RUNNING}), _STOPPED),
    EventName.RELEASED: (frozenset({Status.RUNNING}), _STOPPED),
    EventName.CANCEL_REQUESTED: (frozenset({Status.RUNNING}), frozenset({Status.RUNNING})),
    EventName.CANCELLED: (_ACTIVE, frozenset({Status.CANCELLED})),
    EventName.RETRIED: (
        frozenset({Status.FAILED, Status.CANCELLED}),
        frozenset({Status.QUEUED}),
    ),
    EventName.REJECTED: (frozenset({Status.QUEUED}), frozenset({Status.FAILED})),
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work has come, as its handler tells."""

    done: float
    total: float | None = None  # None where nobody knows
    message: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the queue, as it was when it was read.

    A job that `claim` returned is also the worker's ticket: `id` and `token` together name the
    lease, and finish, fail, heartbeat and release are refused when either is no longer right.
    """

    id: str
    kind: str
    payload: dict[str, Any] = field(repr=False)
    status: Status
    attempts: int  # counted attempts so far, the present one included
    max_attempts: int
    priority: int  # higher is more urgent
    token: int  # the number of the last lease; grows with every claim and never goes back
    run_after: float  # earliest time of the next attempt; 0 means at once
    created_at: float
    worker: str | None = None  # who holds the lease
    locked_until: float | None = None  # when the lease runs out
    started_at: float | None = None  # of the last attempt
    finished_at: float | None = None
    cancel_requested: bool = False  # while it runs: no other attempt follows this one
    progress: Progress | None = None  # the last that was told, whatever became of its attempt
    retry: RetryPolicy | None = field(default=None, repr=False)  # the job's own, if it has one
    idempotency_key: str | None = field(default=None, repr=False)
    result: Any = field(default=None, repr=False)
    error: str | None = None  # of the last attempt that failed; kept when a later one succeeds


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a job by one worker."""

    job_id: str
    number: int  # as counted when it started; a released attempt's number is given out again
    token: int  # of the lease it ran under; unique within the job
    worker: str
    started_at: float
    ended_at: float | None  # None while it runs
    outcome: Outcome | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the append-only log, written in the transaction that made it true."""

    seq: int  # grows with every event of the store, in the order of the commits
    job_id: str
    at: float
    name: EventName
    status: Status  # of the job, after the event
    attempt: int
    token: int
    worker: str | None
    locked_until: float | None  # when the lease runs out, while there is one
    run_after: float | None  # earliest next attempt, while the job is queued; 0 means at once
    error: str | None
    progress: Progress | None = None  # of a heartbeat that carried one


@dataclass(frozen=True, slots=True)
class Stats:
    """How many jobs stand where."""

    counts: dict[Status, int]  # every status has its number
    oldest_waiting_seconds: float | None  # age of the oldest queued job; None without one
    kinds: dict[str, dict[Status, int]]  # the same counts for each kind there is
    finished_last_minute: int  # jobs that became done, failed or cancelled in the last 60 s
