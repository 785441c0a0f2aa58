"""jobq.client against real servers: one that plays every fault, and jobq's own."""

import json
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import jobq
from jobq import Client, ClientError, EventName, InvalidInput, JobUnfinished, Progress, Status
from jobq.client.following import fields
from jobq.client.requests import Answer
from jobq.errors import ServerRefused, ServerUnreachable

ID = "a" * 32
KEY = "Idempotency-Key"


def state(status: str = "queued", **members: Any) -> dict[str, Any]:
    """Return a job as the API tells of it."""
    others = {"attempts": 0, "result": None, "error": None}
    return {"id": ID, "status": status, **others, **members}


def event(seq: int, name: str, status: str, **members: Any) -> str:
    """Return the data of an event."""
    others = {"job_id": ID, "at": "2026-12-01T10:00:00.250000Z", "attempt": 1, "worker": "w"}
    others |= {"error": None, "run_after": None, "progress": None}
    return json.dumps({"seq": seq, "name": name, "status": status, **others, **members})


@dataclass
class Played:
    """An answer that the stand-in gives; `cut` closes the connection after it."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    pause: float = 0.0


class Asked(dict[str, str]):
    """The headers of a request, and what else it was."""

    method: str
    path: str
    body: bytes


class StandIn(ThreadingHTTPServer):
    """A server that gives the answers it was told, in order, and the last one for ever."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Player)
        self.answers: deque[Played] = deque()
        self.asked: list[Asked] = []
        self.free = threading.Event()
        self.handle_error = lambda *_: None  # type: ignore[method-assign] # clients may go away

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def play(self, *answers: Played) -> None:
        """Set the answers to come."""
        self.answers.extend(answers)


class Player(BaseHTTPRequestHandler):
    """Gives the next answer of its server."""

    server: StandIn
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Note the request, and answer it."""
        asked = Asked(self.headers.items())
        asked.method, asked.path = self.command, self.path
        asked.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(asked)
        answers = self.server.answers
        answer = answers.popleft() if len(answers) > 1 else answers[0]
        self.server.free.wait(answer.pause)
        if answer.status:
            self._send(answer)
        self.close_connection = answer.cut or answer.status == 0

    do_POST = do_GET  # noqa: N815 - the name that http.server looks for

    def _send(self, answer: Played) -> None:
        body = answer.body
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response_only(answer.status)  # without a date
        for name, value in answer.headers.items():
            self.send_header(name, value)
        # More is promised than comes: the connection is cut in the middle.
        self.send_header("Content-Length", str(len(data) + answer.cut))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def standing_in(port: int = 0) -> Iterator[StandIn]:
    """Run a stand-in."""
    with StandIn(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.free.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[StandIn]:
    """Give a stand-in."""
    with standing_in() as server:
        yield server


class Time:
    """A clock that only sleeping moves, and the sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Let the seconds pass at once."""
        assert seconds >= 0
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    """Return the clock of `client`."""
    return Time()


@pytest.fixture
def client(server: StandIn, time: Time) -> Iterator[Client]:
    """Give a client of the stand-in; its waits have no jitter, and are over at once."""
    with Client(
        server.url, clock=lambda: time.now, sleep=time.sleep, random=lambda: 0.999
    ) as client:
        yield client


@pytest.fixture
def free_port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


BUSY = Played(503, {"type": "/problems/store-busy", "title": "Busy"}, {"Retry-After": "2"})
ACCEPTED = Played(202, {"job_id": ID, "status_url": "", "created": True})


def test_a_job_is_submitted_with_its_fields_and_a_key(server: StandIn, client: Client) -> None:
    """What is not given is not sent, so that the server's defaults hold."""
    server.play(ACCEPTED, Played(body=state()))
    job = client.submit("noop", {"n": 1}, priority=2)
    post, get = server.asked
    assert (post.method, post.path, post["Content-Type"]) == ("POST", "/jobs", "application/json")
    assert json.loads(post.body) == {"kind": "noop", "payload": {"n": 1}, "priority": 2}
    assert len(post[KEY]) == 32
    assert (get.method, get.path) == ("GET", f"/jobs/{ID}")
    assert (job.id, job.status, job.progress) == (ID, Status.QUEUED, None)


