"""jobq.api.submitting: a job of any kind is asked for, or refused with every fault named."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from jobq import Store
from jobq.api import create_app, problems
from jobq.kinds import builtin
from jobq.strictjson import MAX_NAME

if TYPE_CHECKING:
    from tests.conftest import Clock, Refused

NAP = {"kind": "nap", "payload": {"seconds": 2}}


def post(client: httpx.Client, key: str | None = None, **body: Any) -> httpx.Response:
    """Ask for a job, a nap if nothing else is said."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    return client.post("/jobs", content=json.dumps(NAP | body), headers=headers)


def test_a_job_is_recorded_as_it_was_asked_for(client: httpx.Client, store: Store) -> None:
    """Kind, payload, priority and attempts are the request's, and Location leads to the job."""
    answer = post(client, "k", priority=-3, max_attempts=7)
    assert (answer.status_code, answer.json()["created"]) == (202, True)
    job = store.get(answer.json()["job_id"])
    assert job is not None
    assert (job.kind, job.payload, job.idempotency_key) == ("nap", {"seconds": 2.0}, "k")
    assert (job.priority, job.max_attempts, job.run_after) == (-3, 7, 0.0)
    assert client.get(answer.headers["Location"]).json()["id"] == job.id


def test_what_is_left_out_has_the_defaults_of_the_kind_and_of_the_server(
    serve: Callable[[FastAPI], httpx.Client], store: Store
) -> None:
    """A short request makes the job that the lesson's request makes."""
    client = serve(create_app(store, max_attempts=5))
    post(client, kind="sales_report", payload={"year": 2026})
    client.post("/reports", json={"year": 2026})
    one, other = store.list()
    assert (one.kind, one.payload, one.max_attempts) == (other.kind, other.payload, 5)


def test_a_kind_without_rules_takes_any_payload(client: httpx.Client, store: Store) -> None:
    """What no rule is about comes back as it went in."""
    payload = {"a": [1, 1.5, None, {"é\u2028😀": 10**300}], "": ""}
    job = store.get(post(client, kind="noop", payload=payload).json()["job_id"])
    assert job is not None
    assert job.payload == payload


@pytest.mark.parametrize("year", [2026, 2026.0])
def test_a_whole_number_may_have_a_point(client: httpx.Client, store: Store, year: float) -> None:
    """To JSON 2026.0 is 2026, also for kinds that tell integers from floats."""
    payload = {"year": year, "slow_seconds": 2}
    job = store.get(post(client, kind="sales_report", payload=payload).json()["job_id"])
    assert job is not None
    kept = {"year": 2026, "fail_times": 0, "slow_seconds": 2.0}
    assert json.dumps(job.payload) == json.dumps(kept)


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ({"delay_seconds": 90}, 1_000_090.0),
        ({"delay_seconds": 0.25}, 1_000_000.25),
        ({"delay_seconds": 0}, 0.0),
        ({"run_after": "1970-01-12T13:50:00Z"}, 1_000_200.0),
        ({"run_after": "1970-01-12T15:50:00.500+02:00"}, 1_000_200.5),
        ({"run_after": "1970-01-12t13:50:00z"}, 1_000_200.0),
        ({"run_after": "1969-12-31T23:59:59Z"}, 0.0),
        ({"run_after": "0001-01-01T00:00:00+23:59"}, 0.0),
        ({"run_after": "9999-12-31T23:59:59-23:59"}, 253_402_387_139.0),
        ({"run_after": None}, 0.0),
    ],
)
def test_a_job_may_be_put_off(
    client: httpx.Client, store: Store, clock: "Clock", body: dict[str, Any], at: float
) -> None:
    """A delay counts from now by the clock of the store; a time is a time, wherever it is read."""
    assert clock.now == 1_000_000.0
    answer = post(client, **body)
    job = store.get(answer.json()["job_id"])
    assert job is not None
    assert job.run_after == at
    (listed,) = client.get("/jobs").json()["jobs"]
    assert (listed["run_after"] is None) == (at == 0)
    assert client.get(answer.headers["Location"]).status_code == 200


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"kind": "npa"}, ["kind"]),
        ({"kind": ""}, ["kind"]),
        ({"kind": "x" * (MAX_NAME + 1)}, ["kind"]),
        ({"kind": "nap\0"}, ["kind"]),
        ({"kind": "\ud800"}, ["kind"]),
        ({"kind": 5}, ["kind"]),
        ({"payload": {}}, ["payload.seconds"]),
        ({"payload": {"seconds": "2"}}, ["payload.seconds"]),
        ({"payload": {"seconds": True}}, ["payload.seconds"]),
        ({"payload": {"seconds": -1, "second": 1}}, ["payload.seconds", "payload.second"]),
        ({"payload": []}, ["payload"]),
        ({"payload": None}, ["payload"]),
        ({"kind": "sales_report", "payload": {"year": "2026"}}, ["payload.year"]),
        ({"priority": 1.5}, ["priority"]),
        ({"priority": True}, ["priority"]),
        ({"priority": 1_001}, ["priority"]),
        ({"max_attempts": 0}, ["max_attempts"]),
        ({"max_attempts": True}, ["max_attempts"]),
        ({"max_attempts": 10**30}, ["max_attempts"]),
        ({"delay_seconds": -1}, ["delay_seconds"]),
        ({"delay_seconds": float("nan")}, ["delay_seconds"]),
        ({"delay_seconds": 1e300}, ["delay_seconds"]),
        ({"run_after": "tomorrow"}, ["run_after"]),
        ({"run_after": "2026-12-01"}, ["run_after"]),
        ({"run_after": "2026-12-01T00:00:00"}, ["run_after"]),
        ({"run_after": "2026-13-01T00:00:00Z"}, ["run_after"]),
        ({"run_after": "٢٠٢٦-12-01T00:00:00Z"}, ["run_after"]),
        ({"run_after": 1_800_000_000}, ["run_after"]),
        ({"run_after": "1800000000"}, ["run_after"]),
        ({"run_after": True}, ["run_after"]),
        ({"run_after": "2026-12-24T18:00:00Z", "delay_seconds": 1}, ["body"]),
        ({"max_attempt": 1}, ["max_attempt"]),
        ({"kind": "x" * 999, "priority": "x", "also": 1}, ["kind", "priority", "also"]),
    ],
)
def test_every_faulty_field_is_named(
    client: httpx.Client, store: Store, refused: "Refused", body: dict[str, Any], fields: list[str]
) -> None:
    """Fields of the request, and of the kind's payload, are refused by name; nothing is stored."""
    answer = post(client, **body)
    refused(answer, problems.INVALID_FIELDS)
    assert [error["field"] for error in answer.json()["errors"]] == fields
    assert store.list() == []


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        ({"x": float("nan")}, "payload.x is nan: JSON has no such number"),
        ({"x": [float("-inf")]}, "payload.x[0] is -inf"),
        ({"x": "a\0b"}, "payload.x holds a NUL character"),
        ({"\ud83d": 1}, "a key of payload holds half of a surrogate pair"),
        ({"x": 10**4000}, "payload.x has over 10,000 bits"),
        ({"{why}": float("nan")}, "payload.{why} is nan"),
    ],
    ids=["nan", "infinity", "nul", "surrogate", "integer", "braces"],
)
def test_a_payload_that_json_cannot_carry_is_refused(
    client: httpx.Client, store: Store, refused: "Refused", payload: dict[str, Any], rule: str
) -> None:
    """Also where the kind has no rules, what would come back changed is refused with the place."""
    answer = post(client, kind="noop", payload=payload)
    assert rule in refused(answer, problems.INVALID_FIELDS)
    assert [error["field"] for error in answer.json()["errors"]] == ["payload"]
    assert store.list() == []


