"""Edge cases: bodies, headers, paths and parameters of the API."""

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from jobq import Progress, Status
from jobq.api import MAX_BODY_BYTES, problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges import Doors, Edge

JSON = {"Content-Type": "application/json"}
SHOWN_HEADERS = {  # all but those of the day and of the server program
    *("content-type", "location", "retry-after", "allow", "etag", "cache-control"),
    *("preference-applied", "www-authenticate"),
}


def heard(answer: httpx.Response) -> str:
    """Return all that an answer says."""
    headers = {k: v for k, v in answer.headers.items() if k in SHOWN_HEADERS}
    whole = f"{answer.text} {headers}"
    if headers.get("content-type") == problems.PROBLEM_JSON and answer.text:
        problem = answer.json()
        kind = problem["type"].removeprefix("/problems/")
        return f"{answer.status_code} {kind}: {problem['detail']} {whole}"
    return f"{answer.status_code} {whole}"


def posted(doors: "Doors", what: tuple[bytes, dict[str, Any]]) -> str:
    """Send a body as it is, and tell what was recorded."""
    body, headers = what
    answer = doors.client.post("/jobs", content=body, headers=JSON | headers)
    jobs = [
        (job.kind, job.payload, job.idempotency_key, job.run_after, job.priority, job.max_attempts)
        for job in doors.store.list()
    ]
    if not jobs:
        return heard(answer)
    return f"{answer.status_code} {jobs} {heard(answer)} {heard(doors.client.get('/jobs'))}"


def recorded(payload: str, run_after: float = 0.0, key: str | None = None) -> str:
    """Return how an answer begins that tells of a job."""
    return f"202 [('noop', {payload}, {key!r}, {run_after!r}, 0, 3)] …"


def refused_for(problem: str, status: int) -> str:
    """Return how an answer begins that tells of a problem, and that nothing was recorded."""
    return f"{status} {problem}: …"


