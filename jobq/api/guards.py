"""What every request passes before anything is done about it.

A web page on some other site can have a browser send requests to this machine. Two headers tell:
`Origin` names the page's site, and `Host` the name under which the browser found this server; a
site whose name resolves to 127.0.0.1 ("DNS rebinding") gives itself away by it.
"""

from collections.abc import Collection

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobq.api import problems

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class BodyLimit:
    """Refuses a body before it fills the memory; FastAPI's own limit answers in plain text."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app receive no more than the limit."""
        left = self._max_bytes

        async def receive_limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413)
            return message

        await self._app(scope, receive_limited, send)


class HeadAsGet:
    """Answers HEAD as it would GET; the server leaves out the body (RFC 9110, section 9.3.2).

    Not for streams: they would go on, though nobody listens.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app see a GET."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if is_head and not scope["path"].endswith("/events"):
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


class SameSite:
    """Refuses requests that came about on a page of another site."""

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._allowed = {*LOOPBACK_HOSTS, *map(_bracketed, allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for the app if the request is not to reach it."""
        if scope["type"] == "http":
            why = self._fault(Headers(scope=scope))
            if why is not None:
                response = problems.answer(Request(scope), problems.FOREIGN_SITE, why)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _fault(self, headers: Headers) -> str | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if _without_port(host).lower() not in self._allowed:
            return (
                f"Host is {host[:80]!r}, which is no name of this server: call it by "
                f"{', '.join(sorted(self._allowed))}, or add yours to JOBQ_ALLOWED_HOSTS"
            )
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return f"Origin is {origin[:80]!r}: only this server's own pages may call it"
        return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and (not port or port.isdigit()) else host


def _bracketed(host: str) -> str:
    """Return a host as it stands in the header without its port: IPv6 addresses in brackets."""
    name = host.strip().lower()
    return f"[{name}]" if name.count(":") > 1 and name[0] != "[" else _without_port(name)
