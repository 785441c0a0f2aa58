"""Text that fits a terminal and cannot command it."""

import json
from typing import Any

import typer

WIDTH = 80  # columns of a terminal that nobody widened


def printable(text: str) -> str:
    """Return the text on one line, with what does not print as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def fitting(text: str) -> str:
    """Return the text as a line that the terminal does not break; `…` stands for the rest."""
    line = printable(text)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def print_json(value: Any) -> None:
    """Print one JSON document, in ASCII, which every terminal and pipe can carry."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))
