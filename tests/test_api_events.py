import asyncio
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import fastapi.routing
import httpx
import psutil
import pytest
import uvicorn

from jobq import Store
from jobq.api import create_app, events
from jobq.api.feed import Feed
from jobq.job import Job, Progress

log = logging.getLogger(__name__)  # figures: pytest --log-cli-level=INFO

PATIENCE = 30.0  # seconds until what was waited for did not come
STREAMS = 500

Message = dict[str, str]  # the fields of one message, by their names


class Server(NamedTuple):
    """A server in this process, whose feed can be looked at."""

    client: httpx.Client
    port: int
    feed: Feed


@contextmanager
def serving(store: Store) -> Iterator[Server]:
    """Serve a store over a real socket on a free port."""
    app = create_app(store)
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as `jobq serve` does
        port = listener.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=int(PATIENCE))
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with a_client(port) as client:
                yield Server(client, port, app.state.feed)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def server(live: Store) -> Iterator[Server]:
    """Serve `live`."""
    with serving(live) as server:
        yield server


class Process:
    """A server in a process of its own, with its store."""

    def __init__(self, url: str, *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments, "--port", str(self.port)],
            env=os.environ | {"JOBQ_URL": url, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ready(self) -> None:
        """Wait until the server serves."""
        with a_client(self.port) as client:
            until(lambda: self._serves(client))

    def _serves(self, client: httpx.Client) -> bool:
        assert self.process.poll() is None, self.process.communicate()[0]
        try:
            return client.get("/health").is_success
        except httpx.TransportError:
            return False

    def end(self, number: int) -> tuple[float, str]:
        """Send a signal; return the seconds until the process ended, and what it had said."""
        began = time.monotonic()
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=PATIENCE)
        return time.monotonic() - began, output

    def kill(self) -> None:
        """End the process, whatever its state."""
        self.process.kill()
        output, _ = self.process.communicate()
        if output:
            log.info("%s", output)


@pytest.fixture
def start_server() -> Iterator[Callable[..., Process]]:
    """Start servers as real processes; what still runs at the end is killed."""
    processes: list[Process] = []

    def start(url: str, *arguments: str) -> Process:
        processes.append(Process(url, *arguments))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def a_client(port: int) -> httpx.Client:
    """Return a client of the server on that port."""
    return httpx.Client(base_url=f"http://localhost:{port}", trust_env=False, timeout=PATIENCE)


def until(condition: Callable[[], bool]) -> float:
    """Wait for a condition; return the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE, "what was waited for did not come"
        time.sleep(0.005)
    return time.monotonic() - began


def messages(lines: Iterator[str]) -> Iterator[Message]:
    """Yield the messages of a stream as an EventSource would see them; a comment is named ''."""
    message: Message = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            message[name] = value.removeprefix(" ")
        elif message:
            yield message
            message = {}


@contextmanager
def following(
    client: httpx.Client, path: str, last: int | None = None
) -> Iterator[Iterator[Message]]:
    """Open a stream, as an EventSource that comes again does; give what follows its `retry`."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        stream = messages(response.iter_lines())
        assert next(stream) == {"retry": "1000"}
        yield stream


def ids(stream: Iterator[Message]) -> list[int]:
    """Return the ids of all messages, once the stream has ended."""
    return [int(message["id"]) for message in stream]


def names(stream: Iterator[Message]) -> list[str]:
    """Return the names of all messages, once the stream has ended."""
    return [message["event"] for message in stream]


def claimed(store: Store) -> Job:
    """Claim the next job."""
    job = store.claim("w1", 60.0)
    assert job is not None
    return job


def a_done_job(store: Store) -> str:
    """Return a job with three events: enqueued, claimed, done."""
    store.enqueue("noop", {})
    return store.finish(claimed(store), {}).id


# What is told.


