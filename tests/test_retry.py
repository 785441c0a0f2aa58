"""jobq.retry: how long until the next attempt (G8)."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq import InvalidInput, RetryPolicy

FAILURES = [*range(1, 101), 10**6, 10**30, 10**400]

policies = st.builds(
    RetryPolicy,
    base=st.floats(1e-3, 1e6),
    factor=st.floats(1.0, 1e6),
    cap=st.floats(0.0, 1e9),
    jitter=st.sampled_from(["none", "full"]),
)
draws = st.floats(0.0, 1.0, exclude_max=True)


def test_the_defaults_wait_as_the_lesson_does() -> None:
    """After failure n the wait is 0.25 x 2^n seconds."""
    waits = [RetryPolicy().delay(n, random=never_asked) for n in (1, 2, 3, 4)]
    assert waits == [0.5, 1.0, 2.0, 4.0]


@given(policies)
def test_the_wait_grows_up_to_the_cap_whatever_the_number_of_failures(policy: RetryPolicy) -> None:
    """No number of failures overflows, passes the cap, or waits less than a smaller one."""
    bounds = [policy.bounds(failures) for failures in FAILURES]
    assert all(0 <= shortest <= longest <= policy.cap for shortest, longest in bounds)
    assert all(early <= late for early, late in itertools.pairwise(bounds))


@given(policies, st.sampled_from(FAILURES), draws)
def test_every_draw_lies_within_the_bounds(policy: RetryPolicy, failures: int, draw: float) -> None:
    """The wait is never outside of what `bounds` promises."""
    shortest, longest = policy.bounds(failures)
    assert shortest <= policy.delay(failures, lambda: draw) <= longest


def test_full_jitter_spreads_over_the_whole_range() -> None:
    """With full jitter the wait runs from nothing to the exponential value."""
    policy = RetryPolicy(jitter="full")
    numbers = iter([0.0, 0.25, 0.5])
    assert [policy.delay(3, lambda: next(numbers)) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert policy.bounds(3) == (0.0, 2.0)


def test_no_wait_at_all_is_a_policy_too() -> None:
    """A base of 0 means at once, however often the job failed."""
    assert {RetryPolicy(base=0).bounds(failures) for failures in FAILURES} == {(0.0, 0.0)}


def test_a_policy_of_whole_numbers_computes_with_floats() -> None:
    """Powers of whole numbers would grow without bound before the cap is looked at."""
    shortest, longest = RetryPolicy(base=1, factor=10, cap=60).bounds(1)
    assert [type(shortest), type(longest)] == [float, float]


@pytest.mark.parametrize("name", ["base", "factor", "cap"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, pytest.param(10**400, id="10^400")])
def test_a_setting_that_is_no_sensible_number_is_refused(name: str, value: float) -> None:
    """The message names the setting and its least value."""
    with pytest.raises(InvalidInput, match=rf"retry {name} .*at least [01]"):
        RetryPolicy(**{name: value})  # type: ignore[arg-type]  # the name is one of the three


def test_a_factor_below_one_is_refused() -> None:
    """Waits that shrink would be a hammer, not a backoff."""
    with pytest.raises(InvalidInput, match=r"factor is 0\.5"):
        RetryPolicy(factor=0.5)


def test_an_unknown_jitter_is_refused() -> None:
    """The message names the two there are."""
    with pytest.raises(InvalidInput, match="'some': use 'none' or 'full'"):
        RetryPolicy(jitter="some")  # type: ignore[arg-type]  # the very thing that must fail


@pytest.mark.parametrize("failures", [0, -1])
def test_there_is_no_wait_before_the_first_failure(failures: int) -> None:
    """The count begins at 1, and the message says so."""
    with pytest.raises(InvalidInput, match="use 1 up"):
        RetryPolicy().bounds(failures)


def never_asked() -> float:
    """Stand for a source of random numbers that a policy without jitter does not need."""
    return 0.5
