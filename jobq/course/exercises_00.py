"""The exercises of notebook 00: the protocol, and polling done well."""

from collections.abc import Callable
from typing import Any

from jobq.course.exercise import Exercise, Verdict, cannot_tell, right, wrong
from jobq.job import Status

Look = tuple[str, int | None]  # a status, and the Retry-After beside it in seconds
Poll = Callable[[Callable[[], Look], Callable[[float], None]], str]

ENOUGH_LOOKS = 20
COURSES: tuple[list[Look], ...] = (
    [("done", None)],
    [("failed", None)],
    [("queued", 3), ("running", 1), ("done", None)],
    [("queued", 7), ("failed", None)],
)


def _accepted(answer: Any) -> Verdict:
    if not isinstance(answer, tuple) or [type(part) for part in answer] != [int, str]:
        return cannot_tell("answer with a pair of a number and a name, such as (404, 'Host')")
    code, header = answer[0], answer[1].lower()
    if code in {200, 201}:
        return wrong(f"{code} says that the report is there; so far it is only written down")
    if code != 202:  # noqa: PLR2004 - the status code is the answer
        return wrong(f"{code} is not what the server sent: look at the first line of its answer")
    if header == "retry-after":
        return wrong("Retry-After says when to look again; another header says where")
    if header != "location":
        return wrong(f"{answer[1]} does not hold the address of the job")
    return right("202 Accepted: recorded, not yet done; Location is where to ask for the job")


def _final(answer: Any) -> Verdict:
    if not isinstance(answer, set | frozenset):
        return cannot_tell("answer with a set of words, such as {'queued'}")
    expected = {str(status) for status in Status if status.final}
    given = {str(status) for status in answer}
    for word in sorted(given - expected):
        if word in {str(status) for status in Status}:
            return wrong(f"a {word} job can still change: a worker will claim it or end it")
        return wrong(f"{word!r} is no status of a job")
    for word in sorted(expected - given):
        return wrong(f"one is missing: no worker ever changes a job that is {word}")
    return right("no worker changes a job that is done, failed or cancelled")


def _polls(answer: Any) -> Verdict:
    if not callable(answer):
        return cannot_tell("answer with a function of get and sleep")
    for looks in COURSES:
        fault = _fault_of_polling(answer, looks)
        if fault:
            told = ", then ".join(status for status, _ in looks)
            return wrong(f"the job was {told}: {fault}")
    return right("it waits as long as the server asks, and stops at a final status")


def _fault_of_polling(poll: Poll, looks: list[Look]) -> str | None:
    """Let the function poll a job that takes this course; return what it does wrong, or None."""
    given: list[Look] = []
    slept: list[float] = []

    def get() -> Look:
        if len(given) == ENOUGH_LOOKS:
            raise _LooksForEverError
        given.append(looks[min(len(given), len(looks) - 1)])
        return given[-1]

    try:
        returned = poll(get, slept.append)
    except _LooksForEverError:
        return f"your function still looked after {ENOUGH_LOOKS} times; {looks[-1][0]} is final"
    asked = [seconds for _, seconds in looks if seconds is not None]
    if len(given) < len(looks):
        return f"your function stopped looking when the job was {given[-1][0] if given else 'new'}"
    if slept != asked:
        return f"Retry-After asked for waits of {asked} s, and your function slept {slept} s"
    if returned != looks[-1][0]:
        return f"your function returned {returned!r}"
    return None


class _LooksForEverError(Exception):
    """The polling function does not stop."""


EXERCISES = (
    Exercise(
        "00.1",
        "which status code did the POST get, and which header says where the job is?",
        _accepted,
        (
            "Look at what the cell printed after POST /reports: a number, then headers.",
            "RFC 9110, section 15.3.3, is about requests that are accepted, not yet acted on.",
        ),
        'answer = (202, "Location")',
    ),
    Exercise(
        "00.2",
        "which statuses are final, so that no worker changes the job any more?",
        _final,
        (
            "There are five statuses: queued, running, done, failed, cancelled.",
            "A queued job will be claimed, and a running one will end. What is left?",
        ),
        'answer = {"done", "failed", "cancelled"}',
    ),
    Exercise(
        "00.3",
        "write poll(get, sleep): look until the status is final, waiting as long as asked",
        _polls,
        (
            "get() returns a pair: the status, and the seconds of Retry-After or None.",
            "Loop: look; return the status if it is final; else sleep for as long as asked.",
        ),
        "def answer(get, sleep):\n"
        "    while True:\n"
        "        status, retry_after = get()\n"
        '        if status in {"done", "failed", "cancelled"}:\n'
        "            return status\n"
        "        sleep(retry_after)",
    ),
)
