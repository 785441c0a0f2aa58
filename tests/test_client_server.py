"""jobq.Client against jobq's own server: over real sockets, killed and started again."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import uvicorn
from fastapi import FastAPI

from jobq import (
    Client,
    EventName,
    JobUnfinished,
    Progress,
    ServerRefused,
    ServerUnreachable,
    Status,
    Store,
    Worker,
)
from jobq.api import create_app
from jobq.lab.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import Program

TOKEN = "a-token-of-operators"  # noqa: S105 - it guards nothing
# `jobq serve` and `jobq worker` as processes that a test can kill.
JOBQ = "import sys; from jobq.cli import main; sys.argv[0] = 'jobq'; main()"


@pytest.fixture
def port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def app(live: Store) -> FastAPI:
    """Return an app that knows a token."""
    return create_app(live, token=TOKEN)


@pytest.fixture
def client(app: FastAPI) -> Iterator[Client]:
    """Serve the app in a thread, and give an operator's client of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN) as client:
                yield client
        finally:
            app.state.feed.stop()
            server.should_exit = True
            thread.join()


def test_a_job_is_submitted_waited_for_and_has_its_result(client: Client, live: Store) -> None:
    """The whole way of the lesson, in two calls."""
    job = client.submit("noop", {}, max_attempts=7)
    assert (job.status, job.attempts, job.progress) == (Status.QUEUED, 0, None)
    stored = live.get(job.id)
    assert stored is not None
    assert stored.max_attempts == 7
    Worker(live).run(until_idle=True)
    done = client.wait(job, 10)
    assert (done.id, done.status, done.result, done.error) == (job.id, Status.DONE, {}, None)


def test_the_end_of_a_job_is_known_at_once(app: FastAPI, client: Client, live: Store) -> None:
    """The server holds the request until then: no poll is waited for."""
    job = client.submit("noop", {})
    leased = live.claim("worker", 60)
    assert leased is not None
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.wait, job, 30)
        wait_until(lambda: app.state.feed._waiters, "the server to hold the request")
        live.finish(leased, {"n": 1})
        ended = time.monotonic()
        assert waiting.result().result == {"n": 1}
    assert time.monotonic() - ended < 5


def test_a_job_that_does_not_end_is_given_up_in_time(client: Client) -> None:
    """Whole seconds of the wait are the server's, the rest is the client's."""
    job = client.submit("noop", {})
    began = time.monotonic()
    with pytest.raises(JobUnfinished, match=f"job {job.id} is still queued after 2.5 s"):
        client.wait(job, 2.5)
    assert 2.4 < time.monotonic() - began < 10


def test_a_key_gives_the_same_job_and_no_other(client: Client) -> None:
    """A call that is made again makes nothing new, and one with other values is refused."""
    first = client.submit("nap", {"seconds": 1}, "my key")
    assert client.submit("nap", {"seconds": 1}, "my key").id == first.id
    assert client.submit("nap", {"seconds": 1}).id != first.id
    with pytest.raises(ServerRefused) as refused:
        client.submit("nap", {"seconds": 2}, "my key")
    assert refused.value.type == "/problems/idempotency-conflict"


@pytest.mark.parametrize(
    ("call", "status", "kind"),
    [
        (lambda c: c.get("abc"), 404, "unknown-job"),
        (lambda c: c.wait("no/such id"), 404, ""),
        (lambda c: list(c.events("abc")), 404, "unknown-job"),
        (lambda c: c.cancel("abc"), 404, "unknown-job"),
        (lambda c: c.submit("nap", {"seconds": "x"}), 422, "invalid-fields"),
        (lambda c: c.submit("no such kind", {}), 422, "invalid-fields"),
        (lambda c: c.list(status="lost"), 422, "invalid-fields"),
        (lambda c: c.submit("noop", {"text": "x" * 100_000}), 413, "body-too-large"),
    ],
)
def test_what_the_server_declines_is_an_error_with_its_words(
    client: Client, call: Callable[[Client], object], status: int, kind: str
) -> None:
    """Status, type and detail are those of the problem document."""
    with pytest.raises(ServerRefused) as refused:
        call(client)
    assert refused.value.status == status
    assert refused.value.type.endswith(kind)
    assert refused.value.detail in str(refused.value)


def test_operators_cancel_and_retry(client: Client, live: Store) -> None:
    """Each answer is the job as it is then; what the status forbids is refused."""
    job = client.submit("noop", {})
    assert client.cancel(job).status is Status.CANCELLED
    assert client.wait(job).status is Status.CANCELLED
    retried = client.retry(job)
    assert (retried.status, retried.kind) == (Status.QUEUED, "noop")
    assert live.claim("worker", 30) is not None
    assert client.cancel(job).cancel_requested
    with pytest.raises(ServerRefused) as refused:
        client.retry(job)
    assert (refused.value.status, refused.value.type) == (409, "/problems/wrong-status")


