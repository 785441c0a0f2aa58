"""Rules for numbers that come in from outside."""

import math
import reprlib
from typing import Any

from jobq.errors import InvalidInput

BEATS_PER_LEASE = 3  # at the least, so that two in a row may fail


def check_integer(value: Any, what: str, least: int, most: int) -> int:
    """Return a whole number within its bounds; raise InvalidInput for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(
            f"{what} is {reprlib.repr(value)}: use a whole number from {least:,} to {most:,}"
        )
    return value


def check_seconds(value: Any, what: str, least: float) -> float:
    """Return a finite number of seconds of at least `least`; raise InvalidInput otherwise."""
    return check_number(value, what, least, unit=" of seconds")


def check_number(value: Any, what: str, least: float, *, unit: str = "") -> float:
    """Return a finite number of at least `least`, as a float; raise InvalidInput otherwise."""
    number = math.nan
    if type(value) in {int, float}:
        try:
            number = float(value)
        except OverflowError:  # an integer that no float can hold
            number = math.inf
    if not (math.isfinite(number) and number >= least):
        raise InvalidInput(
            f"{what} is {reprlib.repr(value)}: use a number{unit} of at least {least:g}"
        )
    return number


def outlasts_beats(lease_seconds: float, heartbeat_seconds: float) -> bool:
    """Whether a lease is as long as the heartbeats that it needs at the least."""
    # 3 x 0.1 is a little more than 0.3.
    return BEATS_PER_LEASE * heartbeat_seconds <= lease_seconds * (1 + 1e-9)