def test_each_job_has_a_key_of_its_own(server: StandIn, client: Client) -> None:
    """Two calls without a key make two jobs."""
    server.play(ACCEPTED, Played(body=state()), ACCEPTED, Played(body=state()))
    client.submit("noop", {})
    client.submit("noop", {})
    first, _, second, _ = server.asked
    assert first[KEY] != second[KEY]


@pytest.mark.parametrize(
    "fault",
    [Played(0), Played(200, {"job_id": ID}, cut=True), BUSY, Played(502, b"<html>"), Played(429)],
    ids=["no answer", "cut answer", "503", "502", "429"],
)
def test_a_submission_is_sent_again_with_the_same_key(
    server: StandIn, client: Client, fault: Played
) -> None:
    """So that one job is made, also when it was the answer that was lost."""
    server.play(fault, fault, ACCEPTED, Played(body=state()))
    assert client.submit("noop", {}).id == ID
    posts = [asked for asked in server.asked if asked.method == "POST"]
    assert len(posts) == 3
    assert len({asked[KEY] for asked in posts}) == 1


@pytest.mark.parametrize("verb", ["cancel", "retry"])
@pytest.mark.parametrize("fault", [Played(0), Played(200, state(), cut=True)], ids=["none", "cut"])
def test_a_change_without_a_key_is_not_sent_again(
    server: StandIn, client: Client, fault: Played, verb: str
) -> None:
    """It may have been made, and the error says so."""
    server.play(fault)
    with pytest.raises(ServerUnreachable, match="may have done what it was asked for"):
        getattr(client, verb)(ID)
    assert [(asked.method, asked.path) for asked in server.asked] == [
        ("POST", f"/jobs/{ID}/{verb}")
    ]


def test_a_busy_server_is_told_of_when_there_is_no_key(server: StandIn, client: Client) -> None:
    """A change is not repeated behind the caller's back."""
    server.play(BUSY)
    with pytest.raises(ServerRefused) as refused:
        client.cancel(ID)
    assert (refused.value.status, refused.value.type) == (503, "/problems/store-busy")
    assert len(server.asked) == 1


def test_a_change_is_sent_again_if_it_cannot_have_arrived(free_port: int) -> None:
    """A server that took no connection has carried nothing out."""
    sleeps = []
    with ExitStack() as late:

        def sleep(seconds: float) -> None:
            sleeps.append(seconds)
            if len(sleeps) == 2:
                late.enter_context(standing_in(free_port)).play(Played(body=state("cancelled")))

        with Client(f"http://127.0.0.1:{free_port}", sleep=sleep) as client:
            assert client.cancel(ID).status is Status.CANCELLED
    assert len(sleeps) == 2


def test_waits_grow_up_to_a_cap(server: StandIn, client: Client, time: Time) -> None:
    """Each try without an answer is followed by a longer wait, and the last is cut short."""
    server.play(Played(0))
    with pytest.raises(ServerUnreachable, match="jobq serve"):
        client.get(ID)
    assert time.now == pytest.approx(30)
    *waits, _ = time.sleeps
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6] + [2] * 13, rel=0.01)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        (
            {
                "Date": "Tue, 01 Dec 2026 10:00:00 GMT",
                "Retry-After": "Tue, 01 Dec 2026 10:00:09 GMT",
            },
            9,
        ),
    ],
)
def test_a_busy_server_is_not_asked_sooner_than_it_says(
    server: StandIn, client: Client, time: Time, headers: dict[str, str], seconds: float
) -> None:
    """Retry-After is a number of seconds or, by the server's clock, a time."""
    server.play(Played(503, headers=headers), Played(body=state()))
    client.get(ID)
    assert time.sleeps == [seconds]


@pytest.mark.parametrize(
    "text", ["-1", "soon", "1e3", "9" * 5000, "", "Tue, 99 Dec 2026", "٣", "1.5"]
)
def test_a_retry_after_that_is_none_is_ignored(text: str) -> None:
    """No text that a server may send breaks the client."""
    assert Answer("", 503, {"Retry-After": text, "Date": "x"}, b"").retry_after is None


def test_a_wait_beyond_the_patience_is_not_begun(
    server: StandIn, client: Client, time: Time
) -> None:
    """Who is asked to come back in an hour learns it at once."""
    server.play(Played(503, headers={"Retry-After": "3600"}))
    with pytest.raises(ServerUnreachable, match="asks to wait 3600 s"):
        client.get(ID)
    assert time.sleeps == []


