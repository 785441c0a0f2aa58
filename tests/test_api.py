import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from jobq import Store, api, open_store
from jobq.api import MAX_BODY_BYTES, create_app, faults, problems
from jobq.worker import Worker

if TYPE_CHECKING:
    from tests.conftest import Clock, Serving, Uvicorn

JSON = {"Content-Type": "application/json"}
GOOD = {"application/json", "text/plain", "text/event-stream"}
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
YEAR_2026 = {"year": 2026, "fail_times": 0, "slow_seconds": 1.0}


def post(client: httpx.Client, key: str | None = None, **body: Any) -> httpx.Response:
    """Ask for a report, of 2026 if nothing else is said."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/reports", json={"year": 2026} | body, headers=headers)


def ask(client: httpx.Client, **body: Any) -> str:
    """Ask for a report and return the id of its job."""
    job_id: str = post(client, **body).json()["job_id"]
    return job_id


def assert_problem(
    response: httpx.Response, problem: problems.ProblemType, **members: Any
) -> dict[str, Any]:
    """Hold an answer against RFC 9457 and against the type of its problem."""
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.status_code == problem.status
    body: dict[str, Any] = response.json()
    assert (
        body
        == {
            "type": problem.uri,
            "title": problem.title,
            "status": problem.status,
            "detail": body["detail"],
            "instance": response.request.url.raw_path.decode().partition("?")[0],
        }
        | members
    )
    assert body["detail"]
    return body


# The lesson.


def test_the_lesson_by_hand(tmp_path: Path, start_uvicorn: Callable[..., "Uvicorn"]) -> None:
    """Status codes, headers and fields are the lesson's, from the request to the result."""
    with start_uvicorn().client() as client:
        first = post(client, "report-2026", slow_seconds=0)
        job_id = first.json()["job_id"]
        url = f"http://localhost:{client.base_url.port}/jobs/{job_id}"
        assert (first.status_code, first.reason_phrase) == (202, "Accepted")
        assert first.headers["Location"] == url
        assert first.text == f'{{"job_id":"{job_id}","status_url":"{url}","created":true}}'

        again = post(client, "report-2026", slow_seconds=0)
        assert (again.status_code, again.headers["Location"]) == (200, url)
        assert again.text == first.text.replace("true", "false")

        queued = client.get(url)
        assert (queued.status_code, queued.headers["Retry-After"]) == (200, "1")
        assert queued.text == (
            f'{{"id":"{job_id}","status":"queued","attempts":0,"result":null,"error":null}}'
        )

        with closing(open_store(tmp_path / "jobs.db")) as store:
            Worker(store, name="w1", say=lambda _: None).run(until_idle=True)

        done = client.get(url)
        assert "Retry-After" not in done.headers
        answer = done.json()
        assert list(answer) == ["id", "status", "attempts", "result", "error"]
        assert [answer[name] for name in ("status", "attempts", "error")] == ["done", 1, None]
        assert list(answer["result"])[:3] == ["year", "total_cents", "by"]


def test_fifty_requests_at_once_with_one_key_make_one_job(
    tmp_path: Path, start_uvicorn: Callable[..., "Uvicorn"]
) -> None:
    """Two servers that make the schema at the same time give fifty requests one job."""
    servers = [start_uvicorn() for _ in range(2)]
    together = threading.Barrier(50)
    with servers[0].client() as one, servers[1].client() as other:

        def post_together(number: int) -> httpx.Response:
            together.wait()
            return post((one, other)[number % 2], "k")

        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(post_together, range(50)))

    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [202]
    assert [a.status_code for a in answers if a.json()["created"]] == [202]
    (job_id,) = {answer.json()["job_id"] for answer in answers}
    assert {a.headers["Location"].partition("/jobs/")[2] for a in answers} == {job_id}
    with closing(open_store(tmp_path / "jobs.db")) as store:
        assert [job.id for job in store.list()] == [job_id]


