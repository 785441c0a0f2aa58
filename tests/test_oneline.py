import pytest

from jobq.job import Progress
from jobq.oneline import in_units, in_words, one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("crème 抹茶 ✓", "crème 抹茶 ✓"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("half \ud800 pair", "half \\ud800 pair"),
        ("turned \u202e round", "turned \\u202e round"),
        ("", ""),
    ],
)
def test_what_does_not_print_is_written_as_an_escape(text: str, line: str) -> None:
    """Letters of all scripts stay; control characters are seen and do nothing."""
    assert one_line(text) == line


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(3), "3"),
        (Progress(3, 10, "reading\nthe orders"), "3 of 10 reading the orders"),
        (Progress(0.5, 1.25), "0.50 of 1.25"),
        (Progress(0, 1e300), f"0 of {1e300:.0f}"[:99] + "…"),
        (Progress(1, None, "\x1b[2J"), r"1 \x1b[2J"),
    ],
)
def test_progress_is_a_line(progress: Progress, words: str) -> None:
    """Whole numbers are whole, and a message cannot break the line or the terminal."""
    assert in_words(progress) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-5, "0 s"), (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7_199, "120 min")),
        *((7_200, "2 h"), (172_800, "2 d"), (8_640_000, "100 d")),
    ],
)
def test_a_length_is_told_in_the_largest_unit_that_it_holds_twice(
    seconds: float, text: str
) -> None:
    """Ages are read at a glance; a clock that stepped back makes none of them negative."""
    assert in_units(seconds) == text
