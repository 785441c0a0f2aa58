"""jobq.api.guards and jobq.api.dependencies: who may call the server, and how much may be sent."""

import asyncio
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
from fastapi import FastAPI

from jobq import Store
from jobq.api import create_app, problems

if TYPE_CHECKING:
    from tests.conftest import Refused, Serving

TOKEN = "correct-horse-battery"  # noqa: S105 - of these tests only
OPERATIONS = [
    ("GET", "/jobs"),
    ("DELETE", "/jobs?older_than_seconds=0"),
    ("POST", "/jobs/retry"),
    ("POST", "/jobs/abc/retry"),
    ("POST", "/jobs/abc/cancel"),
    ("GET", "/stats"),
    ("GET", "/metrics"),
    ("GET", "/events"),
]
FOR_ALL = ["/jobs/abc", "/jobs/abc/attempts", "/jobs/abc/events", "/health", "/ready", "/docs"]
Serve = Callable[[FastAPI], httpx.Client]


# Host and Origin.


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LocalHost:8718", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8718"),
        *("jobs.example", "JOBS.EXAMPLE:99", "other.example:8718", "[fd00::2]", "[fd00::2]:80"),
    ],
)
def test_the_server_answers_to_its_names(serve: Serve, store: Store, host: str) -> None:
    """This machine's own names and those that were allowed, at any port, in any case."""
    allowed = ["jobs.example", "Other.Example:8718", "fd00::2"]
    client = serve(create_app(store, allowed_hosts=allowed))
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8718", "localhost.evil.example", "localhost:8718.evil"),
        *("localhost@evil.example", "127.0.0.1.evil.example", "192.0.2.1", "[::2]", "", ":80"),
        *("localhost, evil.example", "127.0.0.1:80:80", "jobs.example."),
    ],
)
def test_the_server_answers_to_no_other_name(
    serve: Serve, store: Store, refused: "Refused", host: str
) -> None:
    """A site whose name leads to this machine (DNS rebinding) reaches nothing, also no /health."""
    client = serve(create_app(store, allowed_hosts=["jobs.example"]))
    for path in ("/health", "/jobs", "/none"):
        answer = client.get(path, headers={"Host": host})
        assert "JOBQ_ALLOWED_HOSTS" in refused(answer, problems.FOREIGN_SITE)


def test_the_host_that_is_refused_is_named(client: httpx.Client, refused: "Refused") -> None:
    """The answer shows the name and what to do, and of a long name not all."""
    answer = client.get("/health", headers={"Host": "evil.example"})
    detail = refused(answer, problems.FOREIGN_SITE)
    assert detail.startswith("Host is 'evil.example', which is no name of this server: call it by ")
    answer = client.get("/health", headers={"Host": "x" * 5_000})
    assert len(refused(answer, problems.FOREIGN_SITE)) < 400


def test_a_request_without_a_host_is_refused(client: httpx.Client) -> None:
    """HTTP/1.0 knows no Host; who speaks it is no browser, and can send one all the same."""
    with socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=30) as line:
        line.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b" 403 " in line.makefile("rb").readline()


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "https://evil.example:8718", "null", "", "localhost"),
        *("http://localhost", "http://localhost:1", "http://127.0.0.1:{port}"),
        *("http://localhost:{port}.evil.example", "http://localhost:{port}/", "file://"),
        "http://evil@localhost:{port}",
    ],
)
def test_pages_of_other_sites_reach_nothing(
    client: httpx.Client, store: Store, refused: "Refused", origin: str
) -> None:
    """Another port is another site; what such a page sends is not acted upon."""
    headers = {"Origin": origin.format(port=client.base_url.port)}
    answer = client.post("/reports", json={"year": 2026}, headers=headers)
    assert "Origin" in refused(answer, problems.FOREIGN_SITE)
    assert store.list() == []


def test_the_servers_own_pages_reach_it(client: httpx.Client) -> None:
    """/docs sends its requests with an Origin too: the server's."""
    headers = {"Origin": f"http://localhost:{client.base_url.port}"}
    assert client.post("/reports", json={"year": 2026}, headers=headers).status_code == 202


# The token.


@pytest.fixture
def guarded(serve: Serve, store: Store) -> httpx.Client:
    """Return a client of a server with a token."""
    return serve(create_app(store, token=TOKEN))


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "",
        "Bearer",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        "Bearer é",
        f"Bearer {'x' * 9_000}",
    ],
)
def test_operators_need_the_token(
    guarded: httpx.Client, refused: "Refused", sent: str | None
) -> None:
    """401 names the way to send it; nothing else about the request is told before."""
    headers = {} if sent is None else {b"Authorization": sent.encode()}
    for method, path in OPERATIONS:
        answer = guarded.request(method, path, headers=headers)
        assert TOKEN not in refused(answer, problems.UNAUTHORIZED)
        assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_operators_with_the_token_are_let_in(guarded: httpx.Client, scheme: str) -> None:
    """The name of the scheme is not case-sensitive (RFC 9110, section 11.1)."""
    for method, path in OPERATIONS[:-1]:  # the last is a stream without an end
        answer = guarded.request(method, path, headers={"Authorization": f"{scheme} {TOKEN}"})
        assert answer.status_code == (404 if "abc" in path else 200)


def test_who_asks_for_work_needs_no_token(guarded: httpx.Client) -> None:
    """To submit, and to ask for one job by its id, is for all; the id is hard to guess."""
    assert guarded.post("/reports", json={"year": 2026}).status_code == 202
    assert guarded.post("/jobs", json={"kind": "noop"}).status_code == 202
    for path in FOR_ALL:
        assert guarded.get(path).status_code == (404 if "abc" in path else 200)


