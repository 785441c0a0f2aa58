"""What workers can do: handlers by kind of job.

A handler is a function of the job's payload and a Context. What it returns is the job's result;
what it raises ends the attempt. It may run more than once for one job (a worker can die after the
work and before it says so), so running it twice must do no harm.
"""

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from jobq.checks import check_seconds
from jobq.context import Context
from jobq.errors import InvalidInput
from jobq.retry import RetryPolicy
from jobq.strictjson import check_name

Handler = Callable[[dict[str, Any], Context], Any]

H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Kind:
    """How the jobs of a kind are run.

    `payload` is the model that payloads must fit; the API refuses others at the door. `retry` is
    the wait after a failure, for jobs without a policy of their own; None leaves it to the store.
    `isolate` has the handler run in a process of its own, and so has a `timeout_seconds`, after
    which an attempt is ended, whatever it does.
    """

    name: str
    function: Handler
    payload: type[BaseModel] | None = None
    retry: RetryPolicy | None = None
    timeout_seconds: float | None = None
    isolate: bool = False

    @property
    def isolated(self) -> bool:
        """Whether the handler must have a process of its own: only a process can be ended."""
        return self.isolate or self.timeout_seconds is not None


class Registry:
    """Handlers by kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}

    def __repr__(self) -> str:
        return f"Registry({', '.join(self.kinds())})"

    def register(self, kind: str, function: Handler, **how: Any) -> None:
        """Let `function` handle jobs of that kind; `how` is what else a Kind has.

        A function defined anew under its old name takes the old one's place, so that a cell of a
        notebook can be run again. Raises InvalidInput if the kind has another handler, and for
        what breaks a rule.
        """
        new = Kind(kind, function, **how)
        _check(new)
        present = self._kinds.get(kind)
        if present and not _same_definition(present.function, function):
            raise InvalidInput(
                f"kind {kind!r} is handled by {_name(present.function)} and cannot be handled by "
                f"{_name(function)} too: give one of them another kind"
            )
        self._kinds[kind] = new

    def handler(self, kind: str, **how: Any) -> Callable[[H], H]:
        """Return a decorator that registers a function for that kind and leaves it as it is."""

        def register(function: H) -> H:
            self.register(kind, function, **how)
            return function

        return register

    def get(self, kind: str) -> Kind | None:
        """Return the kind, or None if it has no handler."""
        return self._kinds.get(kind)

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds that have a handler, sorted."""
        return tuple(sorted(self._kinds))


def _check(kind: Kind) -> None:
    """Raise InvalidInput unless jobs of the kind can be run: later it would stop a worker."""
    check_name(kind.name, "kind")
    if not callable(kind.function):
        raise InvalidInput(f"the handler of kind {kind.name!r} is {kind.function!r}: no function")
    if kind.timeout_seconds is not None:
        check_seconds(kind.timeout_seconds, "timeout_seconds", least=0.001)
    if not isinstance(kind.retry, RetryPolicy | None):
        raise InvalidInput(f"retry is {kind.retry!r}: use a RetryPolicy")
    model: Any = kind.payload
    if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise InvalidInput(f"payload is {model!r}: use a pydantic model, a class")


def _name(function: Handler) -> str:
    """Return where the function was defined; a callable object goes by its class."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _same_definition(one: Handler, other: Handler) -> bool:
    """Whether both are the function of one `def` at the top of one module, run twice."""
    if one is other:
        return True
    functions = isinstance(one, FunctionType) and isinstance(other, FunctionType)
    # Lambdas share the name <lambda>, and functions made in a function share …<locals>….
    return functions and _name(one) == _name(other) and "<" not in _name(one)


builtin = Registry()


def handler(
    kind: str,
    *,
    payload: type[BaseModel] | None = None,
    retry: RetryPolicy | None = None,
    timeout_seconds: float | None = None,
    isolate: bool = False,
) -> Callable[[H], H]:
    """Return a decorator that makes a function the handler of that kind in every worker.

    A worker knows the handlers of the modules that its process has imported. The options are
    those of `Kind`.
    """
    return builtin.handler(
        kind, payload=payload, retry=retry, timeout_seconds=timeout_seconds, isolate=isolate
    )


def read(model: type[M], payload: dict[str, Any]) -> M:
    """Return the payload as `model`, or raise InvalidInput that names every fault in it."""
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise InvalidInput(f"payload {reprlib.repr(payload)}: {'; '.join(faults)}") from None
