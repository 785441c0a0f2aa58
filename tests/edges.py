"""The edge cases that every engine is asked, and the right answer to each: see test_parity.py.

A case does something with a store or its API and tells what it was answered. Ids, numbers of
events and ports are another text in each run: they get names, in the order in which they appear.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest

from jobq import Job, JobqError, Status, Store
from jobq.api import create_app

if TYPE_CHECKING:
    from tests.conftest import Clock, Stage

NAMES = {  # what is another text in each run, and what it is called
    "job": re.compile(r"\b[0-9a-fA-F]{31,33}\b"),
    "event": re.compile(r'(?<=\bseq=)\d+|(?<="seq":)\d+|(?<=\nid: )\d+'),
    "port": re.compile(r"(?<=localhost:)\d+"),
}
START = 1_000_000.0  # seconds since 1970, at which every case begins
EMPTY = ("DELETE FROM jobs", "DELETE FROM attempts", "DELETE FROM events", "DELETE FROM marks")
NOTHING: object = ([], [], 0)


class Doors:
    """All ways into one store, which goes by a clock that stands still."""

    def __init__(
        self, store: Store, client: httpx.Client, clock: "Clock", again: Callable[..., Store]
    ) -> None:
        self.store = store
        self.client = client
        self.clock = clock
        self.again = again  # opens the same store with other options
        self.before: object = NOTHING
        self.refusing = True  # whether the case is about a refusal: to look takes its time

    def empty(self) -> None:
        """Forget all jobs, and begin again at the same time."""
        if self.store.last_event():
            with self.store.transaction() as tx:
                for sql in EMPTY:
                    tx.execute(sql)
        self.clock.now = START
        self.before = NOTHING

    def look(self) -> None:
        """Take the store as it is for what a refusal has to leave unchanged."""
        if self.refusing:
            self.before = self._all()

    def changed(self) -> bool:
        """Whether the store is another one than at the last look."""
        return self._all() != self.before

    def claimed(self, **arguments: Any) -> Job:
        """Return a new job that a worker has just claimed."""
        wanted: dict[str, Any] = {"kind": "noop", "payload": {}} | arguments
        self.store.enqueue(**wanted)
        job = self.store.claim("w1")
        assert job is not None
        self.look()
        return job

    def job(self, status: Status) -> Job:
        """Return a new job that stands there."""
        if status is Status.QUEUED:
            job = self.store.enqueue("noop", {}).job
        elif status is Status.CANCELLED:
            job = self.store.cancel(self.store.enqueue("noop", {}).job.id)
        else:
            job = self.claimed()
        if status is Status.DONE:
            job = self.store.finish(job, None)
        if status is Status.FAILED:
            job = self.store.fail(job, "no", final=True)
        self.look()
        return job

    def _all(self) -> object:
        jobs = self.store.list(limit=1_000)
        return jobs, [self.store.attempts(job.id) for job in jobs], self.store.last_event()


ERROR = re.compile("[A-Z][A-Za-z]+: ")  # begins what is said of an error
Edge = tuple[str, Callable[[Doors, Any], str], Any, str]  # what a Case is made of


class Case(NamedTuple):
    """What is done, and the right answer; one that ends with `…` need only begin so."""

    name: str
    do: Callable[[Doors, Any], str]
    value: Any  # that it is done with
    right: str

    def answer(self, doors: Doors) -> str:
        """Return what is said in an empty store."""
        doors.empty()
        doors.refusing = ERROR.match(self.right) is not None or self.right[:1] == "4"
        try:
            said = self.do(doors, self.value)
        except JobqError as error:
            said = f"{type(error).__name__}: {error}"
            if doors.refusing and doors.changed():
                said = f"changed the store and raised {said}"
        except Exception as error:  # noqa: BLE001 # no answer, but one engine may give another
            said = f"ended with {type(error).__name__}: {error}"
        return named(said)

    def holds(self, answer: str) -> bool:
        """Whether the answer is right."""
        right = named(self.right)
        return answer.startswith(right[:-1]) if right.endswith("…") else answer == right


def named(text: str) -> str:
    """Return a text with names for what is another one in each run, in order of appearance."""
    for name, pattern in NAMES.items():
        places = {found: n for n, found in enumerate(dict.fromkeys(pattern.findall(text)), 1)}
        text = pattern.sub(partial(_named, name, places), text)
    return text


def _named(name: str, places: dict[str, int], found: re.Match[str]) -> str:
    return f"{name}-{places[found[0]]}"


@pytest.fixture(scope="session")
def edge_cases(
    value_edges: list[Edge], step_edges: list[Edge], http_edges: list[Edge]
) -> list[Case]:
    """Return every case."""
    return [Case(*edge) for edge in (*value_edges, *step_edges, *http_edges)]


Ask = Callable[..., dict[str, str]]


@pytest.fixture
def ask(
    edge_cases: list[Case],
    opened: Callable[..., Store],
    stage: "tuple[Stage, httpx.Client]",
    clock: "Clock",
) -> Ask:
    """Return what gives the answer of a new store, at a URL, to each case."""

    def ask_all(url: str, **options: str) -> dict[str, str]:
        def again(**others: Any) -> Store:
            return opened(url, **(options | {"clock": clock} | others))

        store = again()
        stage[0].app = create_app(store)
        doors = Doors(store, stage[1], clock, again)
        return {case.name: case.answer(doors) for case in edge_cases}

    return ask_all
