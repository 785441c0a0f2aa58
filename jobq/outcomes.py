"""What the end of a handler makes of its attempt. Pure: the worker writes what is decided here."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from jobq.checks import check_seconds
from jobq.context import Write
from jobq.errors import Cancelled, InvalidInput, JobqError, LeaseLost, Permanent, Retry

MAX_ERROR = 2_000  # characters of an exception's text that are kept


class Stop(Enum):
    """Why a handler has to end before its work does."""

    RELEASE = auto()  # the worker is to end: a second signal, or the end of the grace time
    LOST = auto()  # the job is not the worker's any more
    CANCEL = auto()  # somebody asked for the job to be cancelled


@dataclass(frozen=True, slots=True)
class Finish:
    """The handler returned: its result is to be recorded, and `writes` with it."""

    result: Any
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt failed; `final` means that another one could not succeed.

    `crashed` means that its process died, `after` how many seconds to wait before the next one.
    """

    error: str
    final: bool = False
    crashed: bool = False
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The job is to be given back unharmed: the attempt does not count."""


@dataclass(frozen=True, slots=True)
class ConfirmCancel:
    """The handler stopped because the job is to be cancelled."""


Decision = Finish | Fail | Release | ConfirmCancel


def after_return(result: Any, writes: Sequence[Write], *, cancelled: bool) -> Decision:
    """Return the end of an attempt whose handler returned.

    `cancelled` is whether somebody had asked for that. A handler that then returns nothing
    stopped for it; one that returns something was quicker.
    """
    if cancelled and result is None:
        return ConfirmCancel()
    return Finish(result, tuple(writes))


def after_raise(error: BaseException, *, stop: Stop | None, cancelled: bool) -> Decision:
    """Return the end of an attempt whose handler raised.

    Once the worker has interrupted a handler (`stop`), whatever it raises is the worker's doing
    and no failure: many wrap what they catch, or fail in their cleaning up. LeaseLost comes from
    the context: the store has the last word on whether the job can be given back.
    """
    if stop is Stop.CANCEL or (cancelled and isinstance(error, Cancelled)):
        return ConfirmCancel()
    if stop is not None or isinstance(error, LeaseLost):
        return Release()
    return Fail(
        error_text(error),
        final=isinstance(error, InvalidInput | Permanent),
        after=_wait_of(error),
    )


def without_handler(kind: str, known: Sequence[str]) -> Decision:
    """Return the end of an attempt at a job that this worker cannot run."""
    text = f"no handler for kind {kind!r}; this worker knows: {', '.join(known) or 'none'}"
    return Fail(text, final=True)


def _wait_of(error: BaseException) -> float | None:
    """Return the wait that a handler chose, if it did and if it is one: it may be any subclass."""
    with suppress(InvalidInput):
        if isinstance(error, Retry):
            return check_seconds(getattr(error, "after", None), "after", least=0)
    return None


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
