"""jobq.cli.durations: lengths of time, written and read."""

import pytest

from jobq.cli.durations import parse_duration
from jobq.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("30s", 30), ("10min", 600), ("2h", 7_200), ("7d", 604_800), ("0s", 0)),
        *(("1.5h", 5_400), (" 7 d ", 604_800), ("36500d", 3_153_600_000)),
    ],
)
def test_a_number_and_a_unit_are_seconds(text: str, seconds: float) -> None:
    """Four units are understood, and fractions."""
    assert parse_duration(text, "--older-than") == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "d", "-1d", "7 weeks", "1h30min", "5m", "7D", "nan d", "infs", "1e3s", "٣d"),
        "9" * 999 + "d",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    """A number alone could be seconds or days, so that a guess might delete too much."""
    with pytest.raises(InvalidInput, match=r"--older-than is .*such as 30s or 7d"):
        parse_duration(text, "--older-than")
