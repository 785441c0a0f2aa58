"""jobq.strictjson: what comes back exactly as it went in, and what is refused at the door."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq import InvalidInput, NotStrictJson
from jobq.strictjson import (
    MAX_DEPTH,
    MAX_NAME,
    check_name,
    check_text,
    decode,
    differing_fields,
    encode,
)

NO_NAMES = ["", " ", "\t\n", "x" * (MAX_NAME + 1), "a\x00b", "\ud800", 7]

# Every kind of value that a handler may return by mistake, and every one that it may.
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]))
    | st.binary(),
    lambda items: (
        st.lists(items)
        | st.tuples(items)
        | st.frozensets(st.integers())
        | st.dictionaries(st.text() | st.integers(), items)
    ),
    max_leaves=20,
)


@given(anything)
def test_a_value_comes_back_exactly_or_is_refused(value: Any) -> None:
    """Nothing is silently changed: neither a digit, nor a sign, nor a type."""
    try:
        text = encode(value, "value")
    except NotStrictJson:
        return
    assert repr(decode(text)) == repr(value)  # unlike ==, repr tells 1, 1.0, True, 0.0 and -0.0


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"a": [0.5, math.nan]}, "payload.a[1] is nan: "),
        ({"a": {"b": -math.inf}}, "payload.a.b is -inf: "),
        ({"a": "\x00"}, "payload.a holds a NUL"),
        ({"a\x00": 1}, "a key of payload holds a NUL"),
        ({"a": "\ud83d"}, "payload.a holds half of a surrogate pair"),
        ({"a": {1: 2}}, "payload.a has the key 1: "),
        ({"a": (1,)}, "payload.a is a tuple: "),
        ({"a": {1}}, "payload.a is a set: "),
        ({"a": b""}, "payload.a is a bytes: "),
        ({"a": 10**5000}, "payload.a has over 10,000 bits: "),
    ],
)
def test_a_refusal_names_the_place_and_the_rule(value: Any, complaint: str) -> None:
    """Whoever reads the message finds the one bad value in a large payload."""
    with pytest.raises(NotStrictJson, match=re.escape(complaint)):
        encode(value, "payload")


def test_a_value_may_be_nested_to_the_limit_and_no_deeper() -> None:
    """The limit holds exactly, and a list that holds itself passes any limit."""
    assert decode(encode(nested(MAX_DEPTH), "value")) == nested(MAX_DEPTH)
    endless: list[Any] = []
    endless.append(endless)
    for value in (nested(MAX_DEPTH + 1), nested(1500), endless):
        with pytest.raises(NotStrictJson, match=f"more than {MAX_DEPTH} deep"):
            encode(value, "value")


def test_the_size_is_that_of_the_bytes() -> None:
    """A limit in characters would let through four times as much."""
    assert encode("🦀", "value", max_bytes=6) == '"🦀"'
    with pytest.raises(NotStrictJson, match="value is 6 bytes of JSON, over the limit of 5"):
        encode("🦀", "value", max_bytes=5)


def test_a_refusal_is_short_however_large_the_value() -> None:
    """A message goes to logs and pages: it must not repeat a megabyte."""
    with pytest.raises(NotStrictJson) as refusal:
        encode({"k" * 1_000_000: math.nan}, "payload")
    length = len(str(refusal.value))
    assert length < 1_000


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ({"a": 1, "b": [1]}, {"b": [1], "a": 1}, []),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, []),
        ({"a": 1}, {"a": 1.0}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({}, {"b": 0}, ["b"]),
        ({"b": 1, "a": [1, 2]}, {"a": [2, 1], "c": 1}, ["b", "a", "c"]),
    ],
)
def test_two_payloads_differ_where_their_json_does(
    old: dict[str, Any], new: dict[str, Any], names: list[str]
) -> None:
    """The order of fields means nothing in JSON; 1, 1.0 and true are three values."""
    assert differing_fields(old, new) == names


@pytest.mark.parametrize("name", ["nap", "é", "🦀", "order 7", "x" * MAX_NAME])
def test_a_name_is_up_to_255_characters_of_any_script(name: str) -> None:
    """What is allowed comes back as it is."""
    assert check_name(name, "kind") == name


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_some_database_could_not_keep_is_refused(name: str) -> None:
    """The message says which name was meant."""
    with pytest.raises(InvalidInput, match="kind"):
        check_name(name, "kind")


def test_text_that_every_database_keeps_passes() -> None:
    """Line ends, a byte order mark and characters beyond 16 bits are text."""
    text = "a\r\n\t\ufeff\uffff\x7f\x01 é 🦀"
    assert check_text(text, "error") == text


def nested(depth: int) -> Any:
    """Return a number within that many lists."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_a_small_value_that_unfolds_without_end_is_given_up() -> None:
    """Lists that hold one list twice, 60 times over, have 2^60 parts: refused, and soon."""
    value: Any = []
    for _ in range(60):
        value = [value, value]
    with pytest.raises(NotStrictJson, match="over the limit of bytes"):
        encode(value, "payload")
