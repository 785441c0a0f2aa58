"""A proxy between a store and its server that loses what passes through it, when told to.

Loaded by the test files that need it, as a plug-in: it gives the fixtures `proxy` and `proxied`.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

if TYPE_CHECKING:
    from jobq.lab.pgserver import Server

CHUNK = 1 << 16  # bytes of one read
GONE_MS = 10_000  # milliseconds for a backend to end


# What becomes of a message to the server, and of its connection.
Fate = Literal[
    "cut",  # the connection breaks before the message arrives
    "terminated",  # the server ends the backend before it arrives
    "unanswered",  # it is carried out, and the connection breaks before the answer arrives
    "swallowed",  # it disappears, and everything after it on this connection, both ways
    "silenced",  # it is carried out; the answer disappears, and everything after it
]
Judge = Callable[[bytes], Fate | None]  # None: it is passed on


class Link:
    """One client's connection, and the proxy's own to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.dead = False  # bytes were lost: nothing can ever arrive in order again
        self.fate: Fate | None = None  # of the last message that was not passed on

    def hang_up(self) -> None:
        """End both connections; what was passed on before still arrives."""
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give both sockets back to the system."""
        self.client.close()
        self.server.close()


class Proxy:
    """Passes on what comes at its port, unless `swallowing`, or a judge decides otherwise.

    `terminate(port)` ends the backend that serves the connection from that local port.
    """

    def __init__(self, to_port: int, terminate: Callable[[int], None]) -> None:
        self._to = ("127.0.0.1", to_port)
        self._terminate = terminate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[Link] = []
        self._judge: Judge | None = None
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0  # connections so far
        self.swallowing = False  # accepts, reads, and passes nothing on
        self._start(self._accept)

    def judge(self, judge: Judge | None) -> None:
        """Ask this about each message to the server, until it has decided against one."""
        with self._lock:
            self._judge = judge

    @property
    def armed(self) -> bool:
        """Whether the judge has not yet decided against a message."""
        return self._judge is not None

    def hang_up(self) -> None:
        """Break every connection."""
        for link in list(self._links):
            link.hang_up()

    def close(self) -> None:
        """Break every connection, and accept no more."""
        with suppress(OSError):  # so that `accept` returns
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.hang_up()
        for thread in self._threads[1:]:
            thread.join()
        for link in self._links:
            link.close()

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                try:
                    server = socket.create_connection(self._to)
                except OSError:  # the server is down: so it looks to the client
                    client.close()
                    continue
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link = Link(client, server)
                self._links.append(link)
                self._start(self._pump, link, client, server, self._asked)
                self._start(self._pump, link, server, client, self._answered)

    def _pump(
        self,
        link: Link,
        source: socket.socket,
        target: socket.socket,
        passes: Callable[[Link, bytes], bool],
    ) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                link.dead = link.dead or self.swallowing
                if not link.dead and passes(link, data):
                    target.sendall(data)
        if not (link.dead or self.swallowing):  # an end is a packet too, and disappears
            link.hang_up()

    def _asked(self, link: Link, message: bytes) -> bool:
        """Decide about a message of the client's; return whether it is passed on."""
        fate = self._decide(message)
        if fate is None:
            return True
        link.fate = fate
        if fate == "terminated":
            self._terminate(link.server.getsockname()[1])
        elif fate == "cut":
            link.hang_up()
        elif fate == "swallowed":
            link.dead = True
        return fate not in {"cut", "swallowed"}

    def _answered(self, link: Link, _: bytes) -> bool:
        """Decide about an answer of the server's; return whether it is passed on."""
        if link.fate == "unanswered":
            link.hang_up()
        elif link.fate == "silenced":
            link.dead = True
        return link.fate not in {"unanswered", "silenced"}

    def _decide(self, message: bytes) -> Fate | None:
        with self._lock:
            fate = None if self._judge is None else self._judge(message)
            if fate is not None:
                self._judge = None
            return fate


@pytest.fixture
def proxy(pg_server: "Server") -> Iterator[Proxy]:
    """Return a proxy to the tests' server."""

    def terminate(port: int) -> None:
        control.execute(
            "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE client_port = %s",
            (GONE_MS, port),
        )

    with ExitStack() as end:
        control = end.enter_context(closing(psycopg.connect(pg_server.url(), autocommit=True)))
        yield end.enter_context(closing(Proxy(pg_server.port, terminate)))


@pytest.fixture
def proxied(proxy: Proxy) -> Callable[[str], str]:
    """Return what turns the URL of a store into one that goes through the proxy."""

    def through(url: str) -> str:
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{proxy.port}"))

    return through
