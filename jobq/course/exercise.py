"""Exercises: a task, a check that says why an answer is wrong, hints, and a solution that passes.

An answer that is still the `...` of the notebook is not an attempt, and says so; that is never an
error, so a notebook runs from top to bottom before anything is solved.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from jobq.errors import InvalidInput


class Grade(StrEnum):
    """What a check can say of an answer."""

    NOT_ATTEMPTED = "not attempted"
    RIGHT = "right"
    WRONG = "wrong"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A grade and its reason; a notebook shows it as a line of text."""

    grade: Grade
    reason: str

    def __repr__(self) -> str:
        return f"{self.grade}: {self.reason}"


def right(reason: str) -> Verdict:
    """Return the verdict on an answer that holds."""
    return Verdict(Grade.RIGHT, reason)


def wrong(reason: str) -> Verdict:
    """Return the verdict on an answer that does not hold, naming the mistake."""
    return Verdict(Grade.WRONG, reason)


def cannot_tell(reason: str) -> Verdict:
    """Return the verdict on an answer that could not be tried."""
    return Verdict(Grade.CANNOT_TELL, reason)


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise. `solution_code` is Python that leaves the right answer in `answer`."""

    number: str
    task: str
    grade: Callable[[Any], Verdict]
    hints: tuple[str, ...]
    solution_code: str

    def __repr__(self) -> str:
        return f"{self.number}: {self.task}"

    def check(self, answer: Any) -> Verdict:
        """Say whether the answer is right, and if not, why not."""
        if answer is ...:
            return Verdict(Grade.NOT_ATTEMPTED, "put your answer in place of the ...")
        try:
            return self.grade(answer)
        except NotImplementedError:
            return Verdict(Grade.NOT_ATTEMPTED, "write the body of the function")
        except Exception as error:  # noqa: BLE001 - whatever a learner's code raises is told, not thrown
            return cannot_tell(f"trying your answer raised {type(error).__name__}: {error}")

    def hint(self, number: int = 1) -> None:
        """Print a hint; the higher its number, the more it gives away."""
        if not 1 <= number <= len(self.hints):
            raise InvalidInput(f"hint {number} of {self.number}: there are 1 to {len(self.hints)}")
        print(f"hint {number} of {len(self.hints)}: {self.hints[number - 1]}")

    def solution(self) -> None:
        """Print code that passes the check."""
        print(self.solution_code)


def ex(number: str) -> Exercise:
    """Return an exercise by its number, such as "04.2": notebook, dot, exercise."""
    exercises = exercises_of(number[:2]) if re.fullmatch(r"\d\d\.\d", number) else {}
    if number not in exercises:
        raise InvalidInput(f"there is no exercise {number!r}: numbers look like '04.1'")
    return exercises[number]


def exercises_of(notebook: str) -> dict[str, Exercise]:
    """Return the exercises of a notebook ("04") by their numbers; empty if it has none."""
    try:
        module = import_module(f"jobq.course.exercises_{notebook}")
    except ModuleNotFoundError as error:
        if error.name != f"jobq.course.exercises_{notebook}":
            raise
        return {}
    exercises: tuple[Exercise, ...] = module.EXERCISES
    return {exercise.number: exercise for exercise in exercises}