def test_a_faulty_request_without_the_token_is_told_of_the_token_alone(
    guarded: httpx.Client, refused: "Refused"
) -> None:
    """Who may not delete does not learn how."""
    refused(guarded.delete("/jobs?older_than_seconds=x"), problems.UNAUTHORIZED)


def test_the_token_is_compared_in_constant_time(
    guarded: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long the answer takes does not tell how much of a guess is right."""
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def record(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", record)
    for guess in ("wrong", TOKEN):
        guarded.get("/stats", headers={"Authorization": f"Bearer {guess}"})
    assert compared == [(b"wrong", TOKEN.encode()), (TOKEN.encode(), TOKEN.encode())]


def other_addresses() -> Iterator[str]:
    """Give the addresses at which other machines reach this one."""
    for addresses in psutil.net_if_addrs().values():
        for a in addresses:
            is_v4 = a.family == socket.AF_INET
            if is_v4 and not ipaddress.ip_address(a.address).is_loopback:
                yield a.address


def test_a_server_without_a_token_is_for_its_own_machine(
    serving: "Serving", store: Store, refused: "Refused"
) -> None:
    """At an address that others reach, operators are refused until there is a token."""
    address = next(other_addresses(), None)
    if address is None:
        pytest.skip("this machine has no address but its own")
    app = create_app(store, allowed_hosts=[address])
    with serving(app, address) as client:
        assert client.post("/jobs", json={"kind": "noop"}).status_code == 202
        for method, path in OPERATIONS:
            detail = refused(client.request(method, path), problems.NO_TOKEN)
            assert "JOBQ_TOKEN" in detail
        local = {"Host": "localhost"}  # which a client may claim
        refused(client.get("/stats", headers=local), problems.NO_TOKEN)
    app = create_app(store, allowed_hosts=[address], token=TOKEN)
    with serving(app, address) as client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get("/stats", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("server", "host", "status"),
    [
        (("127.0.0.1", 80), "localhost", 200),
        (("127.9.9.9", 80), "localhost", 200),
        (("::1", 80), "[::1]:80", 200),
        (("::ffff:127.0.0.1", 80), "127.0.0.1", 200),
        (("/run/jobq.sock", None), "localhost", 200),
        (("::ffff:192.0.2.1", 80), "localhost", 403),
        (("0.0.0.0", 80), "localhost", 403),  # noqa: S104 - an address to refuse, not to bind
        (("fe80::1%eth0", 80), "localhost", 403),
        (("somewhere.example", 80), "localhost", 403),
        (None, "localhost", 403),
        (("127.0.0.1", 80), "jobs.example", 403),
    ],
)
def test_local_is_what_the_server_says_it_is(
    store: Store, server: tuple[str, int | None] | None, host: str, status: int
) -> None:
    """What no real socket here can be: an unknown address is not taken for a local one.

    Neither is a name for others that a proxy on this machine passes on.
    """
    app = create_app(store, allowed_hosts=["jobs.example"])
    assert asyncio.run(status_of(app, server, host)) == status


async def status_of(app: FastAPI, server: tuple[str, int | None] | None, host: str) -> int:
    """Ask for /stats as an ASGI server would, and return the status code."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/stats",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", host.encode())],
        "server": server,
        "client": None,
    }
    await app(scope, receive, send)
    return int(sent[0]["status"])


# The body.


@pytest.mark.parametrize("path", ["/jobs", "/reports"])
@pytest.mark.parametrize("chunked", [False, True])
def test_the_limit_of_a_body_is_the_apps(
    serve: Serve, store: Store, refused: "Refused", path: str, *, chunked: bool
) -> None:
    """A body of the limit is read, one byte more is not, declared or not."""
    client = serve(create_app(store, max_body_bytes=100))

    def post(size: int) -> httpx.Response:
        body = b"{}".ljust(size)
        content = iter([body[:50], body[50:]]) if chunked else body
        headers = {"Content-Type": "application/json"}
        return client.post(path, content=content, headers=headers)

    refused(post(100), problems.INVALID_FIELDS)
    refused(post(101), problems.BODY_TOO_LARGE)


# HEAD.


@pytest.mark.parametrize("path", ["/jobs", "/jobs/{id}", "/jobs/{id}/attempts", "/stats", "/docs"])
def test_head_is_get_without_the_body(client: httpx.Client, store: Store, path: str) -> None:
    """The headers are those of GET, Content-Length too."""
    path = path.format(id=store.enqueue("noop", {}).job.id)
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    for name in ("Content-Type", "Content-Length", "ETag", "Retry-After"):
        assert head.headers.get(name) == get.headers.get(name)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/none", 404), ("/jobs/abc", 404), ("/reports", 405), ("/events", 405), ("/jobs?x=1", 422)],
)
def test_head_may_be_refused(client: httpx.Client, path: str, status: int) -> None:
    """What GET is refused for, HEAD is; a stream without a body would be none."""
    answer = client.head(path)
    assert (answer.status_code, answer.content) == (status, b"")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/jobs", {"GET", "POST", "DELETE"}),
        ("/reports", {"POST"}),
        ("/jobs/retry", {"POST"}),
        ("/jobs/abc/cancel", {"POST"}),
        ("/health", {"GET"}),
        ("/events", {"GET"}),
    ],
)
def test_allow_names_all_methods_of_a_path(
    client: httpx.Client, path: str, allowed: set[str]
) -> None:
    """A 405 tells what the path is served with (RFC 9110, section 15.5.6)."""
    answer = client.request("PATCH", path)
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) - {"HEAD"} == allowed
