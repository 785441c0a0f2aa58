"""What a worker and its child say to each other. A Decision ends what a Run began."""

from dataclasses import dataclass
from typing import Literal

from jobq.job import Job, Progress
from jobq.outcomes import Stop


@dataclass(frozen=True, slots=True)
class Run:
    """To the child: run the handler, which is pickled, on this job.

    Its number is in what the handler says: a thread that an earlier one left behind can still talk.
    """

    number: int
    handler: bytes
    job: Job
    worker: str


@dataclass(frozen=True, slots=True)
class Cut:
    """To the child: interrupt the handler. At most once in its life, because it is ended then."""

    stop: Stop


@dataclass(frozen=True, slots=True)
class Answer:
    """To the child: the answer to the question of this number, or the error to raise."""

    number: int
    value: bool | Exception


@dataclass(frozen=True, slots=True)
class Begun:
    """From the child: the handler is found, its module imported, and now it runs."""


@dataclass(frozen=True, slots=True)
class Report:
    """From the child: how far the work has come."""

    run: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Question:
    """From the child: a question to the store."""

    run: int
    number: int
    what: Literal["is_done", "mark_done"]
    key: str
