"""What a check finds."""

import re
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


def one_statement(sql: str) -> str:
    """Return SQL on one line, without the comments that would swallow the remainder of it."""
    return " ".join(re.sub(r"--[^\n]*", "", sql).split())
