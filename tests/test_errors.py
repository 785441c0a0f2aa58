"""jobq.errors: the tree that its docstring draws."""

import math
import pickle
import re
from typing import Any

import pytest

from jobq import errors

LINE = re.compile(r"^(?P<bars>(?:[│ ] {3})*(?:[├└]── )?)(?P<name>[A-Z]\w+)", re.MULTILINE)


def drawn() -> dict[str, str | None]:
    """Return each error that the docstring draws, with the one it hangs from."""
    parents: dict[str, str | None] = {}
    branch: list[str] = []
    tree = (errors.__doc__ or "").split("\n\n")[1]
    for line in LINE.finditer(tree):
        depth = len(line["bars"]) // 4
        branch[depth:] = [line["name"]]
        parents[line["name"]] = branch[depth - 1] if depth else None
    return parents


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    """Every error hangs in the docstring where it hangs in Python, and none is missing."""
    real = {
        name: None if error is errors.JobqError else error.__bases__[0].__name__
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, errors.JobqError)
    }
    assert drawn() == real


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(errors.InvalidInput, ValueError), (errors.UnknownJob, LookupError)],
)
def test_an_error_is_also_the_builtin_one_that_a_caller_may_know(
    error: type[Exception], builtin: type[Exception]
) -> None:
    """Bad input is also a ValueError and an unknown job a LookupError, as the docstring says."""
    assert issubclass(error, builtin)
    assert f"(also a {builtin.__name__})" in (errors.__doc__ or "")


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidInput("no"),
        errors.UnknownJob("abc"),
        errors.WrongStatus("abc", "done", "no"),
        errors.IdempotencyConflict("key", "abc", ["year"]),
        errors.LeaseLost("abc", 2, "the job is done"),
        errors.Retry("later", after=2.5),
        errors.ServerRefused("GET /jobs", 404, {"type": "/problems/unknown-job"}),
        errors.ServerUnreachable("http://127.0.0.1:8718", "connection refused"),
        errors.JobUnfinished("abc", "running", 60.0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_travels_between_processes(error: errors.JobqError) -> None:
    """What a handler's process raises arrives in its worker's with text and fields."""
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(arrived), str(arrived)) == (type(error), str(error))
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize("after", [-1.0, math.inf, math.nan, "soon", True])
def test_a_retry_after_no_time_is_refused(after: Any) -> None:
    """A wait is a finite number of seconds; the handler that asks for another learns it."""
    with pytest.raises(errors.InvalidInput, match=r"after is .*: use a number of seconds"):
        errors.Retry(after=after)