BODIES = {  # what JSON can say, and what is recorded of it
    "2**70": (b'{"v":1180591620717411303424}', "{'v': 1180591620717411303424}"),
    "2**53 + 1": (b'{"v":9007199254740993}', "{'v': 9007199254740993}"),
    "2**53 + 1 with a point": (b'{"v":9007199254740993.0}', "{'v': 9007199254740992.0}"),
    "0.1 + 0.2": (b'{"v":0.30000000000000004}', "{'v': 0.30000000000000004}"),
    "-0.0": (b'{"v":-0.0}', "{'v': -0.0}"),
    "-0": (b'{"v":-0}', "{'v': 0}"),
    "5e-324": (b'{"v":5e-324}', "{'v': 5e-324}"),
    "1E+308": (b'{"v":1E+308}', "{'v': 1e+308}"),
    "member twice": (b'{"v":1,"w":2,"v":3}', "{'v': 3, 'w': 2}"),
    "order of members": (
        b'{"b":1,"a":{"d":1,"c":2},"":3}',
        "{'b': 1, 'a': {'d': 1, 'c': 2}, '': 3}",
    ),
    "escaped pair": (b'{"v":"\\ud83d\\ude00"}', "{'v': '😀'}"),
    "escaped letter": (b'{"\\u00e9":"e\\u0301"}', "{'\u00e9': 'e\u0301'}"),
    "line separators": ('{"v":"\u2028\u0085"}'.encode(), r"{'v': '\u2028\x85'}"),
    "blanks": (b' {\r\n"v"\t: [ ] } ', "{'v': []}"),
    "98 deep": (b'{"v":' + b"[" * 98 + b"]" * 98 + b"}", f"{{'v': {'[' * 98}{']' * 98}}}"),
}
NO_BODIES = {
    "NaN": (b'{"v":NaN}', "invalid-fields", 422),
    "-Infinity": (b'{"v":[-Infinity]}', "invalid-fields", 422),
    "1e400": (b'{"v":1e400}', "invalid-fields", 422),
    "NUL": (b'{"v":"a\\u0000"}', "invalid-fields", 422),
    "NUL in a member's name": (b'{"\\u0000":1}', "invalid-fields", 422),
    "lone surrogate": (b'{"v":"\\ud800"}', "invalid-fields", 422),
    "surrogates in the wrong order": (b'{"v":"\\ude00\\ud83d"}', "invalid-fields", 422),
    "4,000 digits": (b'{"v":' + b"9" * 4_000 + b"}", "invalid-fields", 422),
    "5,000 digits": (b'{"v":' + b"9" * 5_000 + b"}", "malformed-body", 400),
    "101 deep": (b'{"v":' + b"[" * 101 + b"]" * 101 + b"}", "invalid-fields", 422),
    "list": (b"[]", "invalid-fields", 422),
    "null": (b"null", "invalid-fields", 422),
}
RAW = {  # the whole body
    "empty": (b"", "invalid-fields", 422),
    "Latin-1": (b'{"kind":"noop","payload":{"v":"\xe9"}}', "malformed-body", 400),
    "surrogates in UTF-8": (
        b'{"kind":"noop","payload":{"v":"\xed\xa0\x80"}}',
        "invalid-fields",
        422,
    ),
    "half a character": (b'{"kind":"noop","payload":{"v":"\xf0\x9f"}}', "malformed-body", 400),
    "control character": (b'{"kind":"noop","payload":{"v":"\x01"}}', "malformed-body", 400),
    "NUL byte": (b'{"kind":"noop","payload":{"v":"\x00"}}', "malformed-body", 400),
    "a byte over the limit": (b" " * (MAX_BODY_BYTES + 1), "body-too-large", 413),
    "5 MB": (b'{"kind":"noop","payload":{"v":"' + b"x" * 5_000_000 + b'"}}', "body-too-large", 413),
    "largest": (b'{"kind":"' + b"x" * (MAX_BODY_BYTES - 11) + b'"}', "invalid-fields", 422),
    "kind of no handler": ('{"kind":"größe"}'.encode(), "invalid-fields", 422),
    "kind in capitals": (b'{"kind":"NOOP"}', "invalid-fields", 422),
    "kind with a blank": (b'{"kind":"noop "}', "invalid-fields", 422),
    "kind with NUL": (b'{"kind":"noop\\u0000"}', "invalid-fields", 422),
    "kind of 256 characters": (b'{"kind":"' + b"x" * 256 + b'"}', "invalid-fields", 422),
    "priority 1001": (b'{"kind":"noop","priority":1001}', "invalid-fields", 422),
    "priority 2**70": (b'{"kind":"noop","priority":1180591620717411303424}', "invalid-fields", 422),
    "max_attempts 0": (b'{"kind":"noop","max_attempts":0}', "invalid-fields", 422),
    "delay of 1e400": (b'{"kind":"noop","delay_seconds":1e400}', "invalid-fields", 422),
    "delay and time": (
        b'{"kind":"noop","delay_seconds":1,"run_after":"2026-12-01T00:00:00Z"}',
        "invalid-fields",
        422,
    ),
}
TIMES: dict[str, float | None] = {  # and the seconds since 1970; None: refused
    "2026-12-24T18:00:00Z": 1_798_135_200.0,
    "2026-12-24T18:00:00.000001Z": 1_798_135_200.000001,
    "2026-12-24T18:00:00.123456Z": 1_798_135_200.123456,
    "2026-12-24T18:00:00.1234567Z": 1_798_135_200.123456,
    "2026-12-24t18:00:00z": 1_798_135_200.0,
    "2026-12-24 18:00:00Z": 1_798_135_200.0,
    "2026-12-24T18:00:00+05:45": 1_798_114_500.0,
    "2026-12-24T18:00:00-00:00": 1_798_135_200.0,
    "2026-03-29T01:59:59+01:00": 1_774_745_999.0,
    "2026-03-29T03:00:00+02:00": 1_774_746_000.0,
    "2026-10-25T02:30:00+02:00": 1_792_888_200.0,
    "2026-10-25T02:30:00+01:00": 1_792_891_800.0,
    "1970-01-01T00:00:00Z": 0.0,
    "1970-01-01T00:00:00.000001Z": 0.000001,
    "1969-12-31T23:59:59.999999Z": 0.0,
    "0001-01-01T00:00:00Z": 0.0,
    "0001-01-01T00:00:00+23:59": 0.0,
    "1582-10-10T00:00:00Z": 0.0,
    "9999-12-31T23:59:59.999999Z": 253_402_300_799.999999,
    "9999-12-31T23:59:59-23:59": 253_402_387_139.0,
    "2038-01-19T03:14:08Z": 2_147_483_648.0,
    "10000-01-01T00:00:00Z": None,
    "0000-01-01T00:00:00Z": None,
    "2016-12-31T23:59:60Z": None,
    "2026-02-29T00:00:00Z": None,
    "2026-12-24T24:00:00Z": None,
    "2026-12-24T18:00:00": None,
    "2026-12-24T18:00:00.5": None,
    "2026-12-24": None,
    "2026-12-24T18:00:00+24:00": None,
    "2026-12-24T18:00:00Z ": None,
    "2026-12-24T18:00:00 UTC": None,
    "2026-W52-4T18:00:00Z": None,
    "-infinity": None,
    "infinity": None,
    "now": None,
    "epoch": None,
    "1798135200": None,
    "": None,
}


LONG = 60  # characters of a path, from which on its case's name has less