def test_a_job_is_followed_until_it_is_final(server: Server, live: Store) -> None:
    """Every event comes as it happens, with its name and number; the stream ends with the last."""
    job_id = live.enqueue("noop", {}).job.id
    with following(server.client, f"/jobs/{job_id}/events") as stream:
        assert next(stream)["event"] == "enqueued"
        job = claimed(live)
        assert next(stream)["event"] == "claimed"
        live.fail(job, "no luck\nat all", after=0.0)
        failed = next(stream)
        job = claimed(live)
        live.enqueue("noop", {})  # another job's event is not told
        live.heartbeat(job, 60.0, Progress(1, 2, "half"))
        live.finish(job, {})
        rest = list(stream)
    assert [message["event"] for message in rest] == ["claimed", "heartbeat", "done"]
    assert [message["id"] for message in rest] == ["4", "6", "7"]
    event = live.events(job_id)[2]
    at = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="microseconds")
    assert json.loads(failed["data"]) == {
        "seq": 3,
        "job_id": job_id,
        "at": at.replace("+00:00", "Z"),
        "name": "failed",
        "status": "queued",
        "attempt": 1,
        "worker": "w1",
        "error": "no luck\nat all",
        "run_after": at.replace("+00:00", "Z"),
        "progress": None,
    }
    assert json.loads(rest[1]["data"])["progress"] == {"done": 1.0, "total": 2.0, "message": "half"}


def test_a_stream_says_what_it_is(server: Server, live: Store) -> None:
    """It is not kept by caches, nor held back by a proxy."""
    job_id = a_done_job(live)
    headers = server.client.get(f"/jobs/{job_id}/events").headers
    assert headers["Content-Type"].partition(";")[0] == "text/event-stream"
    assert headers["Cache-Control"] == "no-cache, no-store"
    assert headers["X-Accel-Buffering"] == "no"


def test_all_jobs_are_followed_from_now_on(server: Server, live: Store) -> None:
    """What was before is not told, unless it is asked for with `after`."""
    job_id = a_done_job(live)
    with following(server.client, "/events") as stream:
        other = live.enqueue("noop", {}).job.id
        first = next(stream)
    assert (first["id"], json.loads(first["data"])["job_id"]) == ("4", other)
    with following(server.client, "/events?after=1") as stream:
        found = [json.loads(next(stream)["data"]) for _ in range(3)]
    assert [(event["seq"], event["job_id"]) for event in found] == [
        (2, job_id),
        (3, job_id),
        (4, other),
    ]


def test_a_final_job_s_events_are_told_and_then_no_more(server: Server, live: Store) -> None:
    """An EventSource that comes again after the end is told to stay away."""
    path = f"/jobs/{a_done_job(live)}/events"
    with following(server.client, path) as stream:
        assert names(stream) == ["enqueued", "claimed", "done"]
    with following(server.client, path, last=1) as stream:
        assert ids(stream) == [2, 3]
    answer = server.client.get(path, headers={"Last-Event-ID": "3"})
    assert (answer.status_code, answer.content) == (204, b"")


def test_last_event_id_comes_before_after(server: Server, live: Store) -> None:
    """A browser repeats the URL of the page and knows better by the header."""
    a_done_job(live)
    with following(server.client, "/events?after=0", last=2) as stream:
        assert next(stream)["id"] == "3"


@pytest.mark.parametrize("query", ["", "?after=9223372036854775807"])
def test_an_id_of_another_log_begins_now(server: Server, live: Store, query: str) -> None:
    """Whoever followed a store that is gone is not left waiting until this one has as many."""
    a_done_job(live)
    last = None if query else 9_223_372_036_854_775_807
    with following(server.client, f"/events{query}", last=last) as stream:
        live.enqueue("noop", {})
        assert next(stream)["id"] == "4"


def test_a_malformed_last_event_id_is_refused(server: Server, live: Store) -> None:
    """The problem names the value and the mend."""
    job_id = live.enqueue("noop", {}).job.id
    for last in ("x", "-1", "1.0", "9" * 19, "9" * 400, "\u0663"):
        for path in ("/events", f"/jobs/{job_id}/events"):
            answer = server.client.get(path, headers=[(b"Last-Event-ID", last.encode())])
            assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-input")
            assert answer.json()["detail"].endswith("use the id of an event, a whole number")


def test_an_unknown_job_cannot_be_followed(server: Server) -> None:
    """The answer is a problem, not an empty stream."""
    for job_id in ("abc", "0" * 32, "%00", "~", "\u00e9"):
        answer = server.client.get(f"/jobs/{job_id}/events")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-job")


