import pytest

from jobq.oneline import one_line


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