def test_a_problem_is_an_error_with_its_parts(server: StandIn, client: Client) -> None:
    """`type` is what a program compares, and the message says all to a reader."""
    problem = {
        "type": "/problems/invalid-fields",
        "title": "Invalid fields",
        "status": 422,
        "detail": "mend the fields",
        "errors": [{"field": "payload.year", "detail": "is 3: use 2000 to 2100"}],
    }
    server.play(Played(422, problem))
    with pytest.raises(ServerRefused) as refused:
        client.submit("sales_report", {"year": 3})
    error = refused.value
    assert (error.status, error.type) == (422, "/problems/invalid-fields")
    assert error.problem["errors"][0]["field"] == "payload.year"
    assert str(error) == f"POST {server.url}/jobs: 422 Invalid fields: mend the fields"


@pytest.mark.parametrize(
    "answer",
    [Played(404, b"<html>nothing</html>"), Played(500, []), Played(307, headers={"Location": "/"})],
    ids=["html", "list", "redirect"],
)
def test_a_refusal_without_a_problem_is_one_too(
    server: StandIn, client: Client, answer: Played
) -> None:
    """Whatever stands in between may answer in a way of its own; the token follows no redirect."""
    server.play(answer)
    with pytest.raises(ServerRefused, match=f"{answer.status} no problem document") as refused:
        client.get(ID)
    assert refused.value.type == "about:blank"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Played(body=b"<html>Jupyter</html>"),
        Played(body=b"\xff\xfe"),
        Played(body=b"[" * 100_000),
        Played(body=[]),
        Played(body=None),
        Played(body={}),
        Played(body=state("lost")),
        Played(body=state(attempts=None)),
        Played(body=state(progress=3)),
        Played(body=b"no gzip", headers={"Content-Encoding": "gzip"}),
    ],
)
def test_what_no_jobq_server_answers_is_an_error_in_words(
    server: StandIn, client: Client, answer: Played
) -> None:
    """Another program's address is found out at once, and with no traceback of a parser's."""
    server.play(answer)
    for ask in (client.get, client.wait):
        with pytest.raises(ClientError, match=r"jobq|damaged"):
            ask(ID)
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("127.0.0.1:8718", None),
        ("ftp://127.0.0.1", None),
        ("http://", None),
        ("http://[::1", None),
        ("", None),
        ("http://127.0.0.1:8718", "two words"),
        ("http://127.0.0.1:8718", "line\n"),
        ("http://127.0.0.1:8718", ""),
    ],
)
def test_an_address_or_token_that_is_none_is_refused(url: str, token: str | None) -> None:
    """At once, and not by a failing request."""
    with pytest.raises(InvalidInput, match=r"url is|token cannot"):
        Client(url, token)


@pytest.mark.parametrize("key", ["", "  ", "ü", "a\nb", "k" * 256])
def test_a_key_that_cannot_travel_is_refused(server: StandIn, client: Client, key: str) -> None:
    """Nothing is sent."""
    with pytest.raises(InvalidInput, match="idempotency_key"):
        client.submit("noop", {}, key)
    assert server.asked == []


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, "\ud800"])
def test_a_payload_that_is_no_json_is_refused(server: StandIn, client: Client, value: Any) -> None:
    """It is not sent in another form than it was given."""
    with pytest.raises(InvalidInput, match=r"payload\.x"):
        client.submit("noop", {"x": value})
    assert server.asked == []


def test_an_id_is_one_step_of_the_path(server: StandIn, client: Client) -> None:
    """What a user typed leads to no other resource."""
    server.play(Played(404, {}))
    with pytest.raises(ServerRefused):
        client.get("../stats?x#y")
    assert server.asked[0].path == "/jobs/..%2Fstats%3Fx%23y"


def test_the_token_is_sent_and_not_shown(server: StandIn) -> None:
    """It is in the header of each request, and in no text."""
    server.play(Played(body=state()))
    with Client(server.url + "/", "s3cret-token") as client:
        client.get(ID)
        assert "s3cret" not in repr(client)
    assert server.asked[0]["Authorization"] == "Bearer s3cret-token"
    assert server.asked[0].path == f"/jobs/{ID}"