def test_a_silent_line_is_kept_open(
    server: Server, live: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment is sent now and then, which an EventSource ignores."""
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.05)
    live.enqueue("noop", {})
    with following(server.client, "/events") as stream:
        assert next(stream) == {"": "ping"}
        assert next(stream) == {"": "ping"}


def test_a_job_that_is_deleted_is_followed_no_more(
    live: Store, outside: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream ends, instead of waiting for an event that cannot come."""
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.05)
    job_id = live.enqueue("noop", {}).job.id
    with serving(live) as server, following(server.client, f"/jobs/{job_id}/events") as stream:
        assert next(stream)["event"] == "enqueued"
        outside("DELETE FROM events")
        outside("DELETE FROM jobs")
        assert list(stream) == []


def test_a_job_that_moves_again_is_followed_again(server: Server, live: Store) -> None:
    """After an operator's retry the stream goes on behind the event that was final before."""
    job = live.enqueue("noop", {}).job
    live.cancel(job.id)
    path = f"/jobs/{job.id}/events"
    assert server.client.get(path, headers={"Last-Event-ID": "2"}).status_code == 204
    live.retry(job.id)
    with following(server.client, path, last=2) as stream:
        assert next(stream)["event"] == "retried"
        live.finish(claimed(live), {})
        assert names(stream) == ["claimed", "done"]


# What a stream costs.


def abort(port: int, path: str, *, read: bool) -> None:
    """Open a stream and reset the connection, before or after something was read."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if read:
            assert line.recv(4096).startswith(b"HTTP/1.1 200 OK")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_stream_ends_with_its_connection(server: Server, live: Store) -> None:
    """Nobody waits for a client that has left."""
    job_id = live.enqueue("noop", {}).job.id
    with following(server.client, f"/jobs/{job_id}/events") as stream:
        next(stream)
        until(lambda: server.feed.waiters == 1)
    assert until(lambda: server.feed.waiters == 0) < 5.0  # 0.01 s on a machine at rest


def test_aborted_connections_leak_nothing(
    server: Server, live: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Waiters are gone, and threads and files (so, connections to the database) become no more.

    They do at first, until the pools of threads are as large as they get.
    """
    path = f"/jobs/{live.enqueue('noop', {}).job.id}/events"
    this = psutil.Process()

    def connections() -> int:
        ends = [end for s in this.net_connections("tcp4") for end in (s.laddr, s.raddr)]
        return sum(tuple(end)[1:] == (server.port,) for end in ends)

    before = connections()

    def abort_many(_: int) -> tuple[int, int]:
        for n in range(50):
            abort(server.port, path if n % 2 else "/events", read=n % 3 != 0)
        until(lambda: server.feed.waiters == 0 and connections() <= before)
        return this.num_fds(), threading.active_count()

    for counted in zip(*map(abort_many, range(5)), strict=True):
        assert min(after - before for before, after in pairwise(counted)) <= 0
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_an_open_stream_holds_no_snapshot(
    server: Server, live: Store, snapshots: Callable[[], bool]
) -> None:
    """What is old can be cleared away while clients wait, so that the database does not grow."""
    job_id = live.enqueue("noop", {}).job.id
    with (
        following(server.client, f"/jobs/{job_id}/events") as one,
        following(server.client, "/events") as all_of_them,
    ):
        assert next(one)["event"] == "enqueued"
        until(lambda: server.feed.waiters == 2)
        live.enqueue("noop", {})
        assert next(all_of_them)["id"] == "2"
        until(lambda: not snapshots())


