"""What workers can do: handlers by kind of job, and the kinds that come with jobq.

A handler is a function of the job's payload and a Context. What it returns is the job's result;
what it raises ends the attempt. It may run more than once for one job (a worker can die after the
work and before it says so), so running it twice must do no harm.
"""

import reprlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jobq import sales
from jobq.errors import InvalidInput
from jobq.job import Job
from jobq.strictjson import check_name


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler is told beside its payload."""

    job: Job
    attempt: int  # the first is 1
    worker: str


Handler = Callable[[dict[str, Any], Context], Any]

H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=BaseModel)


class Registry:
    """Handlers by kind."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def __repr__(self) -> str:
        return f"Registry({', '.join(self.kinds())})"

    def register(self, kind: str, function: Handler) -> None:
        """Let `function` handle jobs of that kind.

        A function defined anew under its old name takes the old one's place, so that a cell of a
        notebook can be run again. Raises InvalidInput if the kind has another handler or is no
        proper name.
        """
        check_name(kind, "kind")
        present = self._handlers.get(kind, function)
        if present is not function and not _same_definition(present, function):
            raise InvalidInput(
                f"kind {kind!r} is handled by {_name(present)} and cannot be handled by "
                f"{_name(function)} too: give one of them another kind"
            )
        self._handlers[kind] = function

    def handler(self, kind: str) -> Callable[[H], H]:
        """Return a decorator that registers a function for that kind and leaves it as it is."""

        def register(function: H) -> H:
            self.register(kind, function)
            return function

        return register

    def get(self, kind: str) -> Handler | None:
        """Return the handler of that kind, or None if there is none."""
        return self._handlers.get(kind)

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds that have a handler, sorted."""
        return tuple(sorted(self._handlers))


def _name(function: Handler) -> str:
    """Return where the function was defined; a callable object goes by its class."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _same_definition(one: Handler, other: Handler) -> bool:
    """Whether both are the function of one `def` at the top of one module, run twice."""
    functions = isinstance(one, FunctionType) and isinstance(other, FunctionType)
    # Lambdas share the name <lambda>, and functions made in a function share …<locals>….
    return functions and _name(one) == _name(other) and "<" not in _name(one)


builtin = Registry()


def handler(kind: str) -> Callable[[H], H]:
    """Return a decorator that makes a function the handler of that kind in every worker.

    A worker knows the handlers of the modules that its process has imported.
    """
    return builtin.handler(kind)


class _Payload(BaseModel):
    """A payload is taken as it is: no text for numbers, no field that nobody reads."""

    model_config = ConfigDict(strict=True, extra="forbid")


class _SalesReport(_Payload):
    year: int = Field(ge=2000, le=2100)
    fail_times: int = Field(0, ge=0)
    slow_seconds: float = Field(1.0, ge=0, le=86_400)


class _Nap(_Payload):
    seconds: float = Field(ge=0, le=86_400)


@handler("sales_report")
def sales_report(
    payload: dict[str, Any], context: Context, *, sleep: Callable[[float], object] = time.sleep
) -> dict[str, Any]:
    """Return the sales report of a year (jobq.sales), with the worker's name as `by`.

    Payload: `year`, 2000 to 2100; `fail_times`, how many attempts fail first (default 0);
    `slow_seconds`, how long the work is made to take (default 1).
    """
    wanted = _read(_SalesReport, payload)
    if context.attempt <= wanted.fail_times:
        raise RuntimeError(f"upstream timeout (simulated, attempt {context.attempt})")
    sleep(wanted.slow_seconds)
    report = sales.report(wanted.year)
    head = {"year": wanted.year, "total_cents": report["total_cents"], "by": context.worker}
    return head | report


@handler("nap")
def nap(
    payload: dict[str, Any], _: Context, *, sleep: Callable[[float], object] = time.sleep
) -> dict[str, Any]:
    """Sleep for the payload's `seconds`, and say so."""
    seconds = _read(_Nap, payload).seconds
    sleep(seconds)
    return {"slept_seconds": seconds}


@handler("noop")
def noop(_payload: dict[str, Any], _context: Context) -> dict[str, Any]:
    """Do nothing, whatever the payload."""
    return {}


def _read(model: type[M], payload: dict[str, Any]) -> M:
    """Return the payload as `model`, or raise InvalidInput that names every fault in it."""
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise InvalidInput(f"payload {reprlib.repr(payload)}: {'; '.join(faults)}") from None
