"""jobq.handlers: the registry of kinds."""

import functools
from typing import Any

import pytest
from pydantic import BaseModel

from jobq import handlers
from jobq.context import Context
from jobq.errors import InvalidInput
from jobq.handlers import Handler, Kind, Registry
from jobq.job import Job, Status
from jobq.kinds import builtin
from jobq.retry import RetryPolicy


def context(attempt: int = 1) -> Context:
    """Return what worker-1 tells a handler at that attempt."""
    job = Job("j", "any", {}, Status.RUNNING, attempt, 3, 0, attempt, 0.0, 0.0)
    return Context(job=job, attempt=attempt, worker="worker-1")


def first(payload: dict[str, Any], _: Context) -> Any:
    """Handle a job by giving back its payload."""
    return payload


def second(payload: dict[str, Any], _: Context) -> Any:
    """Do the same under another name."""
    return payload


def function_of(registry: Registry, kind: str) -> Handler | None:
    """Return the handler of a kind."""
    found = registry.get(kind)
    return None if found is None else found.function


def test_a_registered_handler_is_found_by_its_kind() -> None:
    """`get` gives the kind, or nothing for an unknown one; `kinds` is sorted."""
    registry = Registry()
    registry.register("second", second)
    assert registry.handler("first")(first) is first
    assert registry.get("first") == Kind("first", first)
    assert registry.kinds() == ("first", "second")
    assert registry.get("third") is None


def test_the_repr_shows_the_kinds_and_no_addresses() -> None:
    """A registry prints the same in every process."""
    registry = Registry()
    registry.register("b", first)
    registry.register("a", second)
    assert repr(registry) == "Registry(a, b)"


def test_a_kind_has_one_handler() -> None:
    """A second function for a kind is refused, naming both; the first stays."""
    registry = Registry()
    registry.register("mail", first)
    with pytest.raises(InvalidInput, match=r"'mail' is handled by .*\.first .* by .*\.second too"):
        registry.register("mail", second)
    assert function_of(registry, "mail") is first


def test_the_same_function_may_be_registered_again() -> None:
    """Registering a function twice for a kind changes nothing."""
    registry = Registry()
    registry.register("mail", first)
    registry.register("mail", first)
    assert registry.kinds() == ("mail",)


def test_a_definition_run_again_takes_the_old_ones_place() -> None:
    """The cell of a notebook that defines a handler can be edited and run again."""
    registry = Registry()
    cell = "@registry.handler('mail')\ndef send(payload, context):\n    return {answer}\n"
    names: dict[str, Any] = {"registry": registry, "__name__": "__main__"}
    for answer in (1, 2):
        exec(cell.format(answer=answer), names)  # noqa: S102 - as a notebook runs its cell
    newest = function_of(registry, "mail")
    assert newest is not None
    assert newest({}, context()) == 2


def make(answer: int) -> handlers.Handler:
    """Return a new function with the name that all those made here have."""

    def inner(_payload: dict[str, Any], _context: Context) -> int:
        return answer

    return inner


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda *_: 1, lambda *_: 2),
        (make(1), make(2)),
        (functools.partial(first), functools.partial(second)),
    ],
    ids=["lambdas", "closures", "partials"],
)
def test_a_shared_name_does_not_make_functions_the_same(
    one: handlers.Handler, other: handlers.Handler
) -> None:
    """Lambdas, closures and partials bear one name each, and yet are different functions."""
    registry = Registry()
    registry.register("mail", one)
    with pytest.raises(InvalidInput):
        registry.register("mail", other)


@pytest.mark.parametrize("kind", ["", "  ", "x" * 256, "a\x00b"])
def test_a_kind_that_is_no_name_is_refused(kind: str) -> None:
    """Kinds follow the rule for names."""
    with pytest.raises(InvalidInput, match=r"^kind "):
        Registry().register(kind, first)


def test_the_decorator_registers_among_the_built_in_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`@handler` adds to the registry of every worker, which holds three kinds from the start."""
    assert {"nap", "noop", "sales_report"} <= set(builtin.kinds())
    monkeypatch.setattr(builtin, "_kinds", dict(builtin._kinds))
    handlers.handler("mail")(first)
    assert function_of(builtin, "mail") is first


class Letter(BaseModel):
    """What a letter needs."""

    to: str


def test_a_kind_knows_how_its_jobs_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Payload model, retry policy, timeout and isolation are given where the handler is."""
    monkeypatch.setattr(builtin, "_kinds", {})
    policy = RetryPolicy(base=5)
    handlers.handler("mail", payload=Letter, retry=policy, timeout_seconds=9.0)(first)
    assert builtin.get("mail") == Kind("mail", first, Letter, policy, timeout_seconds=9.0)


@pytest.mark.parametrize(
    ("how", "isolated"),
    [({}, False), ({"isolate": True}, True), ({"timeout_seconds": 1.0}, True)],
)
def test_a_timeout_needs_a_process_of_its_own(how: dict[str, Any], *, isolated: bool) -> None:
    """Only a process can be ended, whatever it does."""
    assert Kind("mail", first, **how).isolated is isolated


@pytest.mark.parametrize("seconds", [0, -1, "5", True, float("inf")])
def test_a_timeout_that_is_no_time_is_refused(seconds: Any) -> None:
    """It is a number of seconds."""
    with pytest.raises(InvalidInput, match="timeout_seconds is"):
        Registry().register("mail", first, timeout_seconds=seconds)


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ({"retry": 5}, "retry is 5: use a RetryPolicy"),
        ({"payload": dict}, "payload is <class 'dict'>: use a pydantic model"),
        ({"payload": Letter(to="me")}, "use a pydantic model, a class"),
        ({"function": "first"}, "the handler of kind 'mail' is 'first': no function"),
    ],
)
def test_a_kind_that_would_stop_a_worker_later_is_refused(how: dict[str, Any], rule: str) -> None:
    """Whoever registers it is told, and not whoever runs the first job."""
    registry = Registry()
    with pytest.raises(InvalidInput, match=rule):
        registry.register("mail", **({"function": first} | how))
    assert registry.kinds() == ()
