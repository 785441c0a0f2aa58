"""jobq.checks: rules for numbers that come in from outside."""

import math
from typing import Any

import pytest

from jobq import InvalidInput
from jobq.checks import check_integer, check_seconds, outlasts_beats


@pytest.mark.parametrize("value", [1, 2, 1000])
def test_a_whole_number_within_its_bounds_comes_back(value: int) -> None:
    """Both bounds are allowed."""
    assert check_integer(value, "limit", 1, 1000) == value


@pytest.mark.parametrize("value", [0, 1001, -(10**400), 1.0, True, "1", None])
def test_anything_else_is_refused_with_the_value_and_the_bounds(value: Any) -> None:
    """Neither True nor 1.0 is a whole number here, for JSON tells them apart."""
    with pytest.raises(InvalidInput, match=r"limit is .*from 1 to 1,000"):
        check_integer(value, "limit", 1, 1000)


@pytest.mark.parametrize("value", [0.5, 1, 1e300])
def test_seconds_come_back_as_a_float(value: float) -> None:
    """Whole seconds too, so that every engine stores and shows the same."""
    seconds = check_seconds(value, "lease", least=0.5)
    assert (seconds, type(seconds)) == (value, float)


@pytest.mark.parametrize(
    "value",
    [0.25, -1, math.nan, math.inf, pytest.param(10**400, id="10^400"), True, "1", None],
)
def test_what_is_no_number_of_seconds_is_refused(value: Any) -> None:
    """The message begins with what was wrong."""
    with pytest.raises(InvalidInput, match="lease is "):
        check_seconds(value, "lease", least=0.5)


@pytest.mark.parametrize(
    ("lease", "beat", "enough"),
    [(0.3, 0.1, True), (30, 10, True), (30, 10.001, False), (1, 1, False)],
)
def test_a_lease_outlasts_three_heartbeats(lease: float, beat: float, *, enough: bool) -> None:
    """Exactly three are enough, whatever a float makes of 3 x 0.1."""
    assert outlasts_beats(lease, beat) is enough