def http_cases() -> "Iterator[Edge]":
    """Send bodies, paths and parameters."""
    for title, (payload, kept) in BODIES.items():
        body = b'{"kind":"noop","payload":%b}' % payload
        yield (f"POST payload {title}", posted, (body, {}), recorded(kept))
    for title, (payload, problem, status) in NO_BODIES.items():
        body = b'{"kind":"noop","payload":%b}' % payload
        right = refused_for(problem, status)
        yield (f"POST payload {title}", posted, (body, {}), right)
    for title, (body, problem, status) in RAW.items():
        yield (f"POST {title}", posted, (body, {}), refused_for(problem, status))
    for text, seconds in TIMES.items():
        body = json.dumps({"kind": "noop", "run_after": text}).encode()
        right = refused_for("invalid-fields", 422)
        if seconds is not None:
            right = recorded("{}", seconds)
        yield (f"POST run_after {text}", posted, (body, {}), right)
    for (method, path), code in PATHS.items():
        shown = path if len(path) < LONG else f"{path[: LONG - 20]}… ({len(path)} characters)"
        yield (f"{method} {shown}", requested, (method, path), f"{code} …")


NOOP = b'{"kind":"noop"}'
KEYS: dict[str, tuple[bytes, bool]] = {  # and whether it is taken
    "empty": (b"", False),
    "255 characters": (b"x" * 255, True),
    "256 characters": (b"x" * 256, False),
    "tab": (b"a\tb", False),
    "UTF-8": ("größe".encode(), False),
    "quotes and parameters": (b"\"';--%s :v $1", True),
}
TYPES = {
    "application/json; charset=utf-8": 202,
    "application/vnd.a+json": 202,
    "APPLICATION/JSON": 202,
    "text/plain": 415,
    "application/x-www-form-urlencoded": 415,
    "": 415,
}
GETS: dict[tuple[str, str], int] = {  # headers of a poll, and the status
    ("If-None-Match", "*"): 304,
    ("If-None-Match", '"x", W/"y"'): 200,
    ("If-None-Match", "\\"): 200,
    ("Prefer", "wait=0"): 200,
    ("Prefer", "wait=-1, wait=x, wait"): 200,
    ("Prefer", "wait=" + "9" * 200): 200,
    ("Accept", "image/png"): 200,
    ("Host", "example.org"): 403,
    ("Origin", "null"): 403,
    ("Range", "bytes=0-3"): 200,
}
STREAMS: dict[str, int] = {  # Last-Event-ID, and the status for a job that is done
    "": 200,
    "0": 200,
    "9223372036854775807": 204,
    "9223372036854775808": 400,
    "1e3": 400,
    "-1": 400,
    "x": 400,
    "٣": 400,
}
ODD_PATHS = ("%00", "%ff", "%ed%a0%80", "%20", "%25", "0" * 32, "a" * 5_000, "none", "%F0%9F%A6%80")
PATHS: dict[tuple[str, str], int] = {
    **{("GET", f"/jobs/{path}"): 404 for path in ODD_PATHS},
    **{("GET", f"/jobs/{path}/attempts"): 404 for path in ODD_PATHS},
    **{("GET", f"/jobs/{path}/events"): 404 for path in ODD_PATHS},
    **{("POST", f"/jobs/{path}/cancel"): 404 for path in ODD_PATHS},
    **{("POST", f"/jobs/{path}/retry"): 404 for path in ODD_PATHS},
    ("GET", "/jobs/"): 404,
    ("GET", "/jobs//attempts"): 404,
    ("GET", "/jobs/a%2Fb"): 404,
    ("GET", "/nothing"): 404,
    ("PUT", "/jobs"): 405,
    ("HEAD", "/jobs/none"): 404,
    ("GET", "/stats"): 200,
    ("GET", "/health"): 200,
    ("GET", "/jobs?kind=gr%C3%B6%C3%9Fe"): 200,
    ("GET", "/jobs?kind=%F0%9F%A6%80"): 200,
    ("GET", "/jobs?kind=" + "x" * 255): 200,
    ("GET", "/jobs?kind=" + "x" * 256): 422,
    ("GET", "/jobs?kind="): 422,
    ("GET", "/jobs?kind=%20"): 400,
    ("GET", "/jobs?kind=%00"): 400,
    ("GET", "/jobs?kind=a%00b"): 400,
    ("GET", "/jobs?kind=%ff"): 200,
    ("GET", "/jobs?status=Queued"): 422,
    ("GET", "/jobs?status=%00"): 422,
    ("GET", "/jobs?limit=0"): 422,
    ("GET", "/jobs?limit=500"): 200,
    ("GET", "/jobs?limit=501"): 422,
    ("GET", "/jobs?limit=1e2"): 422,
    ("GET", "/jobs?before=none"): 404,
    ("GET", "/jobs?before=%00"): 404,
    ("GET", "/jobs?before="): 404,
    ("GET", "/jobs?befor=1"): 422,
    ("GET", "/events?after=-1"): 422,
    ("GET", "/events?after=9223372036854775808"): 422,
    ("POST", "/jobs/retry"): 200,
    ("POST", "/jobs/retry?kind=%00"): 400,
    ("POST", "/jobs/retry?status=done"): 422,
    ("DELETE", "/jobs"): 422,
    ("DELETE", "/jobs?older_than_seconds=0"): 200,
    ("DELETE", "/jobs?older_than_seconds=5e-324"): 200,
    ("DELETE", "/jobs?older_than_seconds=3153600000"): 200,
    ("DELETE", "/jobs?older_than_seconds=3153600001"): 422,
    ("DELETE", "/jobs?older_than_seconds=nan"): 422,
    ("DELETE", "/jobs?older_than_seconds=1e400"): 422,
    ("DELETE", "/jobs?older_than_seconds=0&status=queued"): 422,
}