def test_a_store_that_a_worker_made_is_served(
    tmp_path: Path, start_uvicorn: Callable[..., "Uvicorn"]
) -> None:
    """A worker that came before the API has made the schema; the job it did is answered for."""
    with closing(open_store(tmp_path / "jobs.db")) as store:
        job = store.enqueue("noop", {}).job
        Worker(store, name="w1", say=lambda _: None).run(until_idle=True)
    with start_uvicorn().client() as client:
        assert client.get(f"/jobs/{job.id}").json()["status"] == "done"


# Asking for a report.


def test_the_job_holds_what_was_asked_for(
    serve: Callable[[FastAPI], httpx.Client], store: Store
) -> None:
    """The payload is the whole request with its defaults; attempts are the app's to choose."""
    job = store.get(ask(serve(create_app(store, max_attempts=5))))
    assert job is not None
    assert (job.kind, job.payload, job.max_attempts) == ("sales_report", YEAR_2026, 5)


def test_without_a_key_each_request_makes_a_job(client: httpx.Client) -> None:
    """Two equal requests without a key are two jobs."""
    assert ask(client) != ask(client)


@pytest.mark.parametrize(
    "body",
    [
        {"year": "2026", "fail_times": "0", "slow_seconds": "1"},
        {"year": 2026.0, "fail_times": 0.0, "slow_seconds": 1},
    ],
)
def test_whole_numbers_may_be_written_otherwise(
    client: httpx.Client, store: Store, body: dict[str, Any]
) -> None:
    """As in the lesson, "2026" and 2026.0 are the year 2026, and stored as that."""
    job = store.get(ask(client, **body))
    assert job is not None
    assert json.dumps(job.payload) == json.dumps(YEAR_2026)


@pytest.mark.parametrize("host", ["localhost", "jobs.example:8718", "[::1]:8718"])
def test_the_location_is_on_the_host_that_was_called(
    serve: Callable[[FastAPI], httpx.Client], store: Store, host: str
) -> None:
    """Location and status_url are absolute, by the name by which the client knows the server."""
    client = serve(create_app(store, allowed_hosts=["jobs.example"]))
    answer = client.post("/reports", json={"year": 2026}, headers={"Host": host})
    assert answer.headers["Location"] == answer.json()["status_url"]
    assert answer.headers["Location"] == f"http://{host}/jobs/{answer.json()['job_id']}"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["year"]),
        ({"year": 1999}, ["year"]),
        ({"year": 2101}, ["year"]),
        ({"year": 2026.5}, ["year"]),
        ({"year": True}, ["year"]),
        ({"year": None}, ["year"]),
        ({"year": [2026]}, ["year"]),
        ({"year": 10**4000}, ["year"]),
        ({"year": 2026, "fail_times": -1}, ["fail_times"]),
        ({"year": 2026, "fail_times": 6}, ["fail_times"]),
        ({"year": 2026, "fail_times": True}, ["fail_times"]),
        ({"year": 2026, "slow_seconds": -0.1}, ["slow_seconds"]),
        ({"year": 2026, "slow_seconds": 60.1}, ["slow_seconds"]),
        ({"year": 2026, "slow_seconds": False}, ["slow_seconds"]),
        ({"year": 2026, "slow_seconds": "nan"}, ["slow_seconds"]),
        ({"year": 2026, "slow_seconds": float("nan")}, ["slow_seconds"]),
        ({"year": 2026, "slow_seconds": float("inf")}, ["slow_seconds"]),
        ({"year": 2026, "fail_time": 2}, ["fail_time"]),
        ({"year": 1999, "fail_times": 9, "x": 1}, ["year", "fail_times", "x"]),
        ([], ["body"]),
        (2026, ["body"]),
        (None, ["body"]),
        ({"year": 2026, "\ud800": 1}, ["body"]),
    ],
)
def test_every_faulty_field_is_named(
    client: httpx.Client, store: Store, body: Any, fields: list[str]
) -> None:
    """A field that breaks a rule, or that nobody reads, is refused by name; nothing is stored."""
    answer = client.post("/reports", content=json.dumps(body), headers=JSON)
    errors = answer.json()["errors"]
    assert_problem(answer, problems.INVALID_FIELDS, errors=errors)
    assert [error["field"] for error in errors] == fields
    assert answer.json()["detail"] == "; ".join(f"{e['field']} {e['detail']}" for e in errors)
    assert store.list() == []


