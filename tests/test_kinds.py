"""jobq.kinds: the kinds that come with jobq."""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from jobq import kinds, sales
from jobq.context import Alone, Context
from jobq.errors import InvalidInput
from jobq.job import Job, Status
from jobq.strictjson import decode, encode


def context(attempt: int = 1) -> Context:
    """Return what worker-1 tells a handler at that attempt."""
    job = Job("j", "any", {}, Status.RUNNING, attempt, 3, 0, attempt, 0.0, 0.0)
    return Context(job=job, attempt=attempt, worker="worker-1")


class Quick(Context):
    """A context in which a wait takes no time, and is noted."""

    def __init__(self) -> None:
        super().__init__(context().job, 1, "worker-1")
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Note the wait."""
        self.slept.append(seconds)


def test_the_sales_report_begins_with_the_lessons_fields() -> None:
    """year, total_cents and by come first; then the report, as jobq.sales computes it."""
    quick = Quick()
    result = kinds.sales_report({"year": 2024}, quick)
    assert quick.slept == [1.0]
    assert list(result)[:4] == ["year", "total_cents", "by", "orders"]
    assert result == {"year": 2024, "by": "worker-1"} | sales.report(2024)


def test_the_sales_report_can_be_a_result() -> None:
    """Strict JSON carries the report unchanged, non-ASCII names included."""
    result = kinds.sales_report({"year": 2024, "slow_seconds": 0}, context())
    assert decode(encode(result, "result")) == result


def test_the_sales_report_fails_as_often_as_it_is_told_to() -> None:
    """Attempts up to `fail_times` fail at once, with the lesson's words; the next one works."""
    payload = {"year": 2025, "fail_times": 2, "slow_seconds": 0}
    for attempt in (1, 2):
        with pytest.raises(RuntimeError) as failure:
            kinds.sales_report(payload, context(attempt))
        assert str(failure.value) == f"upstream timeout (simulated, attempt {attempt})"
    assert kinds.sales_report(payload, context(3))["year"] == 2025


def test_a_year_of_the_future_gives_an_empty_report() -> None:
    """2100 is allowed, and has no sales."""
    result = kinds.sales_report({"year": 2100, "slow_seconds": 0}, context())
    assert (result["total_cents"], result["orders"]) == (0, 0)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    """In JSON 2100.0 is the integer 2100, as JSON Schema has it; infinity is none."""
    result = kinds.sales_report({"year": 2100.0, "slow_seconds": 0}, context())
    assert (result["year"], type(result["year"])) == (2100, int)
    with pytest.raises(InvalidInput, match="year: Input should be a valid integer"):
        kinds.sales_report({"year": float("inf")}, context())


@pytest.mark.parametrize(
    ("payload", "faults"),
    [
        ({}, ["year: Field required"]),
        ({"year": None}, ["year: Input should be a valid integer"]),
        ({"year": "2024"}, ["'2024'", "year: Input should be a valid integer"]),
        ({"year": 2024.5}, ["year: Input should be a valid integer"]),
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
    quick = Quick()
    with pytest.raises(InvalidInput) as refusal:
        kinds.sales_report(payload, quick)
    assert all(fault in str(refusal.value) for fault in faults)
    assert quick.slept == []


def test_a_nap_says_how_long_it_slept() -> None:
    """The result repeats the seconds; whole numbers are welcome."""
    quick = Quick()
    assert kinds.nap({"seconds": 2}, quick) == {"slept_seconds": 2}
    assert quick.slept == [2]


@pytest.mark.parametrize(
    ("run", "payload"),
    [(kinds.nap, {"seconds": 5.5}), (kinds.sales_report, {"year": 2024, "slow_seconds": 5.5})],
)
def test_what_takes_long_tells_how_far_it_is(
    run: Callable[[dict[str, Any], Context], Any], payload: dict[str, Any]
) -> None:
    """It does so every second, so that there is something to watch."""
    quick, alone = Quick(), Alone()
    quick.attending = alone
    run(payload, quick)
    assert quick.slept == [1, 1, 1, 1, 1, 0.5]
    assert [(p.done, p.total) for p in alone.reported] == [(n, 5.5) for n in (1, 2, 3, 4, 5, 5.5)]


@pytest.mark.parametrize("payload", [{}, {"seconds": "1"}, {"seconds": -1}, {"seconds": 1e9}])
def test_a_nap_of_no_length_is_refused(payload: dict[str, Any]) -> None:
    """A nap takes 0 to 86,400 seconds."""
    with pytest.raises(InvalidInput, match="seconds: "):
        kinds.nap(payload, context())


def test_noop_takes_any_payload() -> None:
    """Its payload may carry whatever an experiment wants to find again."""
    assert kinds.noop({"any": ["thing"]}, context()) == {}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no interval timer")
@pytest.mark.parametrize(
    ("run", "payload"),
    [
        (kinds.nap, {"seconds": 60}),
        (kinds.sales_report, {"year": 2024, "slow_seconds": 60}),
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
