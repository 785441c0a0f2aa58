"""jobq.outcomes: what the end of a handler makes of its attempt."""

import pytest

from jobq.errors import InvalidInput, NotStrictJson
from jobq.outcomes import Fail, Release, after_raise, error_text, without_handler
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
    assert after_raise(error, interrupted=False) == Fail(error_text(error), final=False)


@pytest.mark.parametrize("error", [InvalidInput("bad year"), NotStrictJson("NaN")])
def test_an_input_that_breaks_a_rule_fails_the_job_for_good(error: InvalidInput) -> None:
    """The payload of another attempt would be the same."""
    assert after_raise(error, interrupted=False) == Fail(str(error), final=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("cleaning up"), SystemExit()])
def test_what_an_interrupted_handler_raises_is_no_failure(error: BaseException) -> None:
    """A handler may wrap the worker's interruption in an exception of its own."""
    assert after_raise(error, interrupted=True) == Release()


def test_a_kind_without_a_handler_fails_for_good_and_names_those_there_are() -> None:
    """The error names the kind and what this worker could run instead."""
    assert without_handler("mail", ("nap", "noop")) == Fail(
        "no handler for kind 'mail'; this worker knows: nap, noop", final=True
    )
    assert without_handler("mail", ()) == Fail(
        "no handler for kind 'mail'; this worker knows: none", final=True
    )
