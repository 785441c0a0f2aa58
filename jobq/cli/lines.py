"""Text that fits a terminal and cannot command it."""

import json
from typing import Any

import typer

from jobq.oneline import one_line

ID_SHOWN = 8  # characters of an id, as in the worker's log
WIDTH = 80  # columns of a terminal that nobody widened


def fitting(text: str) -> str:
    """Return the text as a line that the terminal does not break; `…` stands for the rest."""
    line = one_line(text)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def counted(number: int, thing: str) -> str:
    """Return `1 job`, `2 jobs`."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def print_json(value: Any) -> None:
    """Print one JSON document, in ASCII, which every terminal and pipe can carry."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))