def requested(doors: "Doors", what: tuple[str, str]) -> str:
    """Ask for a path, while there is a job that is queued."""
    doors.job(Status.QUEUED)
    answer = heard(doors.client.request(*what))
    changed = doors.refusing and doors.changed()
    return f"changed the store and answered {answer}" if changed else answer


def header_cases() -> "Iterator[Edge]":
    """Send odd headers."""
    for title, (key, taken) in KEYS.items():
        right = recorded("{}", key=key.decode()) if taken else refused_for("invalid-input", 400)
        headers = {"Idempotency-Key": key}
        yield (f"POST with a key: {title}", posted, (NOOP, headers), right)
    for title, status in TYPES.items():
        sent = {"Content-Type": title}
        yield (f"POST as {title!r}", posted, (NOOP, sent), f"{status} …")
    for (name, value), status in GETS.items():
        yield (f"GET with {name}: {value[:30]}", polled, {name: value}, f"{status} …")
    yield ("GET with the ETag", polled_again, None, "304 …")
    for value, status in STREAMS.items():
        yield (f"GET events after {value!r}", followed, value, f"{status} …")
    yield (
        "POST with a key twice",
        posted_twice,
        None,
        "202 True, 200 False, 422 idempotency-conflict: …",
    )


def polled(doors: "Doors", headers: dict[str, str]) -> str:
    """Poll for a job."""
    path = f"/jobs/{doors.job(Status.FAILED).id}"
    return heard(doors.client.get(path, headers=headers))


def polled_again(doors: "Doors", _: None) -> str:
    """Poll for a job that stands as it did."""
    path = f"/jobs/{doors.store.enqueue('noop', {}, run_after=1_000_007.5).job.id}"
    tag = doors.client.get(path).headers["ETag"]
    return heard(doors.client.get(path, headers={"If-None-Match": tag}))


def followed(doors: "Doors", last: str) -> str:
    """Follow a job that is done."""
    job = doors.store.heartbeat(doors.claimed(), 5.0, Progress(1, 3, "größe"))
    doors.store.finish(job, None)
    headers = {b"Last-Event-ID": last.encode()}
    return heard(doors.client.get(f"/jobs/{job.id}/events", headers=headers))


def posted_twice(doors: "Doors", _: None) -> str:
    """Ask with a key, again, and for something else."""
    bodies = [b'{"kind":"noop","payload":{"v":1}}'] * 2 + [b'{"kind":"noop","payload":{"v":1.0}}']
    first, again, other = (
        doors.client.post("/jobs", content=body, headers=JSON | {"Idempotency-Key": "k"})
        for body in bodies
    )
    codes = [f"{a.status_code} {a.json()['created']}" for a in (first, again)]
    return ", ".join([*codes, heard(other)])


OPERATORS = {
    "cancel": {Status.QUEUED: 200, Status.RUNNING: 202, Status.CANCELLED: 200},
    "retry": {Status.FAILED: 200, Status.CANCELLED: 200},
}


def operator_cases() -> "Iterator[Edge]":
    """Cancel and retry jobs of every status."""
    for verb, answers in OPERATORS.items():
        for status in Status:
            right = f"{answers.get(status, '409 wrong-status:')} …"
            yield (f"POST {verb}: {status}", operated_remotely, (verb, status), right)


def operated_remotely(doors: "Doors", what: tuple[str, Status]) -> str:
    """Cancel or retry a job over HTTP."""
    verb, status = what
    return heard(doors.client.post(f"/jobs/{doors.job(status).id}/{verb}"))


@pytest.fixture(scope="session")
def http_edges() -> "list[Edge]":
    """Return the cases of the API."""
    return list(chain(http_cases(), header_cases(), operator_cases()))
