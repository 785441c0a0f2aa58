"""jobq.api.polling: how a job stands is told now, or as soon as that is worth telling."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi import FastAPI

from jobq import Job, Progress, Store
from jobq.api import create_app
from jobq.lab.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import Clock, Program, Serving

SOON = 20.0  # seconds, on a very busy machine; less than any wait that is to end early
LONG = "wait=60"


def claimed(store: Store) -> Job:
    """Return a job that a worker has just claimed."""
    store.enqueue("noop", {})
    job = store.claim("w1", 300)
    assert job is not None
    return job


# Retry-After.


def took(store: Store, clock: "Clock", seconds: float) -> None:
    """Let a job take that long."""
    job = claimed(store)
    clock.move(seconds)
    store.finish(job, {})


@pytest.mark.parametrize(
    ("typical", "passed", "told"),
    [(8, 0, 8), (8, 3, 5), (8, 6.6, 1), (8, 8, 1), (8, 99, 1), (0.2, 0, 1), (200, 0, 60)],
)
def test_a_running_job_is_to_be_asked_for_when_such_jobs_end(
    client: httpx.Client, store: Store, clock: "Clock", typical: float, passed: float, told: int
) -> None:
    """Retry-After is what is left of the usual run time, from 1 to 60 s."""
    took(store, clock, typical)
    job = claimed(store)
    clock.move(passed)
    assert client.get(f"/jobs/{job.id}").headers["Retry-After"] == str(told)


@pytest.mark.parametrize(
    ("typical", "put_off", "told"), [(8, 0, 8), (8, 10, 18), (200, 0, 60), (200, 10, 70)]
)
def test_a_queued_job_is_to_be_asked_for_when_it_may_have_run(
    client: httpx.Client, store: Store, clock: "Clock", typical: float, put_off: float, told: int
) -> None:
    """Retry-After is the wait for the next attempt and the usual run time, that up to 60 s."""
    took(store, clock, typical)
    job = store.enqueue("noop", {}, run_after=clock.now + put_off).job
    assert client.get(f"/jobs/{job.id}").headers["Retry-After"] == str(told)


def test_other_kinds_tell_nothing(client: httpx.Client, store: Store, clock: "Clock") -> None:
    """A kind of which no job is done yet is asked for each second."""
    took(store, clock, 30)
    job = store.enqueue("nap", {}).job
    assert client.get(f"/jobs/{job.id}").headers["Retry-After"] == "1"


# What is told.


def test_progress_and_a_cancel_are_told_while_there_is_one(
    client: httpx.Client, store: Store
) -> None:
    """The lesson's five fields are all there is, but for what is worth telling."""
    job = claimed(store)
    lesson = ["id", "status", "attempts", "result", "error"]
    assert list(client.get(f"/jobs/{job.id}").json()) == lesson
    store.heartbeat(job, 30, Progress(1, None, "é"))
    store.cancel(job.id)
    told = client.get(f"/jobs/{job.id}").json()
    assert list(told) == [*lesson, "progress", "cancel_requested"]
    assert told["progress"] == {"done": 1, "total": None, "message": "é"}
    assert told["cancel_requested"] is True


# ETag.