def test_a_faulty_field_is_shown_with_its_value_and_rule(client: httpx.Client) -> None:
    """The value is shown as it was written, a long one in part."""
    body = {"year": 1999, "fail_times": True, "slow_seconds": "x" * 99, "fail_time": 2}
    errors = client.post("/reports", json=body).json()["errors"]
    assert [error["detail"] for error in errors] == [
        "is 1999: input should be greater than or equal to 2000",
        "is true: use a number",
        f'is "{"x" * 39}…: input should be a valid number, unable to parse string as a number',
        "is no field: see /openapi.json",
    ]


def test_an_answer_names_a_bounded_number_of_faults(client: httpx.Client) -> None:
    """A thousand faults do not make an answer of a thousand lines."""
    answer = client.post("/reports", json={f"x{n}": n for n in range(1000)})
    assert len(answer.json()["errors"]) == faults.MAX_FAULTS


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"year=2026",
        b"\xff\xfe",
        b'{"year": "\xff"}',
        b'{"year": ' + b"9" * 5000 + b"}",
        b"[" * 20_000 + b"]" * 20_000,
    ],
    ids=["cut", "form", "utf-16", "not utf-8", "5000 digits", "20000 deep"],
)
def test_a_body_that_cannot_be_read_is_malformed(client: httpx.Client, body: bytes) -> None:
    """What the JSON parser cannot read is the client's fault, not the server's."""
    answer = client.post("/reports", content=body, headers=JSON)
    assert_problem(answer, problems.MALFORMED_BODY)


@pytest.mark.parametrize("depth", [100, 1500])
def test_a_deeply_nested_value_is_refused(client: httpx.Client, depth: int) -> None:
    """Whether the parser reads it or gives up depends on the Python; an error of ours it is not."""
    answer = client.post("/reports", content=b'{"year": %s}' % nested(depth), headers=JSON)
    assert answer.status_code in {400, 422}
    assert answer.headers["Content-Type"] == problems.PROBLEM_JSON


def nested(depth: int) -> bytes:
    """Return lists within lists as JSON."""
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
def test_a_body_has_to_be_called_json(client: httpx.Client, headers: dict[str, str]) -> None:
    """A body of another type is not guessed at: so no form of a foreign web page makes jobs."""
    answer = client.post("/reports", content=b'{"year": 2026}', headers=headers)
    assert_problem(answer, problems.NOT_JSON)


def test_a_missing_body_is_named(client: httpx.Client) -> None:
    """Without a body, the body is what is missing."""
    answer = client.post("/reports")
    missing = [{"field": "body", "detail": "is missing"}]
    assert_problem(answer, problems.INVALID_FIELDS, errors=missing)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_read_up_to_a_limit(client: httpx.Client, *, chunked: bool) -> None:
    """A longer body is refused, whether its length was declared or not; one byte less is read."""
    blank = b" " * (MAX_BODY_BYTES - len(b'{"year": 2026}'))

    def post(body: bytes) -> httpx.Response:
        content = iter([body[:9], body[9:]]) if chunked else body
        return client.post("/reports", content=content, headers=JSON)

    assert post(b'{"year": 2026}' + blank).status_code == 202
    assert_problem(post(b'{"year": 2026}' + blank + b" "), problems.BODY_TOO_LARGE)


# The idempotency key.


@pytest.mark.parametrize(
    "key", [b"", b"x" * 256, b"a\tb", "é".encode(), b"\xff", b"\xc3\x28"], ids=repr
)
def test_a_key_that_is_none_is_refused(client: httpx.Client, store: Store, key: bytes) -> None:
    """An empty, over-long or unprintable key is refused, whatever its bytes."""
    headers = [(b"Idempotency-Key", key)]
    answer = client.post("/reports", json={"year": 2026}, headers=headers)
    assert "use 1 to 255" in assert_problem(answer, problems.INVALID_INPUT)["detail"]
    assert store.list() == []


