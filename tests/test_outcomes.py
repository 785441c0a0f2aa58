"""jobq.outcomes: what the end of a handler makes of its attempt."""

from typing import Any

import pytest

from jobq.errors import Cancelled, InvalidInput, LeaseLost, NotStrictJson, Permanent, Retry
from jobq.outcomes import (
    ConfirmCancel,
    Fail,
    Finish,
    Release,
    Stop,
    after_raise,
    after_return,
    error_text,
    without_handler,
)
from jobq.strictjson import check_text


class Mute(Exception):
    """An exception whose text cannot be had."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason

    def __str__(self) -> str:
        raise self.reason


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            RuntimeError("upstream timeout (simulated, attempt 1)"),
            "upstream timeout (simulated, attempt 1)",
        ),
        (Exception("no paper"), "no paper"),
        (InvalidInput("year is 1999: use 2000 or later"), "year is 1999: use 2000 or later"),
        (RuntimeError(), "RuntimeError"),
        (KeyError("year"), "KeyError: 'year'"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_error_reads_as_its_handler_wrote_it(error: BaseException, text: str) -> None:
    """The text alone where it speaks for itself, else behind the name of the class."""
    assert error_text(error) == text


@pytest.mark.parametrize("reason", [ValueError("no"), SystemExit(1)], ids=repr)
def test_an_error_without_a_readable_text_is_still_an_error(reason: BaseException) -> None:
    """A `__str__` that raises, whatever it raises, costs the text and nothing else."""
    name = type(reason).__name__
    assert error_text(Mute(reason)) == f"Mute: (it has no text: its __str__ raised {name})"


def test_what_a_database_cannot_keep_is_written_as_an_escape() -> None:
    """NUL and half of a surrogate pair stay visible in a text that every store takes."""
    text = error_text(RuntimeError("before\x00after \ud83d, größer 🚀"))
    assert text == r"before\x00after \ud83d, größer 🚀"
    assert check_text(text, "error") == text


def test_a_long_error_is_cut_and_says_so() -> None:
    """2,000 characters are kept, and the number of those that are not."""
    assert error_text(RuntimeError("x" * 2_000)) == "x" * 2_000
    assert error_text(RuntimeError("x" * 5_000)) == "x" * 2_000 + "… (3,000 more characters)"


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(1), KeyboardInterrupt()])
def test_whatever_a_handler_raises_fails_the_attempt(error: BaseException) -> None:
    """Every exception is a failure, and the job may be tried again."""
    assert after_raise(error, stop=None, cancelled=False) == Fail(error_text(error), final=False)


@pytest.mark.parametrize("error", [InvalidInput("bad year"), NotStrictJson("NaN")])
def test_an_input_that_breaks_a_rule_fails_the_job_for_good(error: InvalidInput) -> None:
    """The payload of another attempt would be the same."""
    assert after_raise(error, stop=None, cancelled=False) == Fail(str(error), final=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("cleaning up"), SystemExit()])
def test_what_an_interrupted_handler_raises_is_no_failure(error: BaseException) -> None:
    """A handler may wrap the worker's interruption in an exception of its own."""
    for stop in (Stop.RELEASE, Stop.LOST):
        assert after_raise(error, stop=stop, cancelled=False) == Release()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("cleaning up")])
def test_what_a_handler_raises_that_was_interrupted_to_cancel_it(error: BaseException) -> None:
    """Whatever it is, the job is cancelled."""
    assert after_raise(error, stop=Stop.CANCEL, cancelled=True) == ConfirmCancel()


def test_a_handler_may_stop_when_its_job_is_to_be_cancelled() -> None:
    """By raising Cancelled, or by returning nothing; with a result it was quicker."""
    assert after_raise(Cancelled("seen"), stop=None, cancelled=True) == ConfirmCancel()
    assert after_return(None, (), cancelled=True) == ConfirmCancel()
    assert after_return({"n": 1}, (), cancelled=True) == Finish({"n": 1})


def test_a_handler_cannot_cancel_a_job_that_nobody_wants_cancelled() -> None:
    """Cancelled is a failure then, and nothing is an ordinary result."""
    assert after_raise(Cancelled("why?"), stop=None, cancelled=False) == Fail("why?")
    assert after_return(None, (), cancelled=False) == Finish(None)


def test_a_failure_meanwhile_stays_a_failure() -> None:
    """A job that is to be cancelled can still fail by itself."""
    assert after_raise(RuntimeError("no"), stop=None, cancelled=True) == Fail("no")


def test_a_handler_may_choose_its_wait() -> None:
    """Retry says how long, and why; without a time the policy does."""
    assert after_raise(Retry("busy", after=5), stop=None, cancelled=False) == Fail("busy", after=5)
    assert after_raise(Retry("busy"), stop=None, cancelled=False) == Fail("busy")


@pytest.mark.parametrize("after", ["soon", -1, 10**400, float("nan")])
def test_a_wait_that_is_none_is_left_to_the_policy(after: object) -> None:
    """A subclass may have anything there, or nothing; a worker outlives that."""

    class Later(Retry):
        def __init__(self) -> None:
            """Leave out what Retry does."""

    error = Later()
    assert after_raise(error, stop=None, cancelled=False) == Fail("Later")
    error.after = after  # type: ignore[assignment]  # what is tested
    assert after_raise(error, stop=None, cancelled=False) == Fail("Later")


def test_a_handler_may_give_up_for_good() -> None:
    """Permanent forgoes the attempts that are left."""
    assert after_raise(Permanent("gone"), stop=None, cancelled=False) == Fail("gone", final=True)


def test_a_lost_lease_is_no_failure() -> None:
    """What the context raises then leaves the store the last word."""
    lost = LeaseLost("j", 1, "the job is done")
    assert after_raise(lost, stop=None, cancelled=False) == Release()


def test_the_writes_of_a_handler_go_with_its_result() -> None:
    """They are kept in the order in which they were asked for."""

    def write(_: Any) -> None:
        """Do nothing."""

    assert after_return(1, [write, write], cancelled=False) == Finish(1, (write, write))


def test_a_kind_without_a_handler_fails_for_good_and_names_those_there_are() -> None:
    """The error names the kind and what this worker could run instead."""
    assert without_handler("mail", ("nap", "noop")) == Fail(
        "no handler for kind 'mail'; this worker knows: nap, noop", final=True
    )
    assert without_handler("mail", ()) == Fail(
        "no handler for kind 'mail'; this worker knows: none", final=True
    )
