"""Lengths of time, as people write and read them."""

import math
import re

from jobq.errors import InvalidInput

UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
WRITTEN = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})", re.ASCII)


def parse_duration(text: str, what: str) -> float:
    """Return the seconds that `30s`, `10min`, `2h` or `7d` stand for; `what` is for the error.

    Raises InvalidInput for anything else: a number alone could be days as well as seconds.
    """
    found = WRITTEN.fullmatch(text.strip())
    seconds = float(found[1]) * UNITS[found[2]] if found else math.inf
    if math.isinf(seconds):
        raise InvalidInput(
            f"{what} is {text!r}: use a number and one of {', '.join(UNITS)}, such as 30s or 7d"
        )
    return seconds


def in_units(seconds: float) -> str:
    """Return a length of time in the largest unit that it holds twice: `90 s`, `3 min`."""
    for unit, size in reversed(UNITS.items()):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