@pytest.mark.parametrize("key", ["x", "x" * 255, '"8e03978e-40d5"', "~ ~"])
def test_a_key_is_taken_as_it_stands(client: httpx.Client, store: Store, key: str) -> None:
    """Every printable key is a key, and quotes belong to it."""
    assert post(client, key).status_code == 202
    assert [job.idempotency_key for job in store.list()] == [key]


def test_two_keys_are_refused(client: httpx.Client) -> None:
    """A request with two keys does not say which one counts, also when they are equal."""
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "a")]
    answer = client.post("/reports", json={"year": 2026}, headers=headers)
    assert "send it once" in assert_problem(answer, problems.INVALID_INPUT)["detail"]


@pytest.mark.parametrize(
    ("body", "differing"),
    [
        ({"year": 2025}, ["year"]),
        ({"year": 2026, "fail_times": 1}, ["fail_times"]),
        (
            {"year": 2000, "fail_times": 1, "slow_seconds": 0},
            ["year", "fail_times", "slow_seconds"],
        ),
    ],
)
def test_a_key_belongs_to_one_request(
    client: httpx.Client, store: Store, body: dict[str, Any], differing: list[str]
) -> None:
    """The same key with another body is refused, with the fields that differ."""
    post(client, "k")
    answer = post(client, "k", **body)
    assert_problem(answer, problems.IDEMPOTENCY_CONFLICT, differing=differing)
    assert len(store.list()) == 1


def test_equal_requests_may_be_written_differently(client: httpx.Client) -> None:
    """A default that is left out and one that is written out are the same request."""
    assert post(client, "k").status_code == 202
    assert post(client, "k", year="2026", fail_times=0, slow_seconds=1).status_code == 200


# Polling.


def test_a_running_job_is_to_be_asked_for_in_a_second(client: httpx.Client, store: Store) -> None:
    """A running job says so, with Retry-After 1."""
    job_id = ask(client)
    store.claim("w1")
    answer = client.get(f"/jobs/{job_id}")
    assert answer.headers["Retry-After"] == "1"
    assert answer.json() == {
        "id": job_id,
        "status": "running",
        "attempts": 1,
        "result": None,
        "error": None,
    }


@pytest.mark.parametrize(
    ("left", "seconds"),
    [(-100, "1"), (0, "1"), (0.25, "1"), (1, "1"), (1.25, "2"), (7.5, "8"), (3600, "3600")],
)
def test_a_job_that_waits_is_to_be_asked_for_when_it_may_run(
    client: httpx.Client, store: Store, clock: "Clock", left: float, seconds: str
) -> None:
    """Retry-After follows run_after: whole seconds, rounded up, at least 1."""
    job = store.enqueue("noop", {}, run_after=clock.now + left).job
    assert client.get(f"/jobs/{job.id}").headers["Retry-After"] == seconds


def test_a_job_that_is_tried_again_tells_why(client: httpx.Client, store: Store) -> None:
    """Between two attempts a job is queued and has the error of the last one."""
    job_id = ask(client)
    job = store.claim("w1")
    assert job is not None
    store.fail(job, "upstream timeout (simulated, attempt 1)")
    answer = client.get(f"/jobs/{job_id}")
    assert answer.headers["Retry-After"] == "1"
    assert answer.json() == {
        "id": job_id,
        "status": "queued",
        "attempts": 1,
        "result": None,
        "error": "upstream timeout (simulated, attempt 1)",
    }


def test_a_failed_job_is_not_to_be_asked_for_again(client: httpx.Client, store: Store) -> None:
    """A failed job has its error and no Retry-After."""
    job_id = ask(client)
    job = store.claim("w1")
    assert job is not None
    store.fail(job, "no such year", final=True)
    answer = client.get(f"/jobs/{job_id}")
    assert "Retry-After" not in answer.headers
    assert (answer.json()["status"], answer.json()["error"]) == ("failed", "no such year")