# Real servers.


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_stream(port: int, path: str) -> Line:
    """Open a stream and read up to its `retry`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"retry: 1000\n\n")
    return reader, writer


async def told(line: Line, text: bytes) -> None:
    """Read a stream up to that text."""
    await line[0].readuntil(text)


async def ended(line: Line) -> bool:
    """Read a stream up to its end; return whether it was told to be the end."""
    rest = await line[0].read()
    line[1].close()
    return rest.endswith(b"0\r\n\r\n")


def test_five_hundred_are_served_and_the_server_stops_at_once(
    start_server: Callable[..., Process], url: str, live: Store
) -> None:
    """All are told of an event; SIGTERM ends their streams, and then a plain uvicorn."""
    process = start_server(url, "uvicorn", "jobq.api:app")
    process.ready()
    rss = psutil.Process(process.process.pid).memory_info().rss

    async def main() -> float:
        async with asyncio.timeout(PATIENCE):
            began = time.monotonic()
            opening = (open_stream(process.port, "/events") for _ in range(STREAMS))
            lines = await asyncio.gather(*opening)
            opened = time.monotonic()
            await asyncio.to_thread(live.enqueue, "noop", {})
            await asyncio.gather(*(told(line, b"id: 1\n\n") for line in lines))
            heard = time.monotonic()
            grown = psutil.Process(process.process.pid).memory_info().rss - rss
            ending = asyncio.create_task(asyncio.to_thread(process.end, signal.SIGTERM))
            assert all(await asyncio.gather(*map(ended, lines)))
            seconds, output = await ending
            assert "Traceback" not in output
        log.info(
            "%.2f s to open, %.2f s to tell, %d kB each, %.2f s to stop",
            *(opened - began, heard - opened, grown / STREAMS / 1024, seconds),
        )
        return seconds

    assert asyncio.run(main()) < 10.0  # below 1 s on a machine at rest


def test_a_client_that_comes_again_misses_nothing(
    start_server: Callable[..., Process], url: str, live: Store
) -> None:
    """Ctrl-C stops `jobq serve` in the middle of a stream and a long poll; another goes on."""
    job_id = live.enqueue("noop", {}).job.id
    path = f"/jobs/{job_id}/events"
    process = start_server(url, "jobq", "serve")
    process.ready()
    seen = []
    with a_client(process.port) as client, following(client, path) as stream:
        polled: list[httpx.Response] = []
        wish = {"Prefer": "wait=60"}
        polling = threading.Thread(
            target=lambda: polled.append(client.get(f"/jobs/{job_id}", headers=wish))
        )
        polling.start()
        seen.append(next(stream)["id"])
        job = claimed(live)
        seen.append(next(stream)["id"])
        seconds, output = process.end(signal.SIGINT)
        log.info("%.2f s to stop", seconds)
        assert seconds < 10.0  # below 1 s on a machine at rest
        assert "Traceback" not in output
        assert list(stream) == []
        polling.join()
        # The poll may have looked just before the claim: it is answered with what it saw.
        assert polled[0].json()["status"] in {"queued", "running"}
    live.heartbeat(job, 60.0)
    with serving(live) as server, following(server.client, path, int(seen[-1])) as stream:
        seen.append(next(stream)["id"])
        live.finish(job, {})
        seen += [message["id"] for message in stream]
    assert seen == ["1", "2", "3", "4"]


def test_a_client_that_reads_no_more_does_not_keep_the_server(
    start_server: Callable[..., Process], url: str, live: Store
) -> None:
    """A stopped program, or a machine that sleeps: more is sent than the system's buffers take."""
    for _ in range(25):
        live.enqueue_many([{"kind": "noop", "payload": {}}] * 1_000)
    process = start_server(url, "jobq", "serve")
    process.ready()
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", process.port))
        line.sendall(b"GET /events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        server = psutil.Process(process.process.pid)
        until(lambda: server.cpu_percent(0.2) < 5.0)  # nothing more can be sent
        assert server.memory_info().rss < 200e6
        process.end(signal.SIGTERM)


def test_the_server_s_handlers_are_put_back(live: Store) -> None:
    """Within, a signal reaches the server's handler and stops the feed; after, only the first."""
    heard: list[int] = []
    feed = Feed(live)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE), events.stopping_with_server(feed):
            assert signal.getsignal(signal.SIGTERM) is not handler
            os.kill(os.getpid(), signal.SIGTERM)
            assert await feed.wait(0, PATIENCE) == []
            assert feed.stopping
        assert signal.getsignal(signal.SIGTERM) is handler

    def handler(number: int, _: Any) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
