"""Rules for numbers that come in from outside."""

import math
from typing import Any

from jobq.errors import InvalidInput


def check_integer(value: Any, what: str, least: int, most: int) -> int:
    """Return a whole number within its bounds; raise InvalidInput for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(f"{what} is {value!r}: use a whole number from {least:,} to {most:,}")
    return value


def check_seconds(value: Any, what: str, least: float) -> float:
    """Return a finite number of seconds of at least `least`; raise InvalidInput otherwise."""
    if type(value) not in {int, float} or not math.isfinite(value):
        raise InvalidInput(f"{what} is {value!r}: use a number of seconds")
    if value < least:
        raise InvalidInput(f"{what} is {value}: use at least {least}")
    return float(value)