@pytest.mark.parametrize(
    "result", [2**70, -(10**3000), 0.1, 1e300, "é\u2028😀", [[{}], None, False], {"": "\x7f"}]
)
def test_a_result_comes_as_the_worker_gave_it(
    client: httpx.Client, store: Store, result: Any
) -> None:
    """No digit and no character is lost on the way."""
    job_id = ask(client)
    job = store.claim("w1")
    assert job is not None
    store.finish(job, result)
    answer = client.get(f"/jobs/{job_id}")
    assert answer.json()["result"] == result


def test_the_attempts_tell_of_a_crash(client: httpx.Client, store: Store, clock: "Clock") -> None:
    """Each attempt has its worker, its times in RFC 3339 and its outcome, null while it runs."""
    job_id = ask(client)
    assert client.get(f"/jobs/{job_id}/attempts").json() == {"attempts": []}
    store.claim("w1", lease_seconds=2)
    clock.move(2.25)
    store.claim("w2")
    crashed, running = client.get(f"/jobs/{job_id}/attempts").json()["attempts"]
    assert crashed == {
        "number": 1,
        "worker": "w1",
        "started_at": "1970-01-12T13:46:40.000000Z",
        "ended_at": "1970-01-12T13:46:42.000000Z",
        "outcome": "crashed",
        "error": "the lease of w1 ran out without a heartbeat",
    }
    assert running == {
        "number": 2,
        "worker": "w2",
        "started_at": "1970-01-12T13:46:42.250000Z",
        "ended_at": None,
        "outcome": None,
        "error": None,
    }


# What goes wrong.


@pytest.mark.parametrize("path", ["/jobs/no-such-id", "/jobs/no-such-id/attempts"])
def test_an_unknown_job_is_not_found(client: httpx.Client, path: str) -> None:
    """An id that no job has is named."""
    assert '"no-such-id"' in assert_problem(client.get(path), problems.UNKNOWN_JOB)["detail"]


@pytest.mark.parametrize("job_id", ["%00", "%FF", "%F0%9F%98%80", "x" * 5000, "'", "..%2F"])
def test_an_id_may_be_anything(client: httpx.Client, job_id: str) -> None:
    """Whatever stands in the place of an id, the answer is a 404."""
    answer = client.get(f"/jobs/{job_id}?query=%FF")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, problems.PROBLEM_JSON)


def test_an_unknown_path_is_not_found(client: httpx.Client) -> None:
    """What HTTP says about a wrong path is said in the same form."""
    blank = problems.ProblemType("about:blank", 404, "Not Found", "")
    for path in ("/", "/report", "/reports/", "/problems/none", "/a%20b"):
        body = assert_problem(client.get(path), blank)
        assert body["detail"] == f"GET {path} is not served: see /openapi.json"


def test_a_wrong_method_is_refused_with_the_right_ones(client: httpx.Client) -> None:
    """A 405 has Allow, and says the same in words."""
    answer = client.get("/reports")
    blank = problems.ProblemType("about:blank", 405, "Method Not Allowed", "")
    assert assert_problem(answer, blank)["detail"] == "GET /reports is not served: use POST"
    assert answer.headers["Allow"] == "POST"


def test_a_busy_store_is_worth_another_try(
    serve: Callable[[FastAPI], httpx.Client], opened: Callable[..., Store], tmp_path: Path
) -> None:
    """While another program holds the database, requests for jobs get a 503 with Retry-After."""
    client = serve(create_app(opened(tmp_path / "jobs.db", busy_seconds=0.01)))
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        answer = post(client)
        assert_problem(answer, problems.STORE_BUSY)
        assert answer.headers["Retry-After"] == "1"
        holder.execute("COMMIT")
        assert post(client).status_code == 202


