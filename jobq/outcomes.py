"""What the end of a handler makes of its attempt. Pure: the worker writes what is decided here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobq.errors import InvalidInput, JobqError

MAX_ERROR = 2_000  # characters of an exception's text that are kept


@dataclass(frozen=True, slots=True)
class Finish:
    """The handler returned: its result is to be recorded."""

    result: Any


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt failed; `final` means that another one could not succeed."""

    error: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """The job is to be given back unharmed: the attempt does not count."""


Decision = Finish | Fail | Release


def after_raise(error: BaseException, *, interrupted: bool) -> Decision:
    """Return the end of an attempt whose handler raised.

    Once the worker has interrupted a handler, whatever it raises is the worker's doing and no
    failure: many wrap what they catch, or fail in their cleaning up.
    """
    if interrupted:
        return Release()
    return Fail(error_text(error), final=isinstance(error, InvalidInput))


def without_handler(kind: str, known: Sequence[str]) -> Decision:
    """Return the end of an attempt at a job that this worker cannot run."""
    text = f"no handler for kind {kind!r}; this worker knows: {', '.join(known) or 'none'}"
    return Fail(text, final=True)


def error_text(error: BaseException) -> str:
    """Return an exception as the error that is kept with the attempt.

    The class is named where the text alone says too little: KeyError('year') reads 'year'. What
    some database cannot keep (NUL, half a surrogate pair) is written as an escape.
    """
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 - a handler's exception can be anything
        text = f"(it has no text: its __str__ raised {type(second).__name__})"
    if not text:
        return name
    if not (type(error) in {Exception, RuntimeError} or isinstance(error, JobqError)):
        text = f"{name}: {text}"
    cut = len(text) - MAX_ERROR
    if cut > 0:
        text = f"{text[:MAX_ERROR]}… ({cut:,} more characters)"
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