@pytest.mark.parametrize("final", [False, True])
def test_what_the_client_has_is_not_sent_again(
    client: httpx.Client, store: Store, *, final: bool
) -> None:
    """304 has the tag, and Retry-After as the 200 would, and no body."""
    job = claimed(store)
    if final:
        store.finish(job, {"n": 1})
    first = client.get(f"/jobs/{job.id}")
    tag = first.headers["ETag"]
    assert tag.startswith('"')
    again = client.get(f"/jobs/{job.id}", headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert again.headers.get("Retry-After") == first.headers.get("Retry-After")
    assert ("Retry-After" in again.headers) != final


@pytest.mark.parametrize(
    ("known", "status"),
    [
        ("{tag}", 304),
        ("W/{tag}", 304),
        ('"a", W/"b,c", {tag}', 304),
        ('"a"\n{tag}', 304),
        ("*", 304),
        ('"other"', 200),
        ("", 200),
        ("malformed", 200),
    ],
)
def test_one_of_several_tags_may_be_known(
    client: httpx.Client, store: Store, known: str, status: int
) -> None:
    """If-None-Match is read as RFC 9110 has it: a list, weak tags too, or `*`."""
    job = claimed(store)
    tag = client.get(f"/jobs/{job.id}").headers["ETag"]
    headers = [("If-None-Match", line) for line in known.format(tag=tag).split("\n")]
    assert client.get(f"/jobs/{job.id}", headers=headers).status_code == status


def test_the_tag_changes_with_the_answer_and_not_else(client: httpx.Client, store: Store) -> None:
    """A heartbeat that tells nothing new leaves the tag as it is; progress changes it."""
    job = claimed(store)
    tags = [client.get(f"/jobs/{job.id}").headers["ETag"]]
    for progress in (None, Progress(1, 2), Progress(1, 2), Progress(2, 2)):
        store.heartbeat(job, 30, progress)
        tags.append(client.get(f"/jobs/{job.id}").headers["ETag"])
    assert [a == b for a, b in pairwise(tags)] == [True, False, True, False]


# Prefer: wait.


@pytest.fixture
def app(live: Store) -> FastAPI:
    """Return an app on a store that goes by the real time."""
    return create_app(live)


@pytest.fixture
def waiting(app: FastAPI, serving: "Serving") -> Iterator[httpx.Client]:
    """Return a client of a server of its own."""
    with serving(app) as client:
        yield client


@contextmanager
def asking(
    app: FastAPI, client: httpx.Client, job: Job, **headers: str
) -> Iterator[Callable[[], httpx.Response]]:
    """Ask, and go on once the server waits; give what returns the answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.get, f"/jobs/{job.id}", headers=named)
        wait_until(lambda: app.state.feed.waiters, "the request to wait")
        yield lambda: asked.result(SOON)


def test_the_answer_comes_when_the_job_ends(
    app: FastAPI, waiting: httpx.Client, live: Store
) -> None:
    """What happens before does not end the wait, the end does, long before the time is over."""
    job = live.enqueue("noop", {}).job
    with asking(app, waiting, job, Prefer=LONG) as answer:
        ticket = live.claim("w1")
        assert ticket is not None
        live.heartbeat(ticket, 30, Progress(1))
        live.finish(ticket, {"n": 1})
        told = answer()
    assert (told.json()["status"], told.json()["result"]) == ("done", {"n": 1})
    assert told.headers["Preference-Applied"] == LONG
    assert "Retry-After" not in told.headers


def test_the_answer_comes_when_the_time_is_over(waiting: httpx.Client, live: Store) -> None:
    """A job that goes on is told of as it stands then."""
    job = claimed(live)
    begun = time.monotonic()
    told = waiting.get(f"/jobs/{job.id}", headers={"Prefer": "wait=1"})
    assert 1.0 <= time.monotonic() - begun < SOON
    assert (told.status_code, told.json()["status"]) == (200, "running")
    assert told.headers["Preference-Applied"] == "wait=1"
    assert told.headers["Retry-After"] == "1"


def test_the_time_may_end_with_nothing_new(waiting: httpx.Client, live: Store) -> None:
    """With a tag that is still right when the time is over, the answer is 304."""
    job = claimed(live)
    tag = waiting.get(f"/jobs/{job.id}").headers["ETag"]
    headers = {"Prefer": "wait=1", "If-None-Match": tag}
    told = waiting.get(f"/jobs/{job.id}", headers=headers)
    assert (told.status_code, told.headers["Preference-Applied"]) == (304, "wait=1")


def test_with_a_tag_any_change_is_told(app: FastAPI, waiting: httpx.Client, live: Store) -> None:
    """A client that shows how a job stands learns of the claim, and of progress."""
    job = live.enqueue("noop", {}).job
    tag = waiting.get(f"/jobs/{job.id}").headers["ETag"]
    with asking(app, waiting, job, Prefer=LONG, If_None_Match=tag) as answer:
        ticket = live.claim("w1")
        told = answer()
    assert ticket is not None
    assert (told.status_code, told.json()["status"]) == (200, "running")
    tag = told.headers["ETag"]
    with asking(app, waiting, job, Prefer=LONG, If_None_Match=tag) as answer:
        live.heartbeat(ticket, 30)  # nothing new
        live.heartbeat(ticket, 30, Progress(1))
        told = answer()
    assert told.json()["progress"]["done"] == 1


def test_a_change_that_came_before_is_told_at_once(waiting: httpx.Client, live: Store) -> None:
    """A tag that is out of date is answered without a wait."""
    job = claimed(live)
    headers = {"Prefer": LONG, "If-None-Match": '"old"'}
    told = waiting.get(f"/jobs/{job.id}", headers=headers, timeout=SOON)
    assert told.json()["status"] == "running"


def test_an_unknown_job_is_not_waited_for(waiting: httpx.Client) -> None:
    """What is not there does not come by waiting: ids are the server's to give."""
    assert waiting.get("/jobs/abc", headers={"Prefer": LONG}, timeout=SOON).status_code == 404


@pytest.mark.parametrize(
    ("prefer", "granted"),
    [
        (["wait=5"], "5"),
        (["wait=60"], "60"),
        (["wait=61"], "60"),
        (["wait=" + "9" * 30], "60"),
        (["wait=0"], "0"),
        (["wait=007"], "7"),
        (["WAIT = 5"], "5"),
        (['wait="5"'], "5"),
        (["respond-async, wait=5"], "5"),
        (["respond-async", "wait=5"], "5"),
        (["wait=5; x=y, z"], "5"),
        (['foo="a, b", wait=5'], "5"),
        (["wait=5, wait=9"], "5"),
        ([], None),
        ([""], None),
        (["wait"], None),
        (["wait="], None),
        (["wait=x"], None),
        (["wait=-5"], None),
        (["wait=5.5"], None),
        (["wait=5s"], None),
        (["wait=5 s"], None),
        (["await=5"], None),
        (["wait-longer=5"], None),
        (['foo="a, wait=5, b"'], None),
        (["respond-async; wait=5"], None),
        (["wait=\N{ARABIC-INDIC DIGIT FIVE}"], None),
    ],
)
def test_a_preference_is_read_as_rfc_7240_has_it(
    client: httpx.Client, store: Store, prefer: list[str], granted: str | None
) -> None:
    """`Preference-Applied` tells what was granted; what is malformed is as if it were not there."""
    job = claimed(store)
    store.finish(job, {})
    headers = [(b"Prefer", line.encode()) for line in prefer]
    told = client.get(f"/jobs/{job.id}", headers=headers)
    assert told.status_code == 200
    applied = None if granted is None else f"wait={granted}"
    assert told.headers.get("Preference-Applied") == applied


def test_a_hundred_clients_that_wait_hold_nothing_up(
    app: FastAPI, waiting: httpx.Client, live: Store, snapshots: Callable[[], bool]
) -> None:
    """They hold no thread, of which there are fewer, and no snapshot of the store."""
    job = claimed(live)

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get(f"/jobs/{job.id}", headers={"Prefer": LONG})

    async def ask_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=waiting.base_url, trust_env=False, limits=limits, timeout=SOON
        ) as client:
            return await asyncio.gather(*(ask(client) for _ in range(100)))

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(asyncio.run, ask_all())
        wait_until(lambda: app.state.feed.waiters == 100, "a hundred requests to wait")
        assert waiting.get("/stats", timeout=SOON).json()["counts"]["running"] == 1
        wait_until(lambda: not snapshots(), "no reader to hold on to an old state of the store")
        live.finish(job, {})
        answers = asked.result(SOON)
    assert {answer.json()["status"] for answer in answers} == {"done"}


SERVER = """
import socket, sys, threading, uvicorn
from jobq import open_store
from jobq.api import create_app
from jobq.lab.waiting import wait_until

app = create_app(open_store(sys.argv[1]))
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)

def tell():
    wait_until(lambda: app.state.feed.waiters, "a request to wait")
    print("waiting", flush=True)

threading.Thread(target=tell, daemon=True).start()
server = uvicorn.Server(uvicorn.Config(app, log_config=None))
try:
    server.run(sockets=[listener])
except KeyboardInterrupt:
    pass
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_stops_ends_the_waits(
    start: Callable[..., "Program"], live: Store, url: str, number: signal.Signals
) -> None:
    """Whoever waits is told how the job stands at once, and the server is gone."""
    job = claimed(live)
    server = start(SERVER, url)
    address = f"http://127.0.0.1:{server.hear()}/jobs/{job.id}"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            httpx.get, address, headers={"Prefer": LONG}, trust_env=False, timeout=SOON
        )
        assert server.hear() == "waiting"
        server.process.send_signal(number)
        told = asked.result(SOON)
    assert (told.status_code, told.json()["status"]) == (200, "running")
    # uvicorn raises the signal again once it is done, and SIGTERM ends the program there.
    server.process.wait(SOON)