def test_a_store_out_of_order_is_told_without_its_inside(
    serving: "Serving",
    opened: Callable[..., Store],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client learns what to do; the server's log has the error itself."""
    with serving(create_app(opened(tmp_path / "jobs.db"))) as client:
        job_id = ask(client)
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as other:
            other.execute("DROP TABLE jobs")
        answer = client.get(f"/jobs/{job_id}")
    assert_problem(answer, problems.STORE_UNAVAILABLE)
    assert "no such table" not in answer.text
    assert "no such table: jobs" in caplog.text


def test_an_unexpected_error_tells_nothing_of_the_inside(
    serving: "Serving", store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns that it was the server; the server's log has the traceback."""
    app = create_app(store)
    app.state.store = None  # a fault of the program, as there should be none
    with serving(app) as client:
        answer = client.get("/jobs/1")
    blank = problems.ProblemType("about:blank", 500, "Internal Server Error", "")
    assert_problem(answer, blank)
    assert "NoneType" not in answer.text
    assert "'NoneType' object has no attribute 'get'" in caplog.text


@pytest.mark.parametrize("problem", problems.TYPES, ids=lambda problem: problem.uri)
def test_the_type_of_a_problem_explains_itself(
    client: httpx.Client, problem: problems.ProblemType
) -> None:
    """Getting a `type` gives what it means and the mend, in plain text."""
    answer = client.get(problem.uri)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.text.startswith(f"{problem.title} ({problem.status})\n\n{problem.meaning}\n")
    assert f"Notebook {problem.notebook} tells more" in answer.text
    assert (NOTEBOOKS / f"{problem.notebook}.ipynb").is_file()


# The description.


@pytest.fixture
def document(client: httpx.Client) -> dict[str, Any]:
    """Return the OpenAPI document."""
    described: dict[str, Any] = client.get("/openapi.json").json()
    return described


def test_the_description_names_every_answer(document: dict[str, Any]) -> None:
    """Each operation has its words and its status codes, and every error is a problem."""
    statuses = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"]
            assert operation["description"]
            statuses[f"{method} {path}"] = sorted(operation["responses"])
            for status, response in operation["responses"].items():
                media_types = set(response.get("content", {}))
                if status in {"204", "304"}:
                    assert media_types == set(), (path, status)
                elif status in {"200", "202"}:
                    assert media_types <= GOOD, (path, status)
                else:
                    assert media_types == {problems.PROBLEM_JSON}, (path, status)
                assert response["description"]
    assert statuses == {
        "post /reports": ["200", "202", "400", "403", "413", "415", "422", "503", "default"],
        "post /jobs": ["200", "202", "400", "403", "413", "415", "422", "503", "default"],
        "get /jobs": ["200", "400", "401", "403", "404", "422", "503", "default"],
        "delete /jobs": ["200", "401", "403", "422", "503", "default"],
        "post /jobs/retry": ["200", "400", "401", "403", "422", "503", "default"],
        "get /jobs/{job_id}": ["200", "304", "403", "404", "500", "503", "default"],
        "get /jobs/{job_id}/attempts": ["200", "403", "404", "503", "default"],
        "get /jobs/{job_id}/events": ["200", "204", "400", "403", "404", "500", "503", "default"],
        "post /jobs/{job_id}/retry": ["200", "401", "403", "404", "409", "500", "503", "default"],
        "post /jobs/{job_id}/cancel": [
            "200",
            "202",
            "401",
            "403",
            "404",
            "409",
            "500",
            "503",
            "default",
        ],
        "get /events": ["200", "400", "401", "403", "422", "503", "default"],
        "get /stats": ["200", "401", "403", "503", "default"],
        "get /metrics": ["200", "401", "403", "503", "default"],
        "get /health": ["200", "403", "default"],
        "get /ready": ["200", "403", "503", "default"],
    }
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_description_names_the_headers(document: dict[str, Any]) -> None:
    """Idempotency-Key has its bounds; Location and Retry-After stand where they are sent."""
    post = document["paths"]["/reports"]["post"]
    (key,) = post["parameters"]
    bounds = {name: key["schema"].get(name) for name in ("type", "minLength", "maxLength")}
    assert (key["name"], key["in"], key["required"]) == ("Idempotency-Key", "header", False)
    assert bounds == {"type": "string", "minLength": 1, "maxLength": 255}
    with_headers = {
        (path, status): list(response["headers"])
        for path, operations in document["paths"].items()
        for operation in operations.values()
        for status, response in operation["responses"].items()
        if "headers" in response and status != "503"
    }
    polled = ["Retry-After", "ETag", "Preference-Applied"]
    assert with_headers == {
        ("/reports", "200"): ["Location"],
        ("/reports", "202"): ["Location"],
        ("/jobs", "200"): ["Location"],
        ("/jobs", "202"): ["Location"],
        ("/jobs/{job_id}", "200"): polled,
        ("/jobs/{job_id}", "304"): polled,
    }


def test_the_examples_are_valid(client: httpx.Client, document: dict[str, Any]) -> None:
    """The example of a request is accepted, and those of problems have the shape of a problem."""
    (request,) = document["components"]["schemas"]["ReportRequest"]["examples"]
    assert client.post("/reports", json=request).status_code == 202
    examples = [
        (status, example["value"])
        for operations in document["paths"].values()
        for operation in operations.values()
        for status, response in operation["responses"].items()
        for content in response.get("content", {}).values()
        for example in content.get("examples", {}).values()
    ]
    assert {example["type"] for _, example in examples} == {p.uri for p in problems.TYPES}
    for status, example in examples:
        assert str(example["status"]) == status
        assert problems.Problem(**example).model_dump(exclude_unset=True) == example


def test_the_page_of_the_description_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    """/docs works without a network: all that it loads comes from this server, and is there."""
    page = client.get("/docs")
    assert page.status_code == 200
    loaded = re.findall(r"""(?:src|href|url)(?:=|: )["']([^"']+)["']""", page.text)
    assert len(loaded) >= 4
    assert [(path, client.get(path).status_code) for path in loaded] == [(p, 200) for p in loaded]
    assert "//" not in "".join(loaded)


# The life of an app.


def test_an_app_leaves_the_callers_store_open(serving: "Serving", store: Store) -> None:
    """Whoever opened the store closes it."""
    with serving(create_app(store)) as client:
        job_id = ask(client)
    assert store.get(job_id) is not None


def test_the_app_of_the_settings_closes_its_store(
    serving: "Serving", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`app` opens the store of JOBQ_URL, and at shutdown SQLite folds its log into the file."""
    monkeypatch.setenv("JOBQ_URL", f"sqlite:///{tmp_path / 'other.db'}")
    monkeypatch.setenv("JOBQ_MAX_ATTEMPTS", "7")
    monkeypatch.chdir(tmp_path)
    with serving(api.app) as client:
        job_id = ask(client)
        assert (tmp_path / "other.db-wal").exists()
    assert not (tmp_path / "other.db-wal").exists()
    with closing(open_store(tmp_path / "other.db")) as store:
        job = store.get(job_id)
        assert job is not None
        assert job.max_attempts == 7
    assert api.app is api.app
    del vars(api)["app"]


def test_importing_the_module_reads_no_settings(tmp_path: Path) -> None:
    """Faulty settings do not matter, and no file is made, until `app` is asked for."""
    subprocess.run(
        [sys.executable, "-c", "import jobq.api"],
        check=True,
        cwd=tmp_path,
        env=os.environ | {"JOBQ_PORT": "none"},
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"JOBQ_PROT": "1"}, "jobq: JOBQ_PROT is no setting: use JOBQ_PORT, or unset it\n"),
        ({"JOBQ_URL": "no/such/folder.db"}, "jobq: the folder no/such does not exist"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    start_uvicorn: Callable[..., "Uvicorn"], environment: dict[str, str], said: str
) -> None:
    """With a faulty setting the server ends in one line, and no traceback."""
    server = start_uvicorn(**environment)
    line = server.wait()
    assert server.process.returncode == 1
    assert line.startswith(said)
    assert line.count("\n") == 1
