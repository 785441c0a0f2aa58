"""What a check finds."""

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"  # it may do harm, or be meant so
    FAIL = "fail"  # it keeps the queue from working


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    grade: Grade
    text: str
    mend: str = ""

    def __str__(self) -> str:
        return f"{self.grade:<5}{self.text}" + (f": {self.mend}" if self.mend else "")


def ok(text: str) -> Finding:
    """Return that all is well."""
    return Finding(Grade.OK, text)


def warn(text: str, mend: str) -> Finding:
    """Return what may do harm."""
    return Finding(Grade.WARN, text, mend)


def fail(text: str, mend: str) -> Finding:
    """Return what keeps the queue from working."""
    return Finding(Grade.FAIL, text, mend)


def in_bytes(size: float) -> str:
    """Return a size in words: `0.2 MB`, `78 GB`."""
    gigabytes, megabytes = size / 1e9, size / 1e6
    if gigabytes >= 1:
        return f"{gigabytes:,.0f} GB"
    return f"{megabytes:,.0f} MB" if megabytes >= 10 else f"{megabytes:.1f} MB"  # noqa: PLR2004


def in_seconds(seconds: float) -> str:
    """Return a length of time in words: `40 s`, `5 min`, `3 h`, `12 days`."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"
