"""Text on one line, for logs and terminals."""

import re

from jobq.job import Progress

UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}  # of time, in seconds
LONGEST = 100  # characters of an error or a message that a line shows
# Where a URL has a password: up to the last @, which one may hold that was not written as %40.
IN_ADDRESS = re.compile(r"(?<=://)([^:/@?]*):.*(?=@)", re.DOTALL)
AS_PARAMETER = re.compile(r"(?i)(\b(?:ssl)?password)=(?:'(?:[^'\\]|\\.)*'|[^&\s]*)")


def one_line(text: str) -> str:
    """Return the text with line breaks, and all else that does not print, as escapes.

    So it cannot break a log into false lines, or command a terminal.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def short(text: str) -> str:
    """Return the text as one line of bounded length; `…` stands for the rest."""
    line = one_line(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def without_password(word: str) -> str:
    """Return a URL, or another word of a command, with `***` for a password in it."""
    return AS_PARAMETER.sub(r"\1=***", IN_ADDRESS.sub(r"\1:***", word))


def in_words(progress: Progress) -> str:
    """Return how far the work has come: `3 of 10 reading the orders`."""
    total = "" if progress.total is None else f" of {_number(progress.total)}"
    return short(f"{_number(progress.done)}{total} {progress.message}")


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def in_units(seconds: float) -> str:
    """Return a length of time in the largest unit that it holds twice: `90 s`, `3 min`."""
    for unit, size in reversed(UNITS.items()):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
