"""Edge cases: values through every door of the store, to be kept exactly or refused."""

import math
import reprlib
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, Progress, Status
from jobq.store.requests import MAX_ATTEMPTS, MAX_PRIORITY
from jobq.strictjson import MAX_BYTES, MAX_DEPTH, MAX_NAME

if TYPE_CHECKING:
    from tests.edges import Doors, Edge


def agreed(*answers: object) -> str:
    """Return what all ways to read something give, or that they differ."""
    said = list(dict.fromkeys(repr(answer) for answer in answers))
    return said[0] if len(said) == 1 else f"read as {' and as '.join(said)}"


def nested(depth: int) -> Any:
    """Return a number within that many lists."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


# Values of JSON: each goes in as payload and as result, and is read in every way there is.

KEPT = {
    "null": None,
    "true": True,
    "false": False,
    "0": 0,
    "1": 1,
    "1.0": 1.0,
    "-0.0": -0.0,
    "0.1 + 0.2": 0.1 + 0.2,
    "1e16": 1e16,
    "1e22": 1e22,
    "1e308": 1e308,
    "5e-324": 5e-324,
    "2**53 + 1": 2**53 + 1,
    "2**53 as a float": float(2**53),
    "2**63": 2**63,
    "-2**63 - 1": -(2**63) - 1,
    "2**64": 2**64,
    "2**70": 2**70,
    "3,000 digits": 10**3_000 - 7,
    "empty text": "",
    "blanks": "  \t\r\n ",
    "empty list": [],
    "empty object": {},
    "lists in lists": [[], [[]], [None, [False, 0, "", {}]]],
    "order of members": {"b": 1, "a": 2, "": 3, "B": 4, "aa": 5, "10": 6, "9": 7},
    "members alike but for case or form": {"a": 1, "A": 2, "\u00e9": 3, "e\u0301": 4, "a ": 5},
    "NFC": "\u00e9\u00c5\ufb01",
    "NFD": "e\u0301A\u030af\u0131",
    "größe": "größe",
    "emoji of seven code points": "👩‍👩‍👧‍👦",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c",
    "control characters": "\x01\x08\x1b\x1f\x7f\x80\x9f",
    "line ends": "\r\n\n\r\u0085\u2028\u2029",
    "byte order mark": "\ufeffa\ufffe",
    "last code points": "\uffff\U0001ffff\U0010ffff",
    "code points around surrogates": "\ud7ff\ue000",
    "escapes as text": "\\u0000 \\ud800 \\n \\ \\\\",
    "quotes and parameters": '\'; "--" %s %(v)s :v ?1 $1 {v} `',
    "text of a number": "1e400",
    "text of a date": "2026-02-30T25:61:61",
    "10,000 numbers": list(range(10_000)),
    "99 deep": nested(99),
    "almost 1 MB of four-byte characters": "🦀" * 249_990,
}
NO_NUMBER = "JSON has no such number; use null or a string"
REFUSED = {  # the rule; {at} is the place of the value, {what} all of what it is in
    "NaN": (math.nan, "{at} is nan: " + NO_NUMBER),
    "Infinity": (math.inf, "{at} is inf: " + NO_NUMBER),
    "-Infinity": (-math.inf, "{at} is -inf: " + NO_NUMBER),
    "NaN in a list": ([0, [math.nan]], "{at}[1][0] is nan: " + NO_NUMBER),
    "NUL": ("a\0b", "{at} holds a NUL character…"),
    "NUL in a member's name": ({"a\0": 1}, "a key of {at} holds a NUL character…"),
    "first half of a surrogate pair": ("\ud83d", "{at} holds half of a surrogate pair…"),
    "second half of a surrogate pair": ("\udc00", "{at} holds half of a surrogate pair…"),
    "surrogate pair": ("\ud83d\ude00", "{at} holds half of a surrogate pair…"),
    "surrogate in a member's name": ({"\udfff": 1}, "a key of {at} holds half of a surrogate…"),
    "10**4000": (10**4_000, "{at} has over 10,000 bits: send it as a string"),
    "over 100 deep": (nested(MAX_DEPTH + 1), "{at}[0]…"),
    "1,500 deep": (nested(1_500), "{at}[0]…"),
    "5 MB": ("x" * 5_000_000, "{what} is 5,000,0…"),
    "naive datetime": (datetime(2026, 3, 29, 2, 30), "{at} is a datetime: use dict…"),  # noqa: DTZ001 # as people do
    "aware datetime": (datetime(2026, 3, 29, tzinfo=UTC), "{at} is a datetime: use dict…"),
    "date": (date(9999, 12, 31), "{at} is a date: use dict…"),
    "Decimal": (Decimal("0.1"), "{at} is a Decimal: use dict…"),
    "UUID": (uuid.UUID(int=0), "{at} is a UUID: use dict…"),
    "bytes": (b"a", "{at} is a bytes: use dict…"),
    "tuple": ((1, 2), "{at} is a tuple: use dict…"),
    "set": ({1}, "{at} is a set: use dict…"),
    "Status": (Status.DONE, "{at} is a Status: use dict…"),
    "number as a member's name": ({1: 2}, "{at} has the key 1: JSON keys are strings"),
}


def enqueued(doors: "Doors", value: Any) -> str:
    """Record a payload, and read it."""
    return read_payload(doors, doors.store.enqueue("noop", {"v": value}).job)


def enqueued_with_others(doors: "Doors", value: Any) -> str:
    """Record a payload among others, and read it."""
    others: dict[str, Any] = {"kind": "noop", "payload": {"v": 1}, "priority": -1}
    wanted = [others, {"kind": "noop", "payload": {"v": value}}, others]
    return read_payload(doors, doors.store.enqueue_many(wanted)[1].job)


def read_payload(doors: "Doors", job: Job) -> str:
    """Return the payload, as everybody reads it."""
    store = doors.store
    [found] = store.find(job.id)
    listed = next(other for other in store.list() if other.id == job.id)
    jobs = (job, store.get(job.id), found, listed, store.claim("w1"), store.cancel(job.id))
    return agreed(*(j and j.payload["v"] for j in jobs))


def finished(doors: "Doors", value: Any) -> str:
    """Record a result, and read it."""
    return read_result(doors, doors.store.finish(doors.claimed(), value))


def finished_with_others(doors: "Doors", value: Any) -> str:
    """Record a result among others, and read it."""
    doors.store.enqueue_many({"kind": "noop", "payload": {}} for _ in range(3))
    jobs = doors.store.claim_many("w1", 3)
    doors.look()
    answers = doors.store.finish_many(zip(jobs, (1, value, 1), strict=True))
    done = answers[1]
    assert isinstance(done, Job), done
    return read_result(doors, done)


def read_result(doors: "Doors", job: Job) -> str:
    """Return the result, as everybody reads it, the client of the API too."""
    store = doors.store
    polled = doors.client.get(f"/jobs/{job.id}").json()["result"]
    listed = next(j for j in store.list(status=Status.DONE) if j.id == job.id)
    gotten = store.get(job.id)
    assert gotten is not None
    return agreed(job.result, gotten.result, listed.result, store.find(job.id)[0].result, polled)


JSON_DOORS: dict[str, tuple[Callable[["Doors", Any], str], str, str, str]] = {
    "enqueue": (enqueued, "", "payload", "payload.v"),
    "enqueue_many": (enqueued_with_others, "jobs[1]: ", "payload", "payload.v"),
    "finish": (finished, "", "result", "result"),
    "finish_many": (finished_with_others, "", "result", "result"),
}


def json_cases() -> "Iterator[Edge]":
    """Give each value through each door."""
    for door, (do, prefix, what, at) in JSON_DOORS.items():
        for name, value in KEPT.items():
            yield (f"{door}: {name}", do, value, repr(value))
        for name, (value, rule) in REFUSED.items():
            right = f"NotStrictJson: {prefix}{rule.format(at=at, what=what)}"
            yield (f"{door}: {name}", do, value, right)


# Names: keys, kinds, workers and what a handler does once.

NAMES_KEPT = {
    "one character": "k",
    "255 characters": "x" * MAX_NAME,
    "255 characters of four bytes": "🦀" * MAX_NAME,
    "größe": "größe",
    "日本": "日本",
    "NFC": "\u00e9",
    "NFD": "e\u0301",
    "blanks around it": " a\t\n",
    "quotes and parameters": "';\"--%s %(id)s :id ?1 $1 \\",
    "digits": "007",
    "control characters": "a\x01\x1b\x7f",
    "last code point": "\U0010ffff",
    "NULL": "NULL",
}
BLANK = "use 1 to 255 characters, not all blank"
NAMES_REFUSED: dict[str, tuple[Any, str]] = {
    "empty": ("", f"InvalidInput: {{what}} is '': {BLANK}"),
    "blanks": (" \t\u3000", f"InvalidInput: {{what}} is ' \\t\\u3000': {BLANK}"),
    "256 characters": ("x" * 256, "InvalidInput: {what} has 256 characters: use at most 255"),
    "NUL": ("a\0", "NotStrictJson: {what} holds a NUL character…"),
    "lone surrogate": ("a\ud800", "NotStrictJson: {what} holds half of a surrogate pair…"),
    "number": (7, f"InvalidInput: {{what}} is 7: {BLANK}"),
    "bytes": (b"k", f"InvalidInput: {{what}} is b'k': {BLANK}"),
}
APART = {  # alike to some collation, and two names all the same
    "case": ("a", "A"),
    "sharp s": ("straße", "strasse"),
    "normal form": ("caf\u00e9", "cafe\u0301"),
    "compatibility form": ("\ufb01", "fi"),
    "Angstrom": ("\u212b", "\u00c5"),
    "dotless i": ("i", "\u0131"),
    "accent": ("e", "é"),
    "blank behind": ("a", "a "),
    "blank before": ("a", " a"),
    "no-break space": ("a b", "a\u00a0b"),
    "hyphen": ("co-op", "coop"),
    "full width": ("1", "\uff11"),
    "invisible character": ("a", "a\u200b"),
    "digits": ("2", "02"),
}


def key_used(doors: "Doors", name: Any) -> str:
    """Use a key twice, and read it."""
    job, created = doors.store.enqueue("noop", {}, name)
    again = doors.store.enqueue("noop", {}, name)
    assert (created, again) == (True, (job, False))
    gotten = doors.store.get(job.id)
    return agreed(job.idempotency_key, gotten and gotten.idempotency_key)


def key_used_with_others(doors: "Doors", name: Any) -> str:
    """Use a key twice in one call, and read it."""
    wanted = {"kind": "noop", "payload": {}, "idempotency_key": name}
    (job, _), (_, created) = doors.store.enqueue_many([wanted, wanted])
    assert not created
    return agreed(*(j.idempotency_key for j in (job, *doors.store.list())))


def kind_used(doors: "Doors", name: Any) -> str:
    """Record a job of a kind, and read it."""
    store = doors.store
    job = store.enqueue(name, {}).job
    store.enqueue("other", {})
    [listed] = store.list(kind=name)
    claimed = store.claim("w1")
    assert claimed is not None
    store.finish(claimed, 0)
    assert store.typical_seconds(name) == 0.0
    [counted] = [kind for kind in store.stats().kinds if kind != "other"]
    [done] = store.list(kind=name, status=Status.DONE)
    return agreed(job.kind, listed.kind, claimed.kind, done.kind, counted)


def worker_named(doors: "Doors", name: Any) -> str:
    """Claim under a name, and read it."""
    job = doors.store.enqueue("noop", {}).job
    doors.look()
    claimed = doors.store.claim(name)
    listed = doors.store.list()[0]
    [attempt] = doors.store.attempts(job.id)
    event = doors.store.events(job.id)[-1]
    return agreed(claimed and claimed.worker, listed.worker, attempt.worker, event.worker)


def worker_named_for_many(doors: "Doors", name: Any) -> str:
    """Claim several jobs under a name, and read it."""
    doors.store.enqueue_many({"kind": "noop", "payload": {}} for _ in range(2))
    doors.look()
    claimed = doors.store.claim_many(name, 2)
    return agreed(*(job.worker for job in (*claimed, *doors.store.list())))


def done_once(doors: "Doors", name: Any) -> str:
    """Mark something as done, and ask for it."""
    job = doors.claimed()
    assert not doors.store.is_done(job, name)
    doors.store.mark_done(job, name)
    doors.store.mark_done(job, name)
    return repr(name) if doors.store.is_done(job, name) else "not done"


NAME_DOORS: dict[str, tuple[Callable[["Doors", Any], str], str, str]] = {
    "key": (key_used, "", "idempotency key"),
    "key in enqueue_many": (key_used_with_others, "jobs[0]: ", "idempotency key"),
    "kind": (kind_used, "", "kind"),
    "worker": (worker_named, "", "worker"),
    "worker in claim_many": (worker_named_for_many, "", "worker"),
    "once": (done_once, "", "key"),
}


def keys_apart(doors: "Doors", pair: tuple[str, str]) -> str:
    """Use two keys for different jobs."""
    store = doors.store
    jobs = [store.enqueue("noop", {"n": n}, key).job for n, key in enumerate(pair)]
    wanted = (
        {"kind": "noop", "payload": {"n": n}, "idempotency_key": k} for n, k in enumerate(pair)
    )
    assert [job for job, _ in store.enqueue_many(wanted)] == jobs
    return f"{len(store.list())} jobs"


def kinds_apart(doors: "Doors", pair: tuple[str, str]) -> str:
    """Count jobs of two kinds."""
    for kind in pair:
        doors.store.enqueue(kind, {})
    kinds = sorted(job.kind for kind in pair for job in doors.store.list(kind=kind))
    counted = sorted(doors.store.stats().kinds)
    return f"{agreed(kinds, counted, sorted(pair)).count(chr(39)) // 2} kinds"


def done_apart(doors: "Doors", pair: tuple[str, str]) -> str:
    """Mark one of two things as done."""
    job = doors.claimed()
    doors.store.mark_done(job, pair[0])
    return repr([doors.store.is_done(job, name) for name in pair])


def name_cases() -> "Iterator[Edge]":
    """Give each name through each door."""
    for door, (do, prefix, what) in NAME_DOORS.items():
        for title, name in NAMES_KEPT.items():
            yield (f"{door}: {title}", do, name, repr(name))
        for title, (name, rule) in NAMES_REFUSED.items():
            error, _, text = rule.format(what=what).partition(": ")
            yield (f"{door}: {title}", do, name, f"{error}: {prefix}{text}")
    for title, pair in APART.items():
        yield (f"keys apart: {title}", keys_apart, pair, "2 jobs")
        yield (f"kinds apart: {title}", kinds_apart, pair, "2 kinds")
        yield (f"once apart: {title}", done_apart, pair, "[True, False]")


# Texts: why an attempt failed, how far the work has come.

TEXTS_KEPT = {
    "empty": "",
    "blanks and line ends": " a\r\n\tb \n",
    "NFC beside NFD": "\u00e9 e\u0301",
    "emoji": "👩‍👩‍👧‍👦",
    "control characters": "\x01\x1b[31m\x7f\x9f",
    "byte order mark": "\ufeffa\uffff\U0010ffff",
    "quotes and parameters": '\'; "--" %s %(v)s :v ?1 $1 {v} \\u0000',
}
ERRORS_KEPT = TEXTS_KEPT | {"1 MB": "é" * (MAX_BYTES // 2)}
TEXTS_REFUSED: dict[str, tuple[Any, str]] = {
    "NUL": ("a\0", "NotStrictJson: {what} holds a NUL character…"),
    "lone surrogate": ("a\udc80", "NotStrictJson: {what} holds half of a surrogate pair…"),
    "None": (None, "NotStrictJson: {what} is a NoneType: use a str"),
    "5 MB": ("x" * 5_000_000, "NotStrictJson: {what} is 5,000,000 bytes…"),
}


def failed(doors: "Doors", text: Any) -> str:
    """Fail an attempt, and read why."""
    job = doors.store.fail(doors.claimed(), text)
    [attempt] = doors.store.attempts(job.id)
    event = doors.store.events(job.id)[-1]
    polled = doors.client.get(f"/jobs/{job.id}").json()["error"]
    return agreed(job.error, attempt.error, event.error, doors.store.list()[0].error, polled)


def message_told(doors: "Doors", text: Any) -> str:
    """Tell how far the work has come, in words."""
    return progress_told(doors, Progress(0, None, text)).removesuffix(")").partition("message=")[2]


def progress_told(doors: "Doors", progress: Any) -> str:
    """Tell how far the work has come, and read it."""
    job = doors.store.heartbeat(doors.claimed(), 30.0, progress)
    event = doors.store.events(job.id)[-1]
    polled = doors.client.get(f"/jobs/{job.id}").json()["progress"]
    total = None if progress.total is None else float(progress.total)
    assert polled == {
        "done": float(progress.done),
        "total": total,
        "message": progress.message,
    }
    return agreed(job.progress, doors.store.list()[0].progress, event.progress)


def text_cases() -> "Iterator[Edge]":
    """Give each text through each door."""
    for title, text in ERRORS_KEPT.items():
        yield (f"error: {title}", failed, text, repr(text))
    for title, text in TEXTS_KEPT.items():
        yield (f"progress message: {title}", message_told, text, repr(text))
    for title, (text, rule) in TEXTS_REFUSED.items():
        yield (f"error: {title}", failed, text, rule.format(what="error"))
        right = rule.format(what="progress message")
        yield (f"progress message: {title}", message_told, text, right)


# Numbers: times, waits, priorities, how far the work has come.

LARGEST = 1.7976931348623157e308
NUMBERS_KEPT = {
    "0": 0.0,
    "5e-324": 5e-324,
    "0.1 + 0.2": 0.1 + 0.2,
    "a microsecond": 1_774_747_800.000001,
    "daylight saving begins": 1_774_746_000.0,
    "end of 9999": 253_402_300_799.999999,
    "2**53 + 1": float(2**53 + 1),
    "2**70": float(2**70),
    "largest float": LARGEST,
}
NOT_SECONDS = "use a number of seconds of at least {least}"
NUMBERS_REFUSED: dict[str, Any] = {
    "-1": -1,
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "True": True,
    "text": "0",
    "None": None,
    "10**400": 10**400,
    "datetime": datetime(2026, 3, 29, tzinfo=UTC),
    "naive datetime": datetime(2026, 3, 29, 2, 30),  # noqa: DTZ001 # as people do
}


def put_off(doors: "Doors", at: Any) -> str:
    """Put a job off, and read until when."""
    job = doors.store.enqueue("noop", {}, run_after=at).job
    event = doors.store.events(job.id)[-1]
    claimed = doors.store.claim("w1")
    assert (claimed is None) == (at > doors.clock.now)
    gotten = doors.store.get(job.id)
    return agreed(job.run_after, event.run_after, gotten and gotten.run_after)


def put_off_with_others(doors: "Doors", at: Any) -> str:
    """Put a job off, of several, and read until when."""
    wanted = [{"kind": "noop", "payload": {}, "run_after": at}]
    [(job, _)] = doors.store.enqueue_many(wanted)
    return agreed(job.run_after, doors.store.events(job.id)[-1].run_after)


def leased(doors: "Doors", seconds: Any) -> str:
    """Claim for so long, and read until when."""
    doors.store.enqueue("noop", {})
    doors.look()
    job = doors.store.claim("w1", seconds)
    assert job is not None
    beaten = doors.store.heartbeat(job, seconds)
    ends = [event.locked_until for event in doors.store.events(job.id)[1:]]
    listed = doors.store.list()[0]
    assert agreed(job.locked_until, beaten.locked_until, listed.locked_until, *ends)
    return agreed(*((end or 0.0) - doors.clock.now for end in ends))


def leased_many(doors: "Doors", seconds: Any) -> str:
    """Claim several for so long, and read until when."""
    doors.store.enqueue("noop", {})
    doors.look()
    [job] = doors.store.claim_many("w1", 2, seconds)
    assert job.locked_until is not None
    return repr(job.locked_until - doors.clock.now)


def beaten(doors: "Doors", seconds: Any) -> str:
    """Extend a lease to so long, and read until when."""
    job = doors.store.heartbeat(doors.claimed(), seconds)
    assert job.locked_until is not None
    return repr(job.locked_until - doors.clock.now)


def retried_after(doors: "Doors", seconds: Any) -> str:
    """Fail an attempt, ask for a wait, and read until when."""
    job = doors.store.fail(doors.claimed(), "no", after=seconds)
    event = doors.store.events(job.id)[-1]
    return agreed(job.run_after - doors.clock.now, (event.run_after or 0.0) - doors.clock.now)


def pruned(doors: "Doors", seconds: Any) -> str:
    """Delete what is older."""
    doors.job(Status.DONE)
    doors.clock.move(0.5)
    return f"{doors.store.prune(seconds)} of 1"


def number_cases() -> "Iterator[Edge]":
    """Give each number through each door."""
    for title, at in NUMBERS_KEPT.items():
        yield (f"run_after: {title}", put_off, at, repr(at))
        yield (f"run_after in enqueue_many: {title}", put_off_with_others, at, repr(at))
        progress = Progress(at, at, "")
        yield (f"progress: {title}", progress_told, progress, repr(progress))
        left = repr(1_000_000.0 + at - 1_000_000.0)
        yield (f"fail after: {title}", retried_after, at, left)
        if at >= MIN_LEASE:
            yield (f"lease: {title}", leased, at, left)
            yield (f"lease of many: {title}", leased_many, at, left)
            yield (f"heartbeat: {title}", beaten, at, left)
        yield (f"prune: {title}", pruned, at, f"{int(at < 0.5)} of 1")
    doors = {
        "run_after": (put_off, "run_after", "0"),
        "run_after in enqueue_many": (put_off_with_others, "jobs[0]: run_after", "0"),
        "lease": (leased, "lease_seconds", "0.001"),
        "lease of many": (leased_many, "lease_seconds", "0.001"),
        "heartbeat": (beaten, "lease_seconds", "0.001"),
        "prune": (pruned, "older_than_seconds", "0"),
    }
    for title, value in NUMBERS_REFUSED.items():
        for door, (do, what, least) in doors.items():
            right = (
                f"InvalidInput: {what} is {reprlib.repr(value)}: {NOT_SECONDS.format(least=least)}"
            )
            yield (f"{door}: {title}", do, value, right)
    for title, whole in {"3": 3, "2**70": 2**70, "10**300": 10**300}.items():
        progress = Progress(whole, whole, "")
        yield (f"progress: whole {title}", progress_told, progress, repr(progress))
    for title in ("-1", "NaN", "True", "10**400"):
        number: Any = NUMBERS_REFUSED[title]
        right = f"InvalidInput: progress done is {reprlib.repr(number)}: use a number of…"
        yield (f"progress: {title}", progress_told, Progress(number), right)


MIN_LEASE = 0.001  # seconds
WHOLE_REFUSED: dict[str, Any] = {
    "True": True,
    "1.0": 1.0,
    "NaN": math.nan,
    "text": "1",
    "2**31": 2**31,
    "2**70": 2**70,
    "-2**63": -(2**63),
}


def whole_cases() -> "Iterator[Edge]":
    """Give whole numbers of every size."""
    rules = {
        "priority": (-MAX_PRIORITY, MAX_PRIORITY),
        "max_attempts": (1, MAX_ATTEMPTS),
    }
    for name, (least, most) in rules.items():
        for number in (least, most):
            yield (f"{name}: {number}", number_kept, (name, number), repr(number))
        beyond = {str(least - 1): least - 1, str(most + 1): most + 1}
        for title, value in (beyond | WHOLE_REFUSED).items():
            right = f"InvalidInput: {name} is {reprlib.repr(value)}: use a whole number from…"
            yield (f"{name}: {title}", number_kept, (name, value), right)
    pages: dict[str, Callable[[Doors, Any], object]] = {
        "list": lambda d, n: d.store.list(limit=n),
        "find": lambda d, n: d.store.find("0", limit=n),
        "events": lambda d, n: d.store.events(limit=n),
        "claim_many": lambda d, n: d.store.claim_many("w1", n),
    }
    for door, do in pages.items():
        for title, value in ({"0": 0, "-1": -1} | WHOLE_REFUSED).items():
            right = f"InvalidInput: limit is {reprlib.repr(value)}: use a whole number from…"
            yield (f"{door} limit: {title}", answered(do), value, right)
        yield (f"{door} limit: 1000", answered(do), 1_000, repr(() if door == "events" else []))
    for title, value in ({"-1": -1, "2**63": 2**63} | WHOLE_REFUSED).items():
        if title != "2**31":
            right = f"InvalidInput: after is {reprlib.repr(value)}: use a whole number from…"
            do = answered(lambda d, n: d.store.events(after=n))
            yield (f"events after: {title}", do, value, right)
    do = answered(lambda d, n: d.store.events(after=n))
    yield ("events after: 2**63 - 1", do, 2**63 - 1, "()")


def answered(do: Callable[["Doors", Any], object]) -> Callable[["Doors", Any], str]:
    """Return what gives the answer as text."""
    return lambda doors, value: repr(do(doors, value))


def number_kept(doors: "Doors", named_number: tuple[str, Any]) -> str:
    """Record a job with such an argument, and read that."""
    name, number = named_number
    job = doors.store.enqueue("noop", {}, **{name: number}).job
    [(other, _)] = doors.store.enqueue_many([{"kind": "noop", "payload": {}, name: number}])
    return agreed(*(getattr(j, name) for j in (job, other, *doors.store.list())))


@pytest.fixture(scope="session")
def value_edges() -> "list[Edge]":
    """Return the cases of values."""
    return list(chain(json_cases(), name_cases(), text_cases(), number_cases(), whole_cases()))