def test_a_proxy_of_the_environment_is_not_used(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is set for the whole machine does not keep a client from its own loopback."""
    server.play(Played(body=state()))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with Client(server.url) as client:
        assert client.get(ID).id == ID


def test_waiting_lets_the_server_wait(server: StandIn, client: Client) -> None:
    """It is asked to answer once the job is final, and not at each of its heartbeats."""
    applied = {"Preference-Applied": "wait=30", "ETag": '"1"', "Retry-After": "1"}
    done = state("done", attempts=1, result={"orders": 3})
    server.play(Played(body=state("running"), headers=applied), Played(body=done))
    job = client.wait(ID, 60)
    assert (job.status, job.result) == (Status.DONE, {"orders": 3})
    first, second = server.asked
    assert first["Prefer"] == "wait=30"
    assert "If-None-Match" not in second


def test_polling_obeys_retry_after_and_asks_for_changes(
    server: StandIn, client: Client, time: Time
) -> None:
    """A server that does not wait is asked no sooner than it says, and for news alone."""
    tagged = {"ETag": '"1"', "Retry-After": "4"}
    server.play(
        Played(body=state("running"), headers=tagged),
        Played(304, b"", {"Retry-After": "6"}),
        Played(body=state("failed", error="no luck")),
    )
    job = client.wait(ID, 60)
    assert (job.status, job.error) == (Status.FAILED, "no luck")
    assert time.sleeps == [4, 6]
    assert [asked.get("If-None-Match") for asked in server.asked] == [None, '"1"', '"1"']


def test_a_job_that_takes_too_long_is_an_error_in_time(
    server: StandIn, client: Client, time: Time
) -> None:
    """At the deadline, whatever Retry-After says, after one last look."""
    server.play(Played(body=state("running"), headers={"Retry-After": "40"}))
    with pytest.raises(JobUnfinished, match="still running after 50 s") as unfinished:
        client.wait(ID, 50)
    assert time.sleeps == [40, 10]
    assert len(server.asked) == 3
    assert unfinished.value.status == "running"


def test_a_wait_goes_on_over_an_absence_of_the_server(
    server: StandIn, client: Client, time: Time
) -> None:
    """A restart in the middle is no reason to give up, also one longer than the patience."""
    server.play(Played(body=state("running")), *[Played(0)] * 20, Played(body=state("done")))
    assert client.wait(ID, 100).status is Status.DONE
    assert time.now > 30


def test_an_answer_that_has_no_end_is_given_up(server: StandIn) -> None:
    """A byte now and then does not keep a client for ever."""
    ticks = iter(range(1_000_000))
    server.play(Played(body=state(error="x" * 3_000_000)))
    with (
        Client(server.url, patience=5, clock=lambda: next(ticks), sleep=lambda _: None) as client,
        pytest.raises(ServerUnreachable, match="its answer has no end"),
    ):
        client.get(ID)


def test_a_server_that_hangs_is_given_up(server: StandIn) -> None:
    """It took the connection and never answers."""
    server.play(Played(body=state(), pause=60))
    with Client(server.url, patience=0.2) as client, pytest.raises(ServerUnreachable, match="time"):
        client.get(ID)


def test_a_list_is_read_page_by_page(server: StandIn, client: Client) -> None:
    """As many as are wanted, from the newest on."""
    server.play(
        Played(body={"jobs": [state()] * 100, "next": "/jobs?before=x"}),
        Played(body={"jobs": [state()] * 20, "next": None}),
    )
    assert len(client.list(status=Status.FAILED, limit=150)) == 120
    first, second = (asked.path for asked in server.asked)
    assert first == "/jobs?status=failed&limit=100"
    assert second == f"/jobs?status=failed&limit=50&before={ID}"


def test_a_list_without_an_end_ends(server: StandIn, client: Client) -> None:
    """A page with no job on it is the last, whatever the server says."""
    server.play(Played(body={"jobs": [], "next": "/jobs"}))
    assert client.list() == []


def test_a_stream_is_read_however_it_is_cut_in_pieces() -> None:
    """Lines end with CR, LF or both; a message that is not complete is none."""
    stream = 'retry: 10\n: ping\n\nid: 1\r\nevent: x\r\ndata: "\u2028ü\r\ndata:b"\r\n\r\n'
    data = f"{stream}data: 2\r\rdata: 3\n".encode()
    for size in (1, 2, 3, 7, len(data)):
        chunks = (data[start : start + size] for start in range(0, len(data), size))
        found = [value for name, value in fields(chunks) if name == "data"]
        assert found == ['"\u2028ü\nb"', "2"]


def streamed(*events: str, cut: bool = False) -> Played:
    """Return a stream of these events."""
    body = ": ping\n\n" + "".join(f"id: 1\nevent: x\ndata: {data}\n\n" for data in events)
    return Played(200, body.encode(), {"Content-Type": "text/event-stream; charset=utf-8"}, cut)


QUEUED, CLAIMED = event(3, "enqueued", "queued"), event(5, "claimed", "running")
BEAT = event(6, "heartbeat", "running", progress={"done": 1, "total": 4, "message": "m"})
DONE = event(9, "done", "done")


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "ended"])
def test_events_go_on_after_a_lost_connection(server: StandIn, client: Client, cut: bool) -> None:
    """Without a gap or a repeat: the server is told which event came last."""
    server.play(
        streamed(QUEUED, CLAIMED, cut=cut),
        Played(0),
        BUSY,
        streamed(CLAIMED, BEAT, cut=cut),
        streamed(DONE),
    )
    events = list(client.events(ID))
    assert [e.seq for e in events] == [3, 5, 6, 9]
    assert [e.name for e in events][-1] is EventName.DONE
    assert events[2].progress == Progress(1, 4, "m")
    assert events[0].at.isoformat() == "2026-12-01T10:00:00.250000+00:00"
    assert {asked.path for asked in server.asked} == {f"/jobs/{ID}/events"}
    assert [a.get("Last-Event-ID") for a in server.asked] == [None, "5", "5", "5", "6"]


def test_a_stream_is_not_asked_for_sooner_than_the_server_says(
    server: StandIn, client: Client, time: Time
) -> None:
    """Its field `retry` is Retry-After in milliseconds; what is no number is ignored."""
    first, last = streamed(QUEUED), streamed(DONE)
    first.body = b"retry: 4500\n\nretry: soon\n\n" + first.body
    server.play(first, last)
    assert len(list(client.events(ID))) == 2
    assert time.sleeps == [4.5]


def test_events_end_when_the_server_says_so(server: StandIn, client: Client) -> None:
    """204 tells that there will be no more (HTML standard, 9.2)."""
    server.play(Played(204, b""))
    assert list(client.events(ID, after=9)) == []
    assert server.asked[0]["Last-Event-ID"] == "9"


def test_an_earlier_end_of_a_job_does_not_end_its_events(server: StandIn, client: Client) -> None:
    """A job that was retried has more events behind its first final one."""
    failed, retried = event(4, "failed", "failed"), event(7, "retried", "queued")
    server.play(streamed(QUEUED, failed, retried, DONE))
    assert [e.seq for e in client.events(ID)] == [3, 4, 7, 9]


def test_streams_that_end_at_once_are_given_up(server: StandIn, client: Client, time: Time) -> None:
    """They are not asked for in a circle, and not for ever."""
    server.play(streamed())
    with pytest.raises(ServerUnreachable, match="its streams end at once"):
        list(client.events(ID))
    assert time.now == pytest.approx(30)
    assert len(server.asked) < 25


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (Played(404, {"detail": "no such job"}), ServerRefused, "no such job"),
        (Played(200, b"hello"), ClientError, "no stream of events"),
        (streamed("{"), ClientError, "no JSON"),
        (streamed("{}"), ClientError, "no jobq of this version"),
        (streamed(event(3, "sung", "queued")), ClientError, "no jobq of this version"),
    ],
)
def test_a_stream_that_is_none_is_an_error(
    server: StandIn, client: Client, answer: Played, error: type[ClientError], words: str
) -> None:
    """At once, and in words."""
    server.play(answer)
    with pytest.raises(error, match=words):
        list(client.events(ID))
    assert len(server.asked) == 1


def test_importing_jobq_does_not_import_httpx() -> None:
    """Workers and commands do not wait for what only a client needs."""
    code = "import sys, jobq; assert 'httpx' not in sys.modules; jobq.Client; dir(jobq)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    assert "Client" in dir(jobq)
    with pytest.raises(AttributeError, match="Klient"):
        _ = jobq.Klient
