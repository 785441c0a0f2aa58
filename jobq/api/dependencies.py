"""What the endpoints are given: the store, the feed, the caller's rights, the idempotency key."""

import hmac
import ipaddress
import reprlib
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic.json_schema import SkipJsonSchema

from jobq.api.feed import Feed
from jobq.api.problems import Forbidden, Unauthorized
from jobq.errors import InvalidInput
from jobq.store import Store
from jobq.strictjson import MAX_NAME

BEARER = HTTPBearer(auto_error=False, description="The server's JOBQ_TOKEN, if it has one.")


async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


async def _feed(request: Request) -> Feed:
    feed: Feed = request.app.state.feed
    return feed


async def _operator(
    request: Request,
    sent: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
) -> None:
    """Let operators through: whoever sends the token, or is on this machine if there is none."""
    token: str | None = request.app.state.token
    if token is None:
        if not _is_local(request):
            raise Forbidden(
                "this server has no token, and is reached from beyond its own machine: start it "
                "with JOBQ_TOKEN set, and send that as a bearer token"
            )
    elif sent is None:
        raise Unauthorized("send the server's token: `Authorization: Bearer …`")
    elif not hmac.compare_digest(sent.credentials.encode(), token.encode()):
        raise Unauthorized("the token that was sent is not the server's")


def _is_local(request: Request) -> bool:
    """Whether the server was called at an address, and by a name, that only its machine knows.

    The name tells of a proxy on this machine that passes on what comes from others.
    """
    address, port = request.scope.get("server") or ("", 0)  # some servers do not tell
    by_socket_file = port is None
    return (by_socket_file or _is_loopback(address)) and _is_loopback(request.url.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
        # A server that listens at `::` is called at ::ffff:127.0.0.1 by who calls 127.0.0.1.
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return host.lower() == "localhost"


async def _idempotency_key(
    request: Request,
    _documented: Annotated[
        str | SkipJsonSchema[None],
        Header(
            alias="Idempotency-Key",
            description="Makes it safe to send a request again: with the same key the same body "
            "gives the same job. Printable ASCII, compared as it stands.",
            json_schema_extra={
                "minLength": 1,
                "maxLength": MAX_NAME,
                "pattern": "^[ -~]*[!-~][ -~]*$",
            },
            examples=["report-2026"],
        ),
    ] = None,
) -> str | None:
    """Return the key, which may be there once (draft-ietf-httpapi-idempotency-key-header)."""
    keys = request.headers.getlist("Idempotency-Key")
    if not keys:
        return None
    if len(keys) > 1:
        raise InvalidInput(f"Idempotency-Key was sent {len(keys)} times: send it once")
    key = keys[0]
    if not key.strip() or len(key) > MAX_NAME or not (key.isascii() and key.isprintable()):
        raise InvalidInput(
            f"Idempotency-Key is {reprlib.repr(key)}: use 1 to {MAX_NAME} printable ASCII "
            "characters, or leave it out"
        )
    return key


StoreOfApp = Annotated[Store, Depends(_store)]
FeedOfApp = Annotated[Feed, Depends(_feed)]
IdempotencyKey = Annotated[str | None, Depends(_idempotency_key)]
Operator = Depends(_operator)
