"""Text on one line, for logs and terminals."""


def one_line(text: str) -> str:
    """Return the text with line breaks, and all else that does not print, as escapes.

    So it cannot break a log into false lines, or command a terminal.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
