"""How long to wait until the next attempt."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jobq.checks import check_number
from jobq.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with a cap: base, base x factor, base x factor^2, … seconds.

    The defaults are the lesson's 0.25 x 2^n: 0.5 s after the first failure, 1 s after the second.
    With `jitter="full"` the wait is drawn evenly between 0 and that value, so that jobs which
    failed together do not come back together (Brooker, "Exponential Backoff and Jitter", 2015).
    """

    base: float = 0.5
    factor: float = 2.0
    cap: float = 3600.0
    jitter: Literal["none", "full"] = "none"

    def __post_init__(self) -> None:
        # Floats from here on: powers of whole numbers grow without bound before the cap is met.
        for name, least in (("base", 0.0), ("factor", 1.0), ("cap", 0.0)):
            value = check_number(getattr(self, name), f"retry {name}", least)
            object.__setattr__(self, name, value)  # the class is frozen
        if self.jitter not in {"none", "full"}:
            raise InvalidInput(f"retry jitter is {self.jitter!r}: use 'none' or 'full'")

    def bounds(self, failures: int) -> tuple[float, float]:
        """Return the least and the greatest wait in seconds after that many failures (from 1)."""
        if failures < 1:
            raise InvalidInput(f"a wait follows a failure: {failures} failures have none; use 1 up")
        longest = self._exponential(failures - 1)
        return (0.0 if self.jitter == "full" else longest), longest

    def delay(self, failures: int, random: Callable[[], float]) -> float:
        """Return the wait in seconds; `random` gives numbers in [0, 1)."""
        shortest, longest = self.bounds(failures)
        return shortest + (longest - shortest) * random()

    def _exponential(self, doublings: int) -> float:
        if self.base == 0:
            return 0.0
        try:
            return min(self.cap, self.base * self.factor**doublings)
        except OverflowError:  # factor^1023 is already beyond a float; the cap is not
            return self.cap
