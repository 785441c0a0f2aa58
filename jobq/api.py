"""The HTTP protocol: ask for a report, poll for its job, read the job's attempts.

    uvicorn jobq.api:app --port 8718

`app` is made when it is first asked for, from the settings in the environment; importing this
module reads none. `create_app` makes one on a store of the caller's.
"""

import math
import reprlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi_offline import FastAPIOffline
from pydantic.json_schema import SkipJsonSchema
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobq import problems
from jobq.errors import InvalidInput, JobqError, UnknownJob
from jobq.job import Job, Status
from jobq.messages import Attempts, AttemptState, JobState, ReportAccepted, ReportRequest
from jobq.settings import load_settings
from jobq.store import Store, open_store
from jobq.strictjson import MAX_NAME

MAX_BODY_BYTES = 64_000

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


async def _idempotency_key(
    request: Request,
    _documented: Annotated[
        str | SkipJsonSchema[None],
        Header(
            alias="Idempotency-Key",
            description="Makes it safe to send a request again: with the same key the same body "
            "gives the same job. Printable ASCII, compared as it stands.",
            json_schema_extra={"minLength": 1, "maxLength": MAX_NAME},
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
IdempotencyKey = Annotated[str | None, Depends(_idempotency_key)]

LOCATION = {
    "Location": {
        "description": "The URL of the job's status.",
        "schema": {"type": "string", "format": "uri"},
    }
}

router = APIRouter()


@router.post(
    "/reports",
    summary="Ask for a report",
    status_code=202,
    response_description="A job was recorded durably, and a worker will run it.",
    responses={
        202: {"headers": LOCATION},
        200: {
            "model": ReportAccepted,
            "description": "The idempotency key was used before: this is its job.",
            "headers": LOCATION,
        },
        **problems.documented(
            "/reports",
            problems.MALFORMED_BODY,
            problems.INVALID_INPUT,
            problems.BODY_TOO_LARGE,
            problems.NOT_JSON,
            problems.INVALID_FIELDS,
            problems.IDEMPOTENCY_CONFLICT,
            problems.STORE_BUSY,
            problems.STORE_UNAVAILABLE,
        ),
    },
)
def request_report(
    body: ReportRequest,
    request: Request,
    response: Response,
    store: StoreOfApp,
    idempotency_key: IdempotencyKey,
) -> ReportAccepted:
    """Record a job that makes the sales report of a year, and answer without waiting for it."""
    job, created = store.enqueue(
        "sales_report",
        body.model_dump(),
        idempotency_key,
        max_attempts=request.app.state.max_attempts,
    )
    url = str(request.url_for("job_status", job_id=job.id))
    response.headers["Location"] = url
    if not created:
        response.status_code = 200
    return ReportAccepted(job_id=job.id, status_url=url, created=created)


@router.get(
    "/jobs/{job_id}",
    summary="Poll for a job",
    response_description="How the job stands; with Retry-After while it is queued or running.",
    responses={
        200: {"headers": problems.RETRY_AFTER},
        **problems.documented(
            "/jobs/no-such-id",
            problems.UNKNOWN_JOB,
            problems.STORE_BUSY,
            problems.STORE_UNAVAILABLE,
        ),
    },
)
def job_status(job_id: str, response: Response, store: StoreOfApp) -> JobState:
    """Tell how a job stands, and what its work returned."""
    job = store.get(job_id)
    if job is None:
        raise UnknownJob(job_id)
    if not job.status.final:
        response.headers["Retry-After"] = str(retry_after(job, store.now()))
    return JobState.model_validate(job)


@router.get(
    "/jobs/{job_id}/attempts",
    summary="List a job's attempts",
    response_description="The attempts, first one first.",
    responses=problems.documented(
        "/jobs/no-such-id/attempts",
        problems.UNKNOWN_JOB,
        problems.STORE_BUSY,
        problems.STORE_UNAVAILABLE,
    ),
)
def job_attempts(job_id: str, store: StoreOfApp) -> Attempts:
    """Tell who tried to do a job, when, and how it ended: crashes are seen here."""
    return Attempts(attempts=[AttemptState.model_validate(a) for a in store.attempts(job_id)])


def retry_after(job: Job, now: float) -> int:
    """Return the whole seconds, 1 or more, until it is worth asking for the job again."""
    return max(1, math.ceil(job.run_after - now)) if job.status is Status.QUEUED else 1


def create_app(store: Store, *, max_attempts: int = 3, lifespan: Lifespan | None = None) -> FastAPI:
    """Return the API on a store, which stays the caller's to close.

    `max_attempts` is for each job asked for; `lifespan` is FastAPI's.
    """
    app = FastAPIOffline(  # its page at /docs is FastAPI's, without scripts from another host
        title="jobq",
        summary="Ask for work that takes longer than a request, and poll for its result.",
        version=version("jobq"),
        redoc_url=None,
        redirect_slashes=False,  # one path, one answer
        exception_handlers=problems.HANDLERS,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.add_middleware(_BodyLimit)
    app.include_router(router)
    app.include_router(problems.router)
    document = app.openapi
    app.openapi = lambda: problems.with_media_type(document())  # type: ignore[method-assign] # FastAPI's own way to extend it
    app.state.store = store
    app.state.max_attempts = max_attempts
    return app


class _BodyLimit:
    """Refuses a body before it fills the memory; FastAPI's own limit answers in plain text."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = MAX_BODY_BYTES

        async def receive_limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413)
            return message

        await self._app(scope, receive_limited, send)


def __getattr__(name: str) -> FastAPI:
    """Make `app` when a server asks for it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app = globals()["app"] = _app_from_settings()
    return app


def _app_from_settings() -> FastAPI:
    """Return the API on a store of its own, which is closed at shutdown."""
    try:
        settings = load_settings()
        store = open_store(settings.url, synchronous=settings.synchronous)
    except JobqError as error:
        raise SystemExit(f"jobq: {error}") from None  # the server would show a traceback

    @asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        yield
        store.close()

    return create_app(store, max_attempts=settings.max_attempts, lifespan=closing)
