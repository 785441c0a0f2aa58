"""Wait for a condition, never for a time: an experiment goes on as soon as it can."""

import time
from collections.abc import Callable

from jobq.errors import WaitTimedOut

LOOK_SECONDS = 0.005  # between two looks, unless they cost something


def wait_until(
    condition: Callable[[], object],
    what: str,
    seconds: float = 30.0,
    *,
    clues: Callable[[], str] = lambda: "",
    every: float = LOOK_SECONDS,
) -> None:
    """Return once `condition()` is true; it is looked at `every` so many seconds.

    Raises WaitTimedOut after `seconds`. It names `what` was waited for and ends with `clues()`,
    such as the last lines of a log.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise WaitTimedOut(f"waited {seconds:g} s for {what}, in vain{_indented(clues())}")
        time.sleep(every)


def _indented(text: str) -> str:
    return "".join(f"\n    {line}" for line in text.splitlines())
