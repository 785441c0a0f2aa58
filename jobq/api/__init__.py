"""The HTTP protocol: ask for work, poll for it or follow its events, operate the queue.

    uvicorn jobq.api:app --port 8718

`app` is made when it is first asked for, from the settings in the environment; importing this
package reads none. `create_app` makes one on a store of the caller's.
"""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from jobq.api import (
    description,
    events,
    faults,
    health,
    operating,
    polling,
    problems,
    submitting,
)
from jobq.api.feed import Feed
from jobq.api.guards import BodyLimit, HeadAsGet, SameSite
from jobq.errors import JobqError
from jobq.kinds import builtin
from jobq.settings import Settings, load_settings
from jobq.store import Store, open_store
from jobq.store.operating import KEYS_KEPT_SECONDS

MAX_BODY_BYTES = 64_000
PARTS = {  # in this order: /jobs/retry is no job with the id "retry"
    submitting: "Ask for work",
    operating: "Operate the queue",
    polling: "Poll for it",
    events: "Follow it",
    health: "Look after the server",
    problems: "Problems",
}

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    store: Store,
    *,
    max_attempts: int = 3,
    token: str | None = None,
    allowed_hosts: Collection[str] = (),
    keep_keys_seconds: float = KEYS_KEPT_SECONDS,
    max_body_bytes: int = MAX_BODY_BYTES,
    at_end: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Return the API on a store, which stays the caller's to close.

    `max_attempts` is for each job that says nothing else. Operators have to send `token`, if
    there is one; `allowed_hosts` are names of this server beside localhost. For
    `keep_keys_seconds` an idempotency key is sure to give its job. `at_end` is called last.
    """
    feed = Feed(store)
    app = FastAPIOffline(  # its page at /docs is FastAPI's, without scripts from another host
        title="jobq",
        summary="Ask for work that takes longer than a request, and poll for its result.",
        version=version("jobq"),
        redoc_url=None,
        redirect_slashes=False,  # one path, one answer
        exception_handlers={**faults.HANDLERS, events.NothingMore: events.nothing_more},
        generate_unique_id_function=lambda route: route.name,
        lifespan=_lifespan(feed, at_end),
    )
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)
    app.add_middleware(HeadAsGet)
    app.add_middleware(SameSite, allowed_hosts=allowed_hosts)
    for part, title in PARTS.items():
        app.include_router(part.router, tags=[title])
    document = app.openapi
    app.openapi = lambda: description.completed(  # type: ignore[method-assign] # FastAPI's own way to extend it
        document(), builtin, needs_token=token is not None
    )
    app.state.store, app.state.feed = store, feed
    app.state.max_attempts, app.state.token = max_attempts, token
    app.state.keep_keys_seconds = keep_keys_seconds
    return app


def _lifespan(feed: Feed, at_end: Callable[[], None]) -> Lifespan:
    """Return what FastAPI enters before the first request, and leaves after the last."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with events.stopping_with_server(feed):
            yield
        feed.close()
        at_end()

    return lifespan


def __getattr__(name: str) -> FastAPI:
    """Make `app` when a server asks for it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app = globals()["app"] = _app_from_settings()
    return app


def app_for(settings: Settings, store: Store, **options: Any) -> FastAPI:
    """Return the API on a store, as the settings have it; the options are those of `create_app`."""
    return create_app(
        store,
        max_attempts=settings.max_attempts,
        token=settings.token,
        allowed_hosts=(settings.host, *settings.allowed_hosts),
        keep_keys_seconds=settings.keep_keys_seconds,
        max_body_bytes=settings.max_body_bytes,
        **options,
    )


def _app_from_settings() -> FastAPI:
    """Return the API on a store of its own, which is closed at shutdown."""
    try:
        settings = load_settings()
        store = open_store(
            settings.url,
            synchronous=settings.synchronous,
            max_bytes=settings.max_payload_bytes,
        )
    except JobqError as error:
        raise SystemExit(f"jobq: {error}") from None  # the server would show a traceback
    return app_for(settings, store, at_end=store.close)
