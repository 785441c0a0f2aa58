"""Lengths of time, as people write them."""

import math
import re

from jobq.errors import InvalidInput
from jobq.oneline import UNITS

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
