"""jobq.api.health: machines learn whether the server lives and serves, and how much there is."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from jobq import Status, Store
from jobq.api import create_app, problems

if TYPE_CHECKING:
    from tests.conftest import Clock, Held, Refused

PATHS = ("/health", "/ready", "/metrics")


@pytest.mark.parametrize("path", PATHS[:2])
def test_a_server_that_is_well_says_so(client: httpx.Client, path: str) -> None:
    """Alive and ready are 200, in one shape."""
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_server_without_its_store_is_alive_and_not_ready(
    client: httpx.Client, outside: Callable[[str], object], refused: "Refused"
) -> None:
    """To restart the server would not mend the store; to send it requests is of no use."""
    outside("DROP TABLE events")
    outside("DROP TABLE jobs")
    assert client.get("/health").status_code == 200
    refused(client.get("/ready"), problems.STORE_UNAVAILABLE)
    refused(client.get("/metrics"), problems.STORE_UNAVAILABLE)


def test_a_server_that_stops_is_alive_and_not_ready(
    serve: Callable[[FastAPI], httpx.Client], store: Store, refused: "Refused"
) -> None:
    """While the last answers are given no new requests are to be sent."""
    app = create_app(store)
    client = serve(app)
    app.state.feed.stopping = True
    assert client.get("/health").status_code == 200
    refused(client.get("/ready"), problems.STOPPING)


def test_a_server_with_a_busy_store_is_ready(
    client: httpx.Client, store: Store, held: "Held"
) -> None:
    """Others that write do not keep the store from being read."""
    with held(store):
        assert client.get("/ready").status_code == 200
        assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_head_has_the_headers_of_get(client: httpx.Client, path: str) -> None:
    """Who asks only for the headers gets them, and no body."""
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Type", "Content-Length"):
        assert head.headers[name] == get.headers[name]


def scraped(client: httpx.Client) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the numbers as Prometheus reads them, by name and labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.type == "gauge"
        assert family.documentation
        found[family.name] = {tuple(s.labels.values()): s.value for s in family.samples}
    return found


def test_the_numbers_are_those_of_the_store(
    client: httpx.Client, store: Store, clock: "Clock"
) -> None:
    """Jobs by kind and status, those without a job too, so that a line goes down to 0."""
    for _ in range(2):
        store.enqueue("noop", {})
    job = store.claim("w1")
    assert job is not None
    store.finish(job, {})
    clock.move(2.5)
    numbers = scraped(client)
    jobs = numbers.pop("jobq_jobs")
    assert jobs == {("noop", s): float(s in {"queued", "done"}) for s in map(str, Status)}
    assert numbers == {
        "jobq_oldest_waiting_seconds": {(): 2.5},
        "jobq_finished_last_minute": {(): 1.0},
    }


def test_an_empty_store_has_numbers(client: httpx.Client) -> None:
    """Without a job there is nothing to count, and no error."""
    assert scraped(client) == {
        "jobq_jobs": {},
        "jobq_oldest_waiting_seconds": {(): 0.0},
        "jobq_finished_last_minute": {(): 0.0},
    }


def test_a_kind_may_have_any_name(client: httpx.Client, store: Store) -> None:
    """Quotes, backslashes and line ends in a kind do not break the format."""
    kind = 'a"b\\c\nd é{}'
    store.enqueue(kind, {})
    assert scraped(client)["jobq_jobs"][kind, "queued"] == 1