def test_an_unknown_kind_is_answered_with_the_known_ones(client: httpx.Client) -> None:
    """Whoever misspells a kind is shown how they are spelt."""
    (error,) = post(client, kind="npa").json()["errors"]
    assert error == {"field": "kind", "detail": f'is "npa": use one of {", ".join(KINDS)}'}


KINDS = builtin.kinds()


@pytest.mark.parametrize("body", [{"priority": 5}, {"delay_seconds": 9}, {"max_attempts": 9}])
def test_a_key_gives_its_job_again(
    client: httpx.Client, store: Store, body: dict[str, Any]
) -> None:
    """A request that comes again means the same job, whatever it says about when to run it."""
    first = post(client, "k")
    again = post(client, "k", **body)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == first.json() | {"created": False}
    assert len(store.list()) == 1


@pytest.mark.parametrize(
    ("body", "differing"),
    [
        ({"payload": {"seconds": 3}}, ["seconds"]),
        ({"kind": "noop", "payload": {"seconds": 2.0}}, ["kind"]),
    ],
)
def test_a_key_is_for_one_request(
    client: httpx.Client, refused: "Refused", body: dict[str, Any], differing: list[str]
) -> None:
    """With another kind or payload the key is refused, and the differences are named."""
    post(client, "k")
    answer = post(client, "k", **body)
    refused(answer, problems.IDEMPOTENCY_CONFLICT)
    assert answer.json()["differing"] == differing


def test_a_key_is_the_same_for_reports_and_jobs(client: httpx.Client) -> None:
    """/reports is /jobs for one kind: there is one room of keys."""
    report = {"kind": "sales_report", "payload": {"year": 2026}}
    first = post(client, "k", **report)
    again = client.post("/reports", json={"year": 2026}, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (202, 200)


def test_a_payload_beyond_the_stores_limit_is_refused(
    serve: Callable[[FastAPI], httpx.Client],
    opened: Callable[..., Store],
    url: str,
    refused: "Refused",
) -> None:
    """A store may take less than a request may hold: its rule is told, and nothing is stored."""
    store = opened(url, max_bytes=100)
    answer = post(serve(create_app(store)), kind="noop", payload={"x": "y" * 100})
    assert "over the limit of 100" in refused(answer, problems.INVALID_FIELDS)
    assert store.list() == []