def test_operators_send_their_token(client: Client) -> None:
    """Without it they are refused, and told so."""
    with Client(client._requests.url) as other:
        job = other.submit("noop", {})
        with pytest.raises(ServerRefused) as refused:
            other.cancel(job)
    assert refused.value.status == 401


def test_a_list_goes_over_many_pages(client: Client, live: Store) -> None:
    """Newest first, no job twice, and none left out."""
    ids = [e.job.id for e in live.enqueue_many({"kind": "noop", "payload": {}} for _ in range(230))]
    assert [job.id for job in client.list(limit=1_000)] == ids[::-1]
    assert [job.id for job in client.list(limit=101)] == ids[:-102:-1]
    assert client.list(status=Status.DONE) == client.list(kind="nap") == []


def test_events_tell_the_whole_story_of_a_job(client: Client, live: Store) -> None:
    """From its first event to its last, then they end; those after a number, too."""
    job = client.submit("noop", {})
    leased = live.claim("worker", 30)
    assert leased is not None
    live.heartbeat(leased, 30, Progress(1, 2, "half"))
    assert client.get(job).progress == Progress(1, 2, "half")
    with ThreadPoolExecutor() as pool:
        following = pool.submit(lambda: list(client.events(job)))
        live.finish(leased, {})
        events = following.result()
    stored = live.events(job.id)
    assert [(e.seq, e.name, e.status) for e in events] == [
        (e.seq, e.name, e.status) for e in stored
    ]
    assert [e.at.timestamp() for e in events] == pytest.approx([e.at for e in stored], abs=1e-5)
    assert events[2].progress == Progress(1, 2, "half")
    assert [e.seq for e in client.events(job.id, after=events[1].seq)] == [
        e.seq for e in stored[2:]
    ]
    assert list(client.events(job.id, after=events[-1].seq)) == []


def test_events_of_all_jobs_begin_where_they_are_told_to(client: Client, live: Store) -> None:
    """Whoever has enough of them leaves, and the connection is given back."""
    for _ in range(3):
        live.enqueue("noop", {})
    found = []
    with closing(client.events(after=1)) as events:  # type: ignore[type-var] # it is a generator
        for event in events:
            found.append(event.seq)
            if len(found) == 2:
                break
    assert found == [2, 3]
    assert client.get(live.list()[0].id).status is Status.QUEUED


def test_wait_and_events_outlast_a_killed_server(
    url: str, live: Store, port: int, start: Callable[..., "Program"]
) -> None:
    """SIGKILL in the middle of both, a start on the same port, and neither has missed a thing."""
    assert live.list() == []
    serve = ("serve", "--port", str(port), "--url", url)
    server = start(JOBQ, *serve)
    with Client(f"http://127.0.0.1:{port}") as client, ThreadPoolExecutor() as pool:
        job = client.submit("noop", {})  # as soon as the server listens
        seen: list[int] = []
        waiting = pool.submit(client.wait, job, 60)
        following = pool.submit(lambda: seen.extend(e.seq for e in client.events(job)))
        leased = live.claim("worker", 60)
        assert leased is not None
        live.heartbeat(leased, 60)
        server.kill()
        live.heartbeat(leased, 60)
        start(JOBQ, *serve)
        live.heartbeat(leased, 60)
        live.finish(leased, {"survived": True})
        assert waiting.result().result == {"survived": True}
        following.result()
    assert seen == [event.seq for event in live.events(job.id)]


def test_fifty_clients_with_one_key_make_one_job(client: Client) -> None:
    """They may all be the same request, sent again and again (G5)."""
    with ThreadPoolExecutor(50) as pool:
        jobs = list(pool.map(lambda _: client.submit("noop", {}, "one"), range(50)))
    assert len({job.id for job in jobs}) == 1
    assert len(client.list()) == 1


def test_nobody_there_is_an_error_in_time(port: int) -> None:
    """With the address, the cause and the mend."""
    with (
        Client(f"http://127.0.0.1:{port}", patience=0.3) as client,
        pytest.raises(ServerUnreachable, match=r"refused.*jobq serve"),
    ):
        client.submit("noop", {})


def test_the_names_of_events_are_the_stores_own(client: Client, live: Store) -> None:
    """An operator's events come through as well."""
    job = client.submit("noop", {})
    client.cancel(job)
    client.retry(job)
    client.cancel(job)
    assert [e.name for e in client.events(job)] == [
        EventName.ENQUEUED,
        EventName.CANCELLED,
        EventName.RETRIED,
        EventName.CANCELLED,
    ]
    assert live.events(job.id)
