"""JSON that comes back exactly as it went in, on every database, or is refused at the door.

Python's own `json` writes NaN (which is not JSON), turns tuples into lists and integer keys into
strings, and lets through what databases refuse: NUL (PostgreSQL), lone surrogates (UTF-8) and
lists nested until the reader runs out of stack. RFC 8259 section 9 lets an implementation limit
size, depth and characters; these are the limits, in one place.
"""

import json
import math
import reprlib
from collections.abc import Iterator
from typing import Any

from jobq.errors import InvalidInput, NotStrictJson

MAX_BYTES = 1_000_000  # of a payload or result, as UTF-8
MOST_BYTES = 4  # of a character in UTF-8
MAX_DEPTH = 100
MAX_INTEGER_BITS = 10_000  # Python reads and writes integers of up to 4,300 digits
MAX_NAME = 255  # characters of a key, a kind or a worker's name

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode(value: Any, what: str, *, max_bytes: int = MAX_BYTES) -> str:
    """Return `value` as JSON text, or raise NotStrictJson naming the place and the rule.

    `what` is how the message calls the value: "payload", "result".
    """
    _check(value, what, 0, iter(range(max_bytes)))
    text = _ENCODER.encode(value)
    return _check_size(text, what, max_bytes, "bytes of JSON")


def decode(text: str) -> Any:
    """Return the value that `encode` was given."""
    return json.loads(text)


def differing_fields(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the names of the top-level fields in which two payloads differ, in order."""

    def canonical(payload: dict[str, Any], name: str) -> str | None:
        # As text, because Python holds 1 == 1.0 == True, and JSON does not.
        return json.dumps(payload[name], sort_keys=True) if name in payload else None

    return [n for n in (old | new) if canonical(old, n) != canonical(new, n)]


def check_name(value: Any, what: str) -> str:
    """Return a key, kind or worker name; raise InvalidInput if it is empty, too long or no text."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(
            f"{what} is {reprlib.repr(value)}: use 1 to {MAX_NAME} characters, not all blank"
        )
    if len(value) > MAX_NAME:
        raise InvalidInput(f"{what} has {len(value)} characters: use at most {MAX_NAME}")
    return _check_characters(value, what)


def check_text(value: Any, what: str, *, max_bytes: int = MAX_BYTES) -> str:
    """Return a text, or raise NotStrictJson if some database could not give it back unchanged."""
    if not isinstance(value, str):
        raise NotStrictJson(f"{what} is a {type(value).__name__}: use a str")
    _check_size(value, what, max_bytes, "bytes")
    return _check_characters(value, what)


def _check_size(text: str, what: str, max_bytes: int, unit: str) -> str:
    if len(text) * MOST_BYTES <= max_bytes:  # nearly always, and nothing has to be copied
        return text
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise NotStrictJson(
            f"{what} is {size:,} {unit}, over the limit of {max_bytes:,}: "
            "store the data elsewhere and pass a reference to it"
        )
    return text


def _check_characters(value: str, what: str) -> str:
    if "\x00" in value:
        raise NotStrictJson(f"{what} holds a NUL character, which PostgreSQL refuses: take it out")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise NotStrictJson(
            f"{what} holds half of a surrogate pair, which is not text: decode it properly first"
        )
    return value


def _check(value: Any, path: str, depth: int, bytes_left: Iterator[int]) -> None:
    """Walk the value; exact types only, so that nothing is silently turned into something else.

    Each part takes a byte of JSON at the least, so a small value that holds its parts many times
    over is given up before it is written out.
    """
    if next(bytes_left, None) is None:
        raise NotStrictJson(f"{path[:MAX_NAME]} and what is before it are over the limit of bytes")
    if depth > MAX_DEPTH:
        raise NotStrictJson(f"{path[:40]}… is nested more than {MAX_DEPTH} deep: flatten it")
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise NotStrictJson(
                    f"{path} has the key {reprlib.repr(key)}: JSON keys are strings"
                )
            _check_characters(key, f"a key of {path}")
            _check(item, f"{path}.{key[:MAX_NAME]}", depth + 1, bytes_left)
    elif kind is list:
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1, bytes_left)
    else:
        _check_scalar(value, path)


def _check_scalar(value: Any, path: str) -> None:
    kind = type(value)
    if kind is str:
        _check_characters(value, path)
    elif kind is float:
        if not math.isfinite(value):
            raise NotStrictJson(f"{path} is {value}: JSON has no such number; use null or a string")
    elif kind is int:
        if value.bit_length() > MAX_INTEGER_BITS:
            raise NotStrictJson(f"{path} has over {MAX_INTEGER_BITS:,} bits: send it as a string")
    elif value is not None and kind is not bool:
        raise NotStrictJson(
            f"{path} is a {kind.__name__}: use dict, list, str, int, float, bool or None"
        )
