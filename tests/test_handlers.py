"""jobq.handlers: the registry, and the kinds that come with jobq."""

import functools
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from jobq import handlers, sales
from jobq.errors import InvalidInput
from jobq.handlers import Context, Registry, builtin
from jobq.job import Job, Status
from jobq.strictjson import decode, encode


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


def test_a_registered_handler_is_found_by_its_kind() -> None:
    """`get` returns the function itself; `kinds` is sorted; an unknown kind has no handler."""
    registry = Registry()
    registry.register("second", second)
    assert registry.handler("first")(first) is first
    assert registry.get("first") is first
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
    assert registry.get("mail") is first


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
    newest = registry.get("mail")
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
    monkeypatch.setattr(builtin, "_handlers", dict(builtin._handlers))
    handlers.handler("mail")(first)
    assert builtin.get("mail") is first


def test_the_sales_report_begins_with_the_lessons_fields() -> None:
    """year, total_cents and by come first; then the report, as jobq.sales computes it."""
    slept: list[float] = []
    result = handlers.sales_report({"year": 2024}, context(), sleep=slept.append)
    assert slept == [1.0]
    assert list(result)[:4] == ["year", "total_cents", "by", "orders"]
    assert result == {"year": 2024, "by": "worker-1"} | sales.report(2024)


def test_the_sales_report_can_be_a_result() -> None:
    """Strict JSON carries the report unchanged, non-ASCII names included."""
    result = handlers.sales_report({"year": 2024, "slow_seconds": 0}, context())
    assert decode(encode(result, "result")) == result


def test_the_sales_report_fails_as_often_as_it_is_told_to() -> None:
    """Attempts up to `fail_times` fail at once, with the lesson's words; the next one works."""
    payload = {"year": 2025, "fail_times": 2, "slow_seconds": 0}
    for attempt in (1, 2):
        with pytest.raises(RuntimeError) as failure:
            handlers.sales_report(payload, context(attempt))
        assert str(failure.value) == f"upstream timeout (simulated, attempt {attempt})"
    assert handlers.sales_report(payload, context(3))["year"] == 2025


def test_a_year_of_the_future_gives_an_empty_report() -> None:
    """2100 is allowed, and has no sales."""
    result = handlers.sales_report({"year": 2100, "slow_seconds": 0}, context())
    assert (result["total_cents"], result["orders"]) == (0, 0)


@pytest.mark.parametrize(
    ("payload", "faults"),
    [
        ({}, ["year: Field required"]),
        ({"year": None}, ["year: Input should be a valid integer"]),
        ({"year": "2024"}, ["'2024'", "year: Input should be a valid integer"]),
        ({"year": 2024.0}, ["year: Input should be a valid integer"]),
        ({"year": True}, ["True", "year: Input should be a valid integer"]),
        ({"year": 1999}, ["1999", "year: Input should be greater than or equal to 2000"]),
        ({"year": 2101}, ["2101", "year: Input should be less than or equal to 2100"]),
        ({"year": 2024, "fail_time": 1}, ["fail_time: Extra inputs are not permitted"]),
        (
            {"year": 1, "fail_times": True},
            ["year: ", "fail_times: Input should be a valid integer"],
        ),
        ({"year": 2024, "slow_seconds": -1}, ["slow_seconds: Input should be greater"]),
        ({"year": 2024, "slow_seconds": float("nan")}, ["slow_seconds: Input should be"]),
    ],
)
def test_a_bad_payload_is_refused_by_name(payload: dict[str, Any], faults: list[str]) -> None:
    """The error shows the payload and every fault, and nothing is slept for first."""
    slept: list[float] = []
    with pytest.raises(InvalidInput) as refusal:
        handlers.sales_report(payload, context(), sleep=slept.append)
    assert all(fault in str(refusal.value) for fault in faults)
    assert slept == []


def test_a_nap_says_how_long_it_slept() -> None:
    """The result repeats the seconds; whole numbers are welcome."""
    slept: list[float] = []
    assert handlers.nap({"seconds": 2}, context(), sleep=slept.append) == {"slept_seconds": 2}
    assert slept == [2]


@pytest.mark.parametrize("payload", [{}, {"seconds": "1"}, {"seconds": -1}, {"seconds": 1e9}])
def test_a_nap_of_no_length_is_refused(payload: dict[str, Any]) -> None:
    """A nap takes 0 to 86,400 seconds."""
    with pytest.raises(InvalidInput, match="seconds: "):
        handlers.nap(payload, context())


def test_noop_takes_any_payload() -> None:
    """Its payload may carry whatever an experiment wants to find again."""
    assert handlers.noop({"any": ["thing"]}, context()) == {}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no interval timer")
@pytest.mark.parametrize(
    ("run", "payload"),
    [
        (handlers.nap, {"seconds": 60}),
        (handlers.sales_report, {"year": 2024, "slow_seconds": 60}),
    ],
)
def test_a_signal_handler_can_end_the_sleep(
    run: Callable[[dict[str, Any], Context], Any], payload: dict[str, Any]
) -> None:
    """An exception raised by a signal handler leaves the handler at once."""

    class Interrupted(BaseException):
        pass

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    def run_until_the_alarm() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        run(payload, context())

    before = signal.signal(signal.SIGALRM, interrupt)
    started = time.monotonic()
    try:
        with pytest.raises(Interrupted):
            run_until_the_alarm()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 30
