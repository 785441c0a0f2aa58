"""Text on one line, for logs and terminals."""

from jobq.job import Progress

LONGEST = 100  # characters of an error or a message that a line shows


def one_line(text: str) -> str:
    """Return the text with line breaks, and all else that does not print, as escapes.

    So it cannot break a log into false lines, or command a terminal.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def short(text: str) -> str:
    """Return the text as one line of bounded length; `…` stands for the rest."""
    line = one_line(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def in_words(progress: Progress) -> str:
    """Return how far the work has come: `3 of 10 reading the orders`."""
    total = "" if progress.total is None else f" of {_number(progress.total)}"
    return short(f"{_number(progress.done)}{total} {progress.message}")


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
