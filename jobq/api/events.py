"""Server-Sent Events: what happens to a job, or to all, told as it happens.

The ids are the numbers of the event log, so a client that comes again with `Last-Event-ID`, as a
browser's EventSource does by itself, misses nothing and is told nothing twice. The format is
https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

import asyncio
import re
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from types import FrameType
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import SkipJsonSchema

from jobq.api import problems
from jobq.api.dependencies import FeedOfApp, Operator, StoreOfApp
from jobq.api.feed import KEPT, PAUSE_SECONDS, Feed
from jobq.api.messages import ProgressState, RunAfter, Time
from jobq.errors import InvalidInput, StoreError, UnknownJob
from jobq.job import Event, EventName, Status
from jobq.store import Store

LOOK_SECONDS = 30.0  # between two looks whether a job that is silent is still there
RETRY_MILLISECONDS = 1_000  # that a browser waits before it comes again
NUMBER, LARGEST_ID = re.compile("[0-9]{1,19}"), 2**63 - 1

router = APIRouter()


class EventState(BaseModel):
    """What an event says; times are RFC 3339, in UTC, with microseconds."""

    model_config = ConfigDict(from_attributes=True)

    seq: int
    job_id: str
    at: Time
    name: EventName
    status: Status
    attempt: int
    worker: str | None
    error: str | None
    run_after: RunAfter
    progress: ProgressState | None


class NothingMore(Exception):
    """The job is final and the client has seen all: 204 tells an EventSource to stay away."""


async def nothing_more(_request: Request, _error: NothingMore) -> Response:
    """Answer 204."""
    return Response(status_code=204)


async def _last_event_id(
    last_event_id: Annotated[
        str | SkipJsonSchema[None],
        Header(
            description="The id of the last event that was seen; those after it are sent.",
            json_schema_extra={"pattern": "^[0-9]{0,18}$"},
        ),
    ] = None,
) -> int | None:
    if last_event_id is None or not last_event_id:
        return None
    if not NUMBER.fullmatch(last_event_id) or int(last_event_id) > LARGEST_ID:
        raise InvalidInput(
            f"Last-Event-ID is {last_event_id[:40]!r}: use the id of an event, a whole number"
        )
    return int(last_event_id)


LastEventId = Annotated[int | None, Depends(_last_event_id)]


def _start_of_job(job_id: str, store: StoreOfApp, last: LastEventId) -> int:
    """Return the event after which to begin. Raises UnknownJob and NothingMore."""
    job = store.get(job_id)
    if job is None:
        raise UnknownJob(job_id)
    start = _within(store, last or 0)
    if job.status.final and not store.events(job_id, after=start, limit=1):
        raise NothingMore
    return start


def _start_of_all(
    store: StoreOfApp,
    last: LastEventId,
    after: Annotated[
        int | SkipJsonSchema[None],
        Query(ge=0, le=LARGEST_ID, description="Begin after this event, and not with the next."),
    ] = None,
) -> int:
    """Return the event after which to begin; by default, the newest there is."""
    given = after if last is None else last
    return _within(store, LARGEST_ID if given is None else given)


def _within(store: Store, seq: int) -> int:
    """Return a place in the log: who asks for one beyond its end has it from another log."""
    return min(seq, store.last_event())


def _no_store(response: Response) -> None:
    response.headers["Cache-Control"] = "no-store"  # beside FastAPI's own `no-cache`


STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events as they happen; a comment each 15 s keeps the line open."}
}


@router.get(
    "/jobs/{job_id}/events",
    summary="Follow a job",
    response_class=EventSourceResponse,
    dependencies=[Depends(_no_store)],
    responses={
        **STREAM,
        204: {"description": "The job is final, and all its events were seen."},
        **problems.documented(
            "/jobs/no-such-id/events",
            problems.INVALID_INPUT,
            problems.UNKNOWN_JOB,
            problems.UNREADABLE_JOB,
            problems.STORE_BUSY,
            problems.STORE_UNAVAILABLE,
        ),
    },
)
async def job_events(
    job_id: str, store: StoreOfApp, feed: FeedOfApp, start: Annotated[int, Depends(_start_of_job)]
) -> AsyncIterator[ServerSentEvent]:
    """Send what happened to the job and what happens, until it is final; then the stream ends."""
    yield ServerSentEvent(retry=RETRY_MILLISECONDS)
    while events := await _news(store, feed, start, job_id):
        for event in events:
            yield message(event)
        start = events[-1].seq
        if events[-1].status.final:
            return


@router.get(
    "/events",
    summary="Follow all jobs",
    response_class=EventSourceResponse,
    dependencies=[Depends(_no_store), Operator],
    responses={
        **STREAM,
        **problems.documented(
            "/events",
            problems.INVALID_INPUT,
            *problems.OPERATOR,
            problems.INVALID_FIELDS,
            problems.STORE_BUSY,
            problems.STORE_UNAVAILABLE,
        ),
    },
)
async def all_events(
    store: StoreOfApp, feed: FeedOfApp, start: Annotated[int, Depends(_start_of_all)]
) -> AsyncIterator[ServerSentEvent]:
    """Send what happens to every job, from now on or from the event that was seen last."""
    yield ServerSentEvent(retry=RETRY_MILLISECONDS)
    while events := await _news(store, feed, start):
        for event in events:
            yield message(event)
        start = events[-1].seq


async def _news(store: Store, feed: Feed, after: int, job_id: str | None = None) -> list[Event]:
    """Return the next events; none if the server stops, or the job has been deleted.

    Trouble with the store is waited out: who listens would only come again.
    """
    while not feed.stopping:
        try:
            if events := await feed.wait(after, LOOK_SECONDS, job_id):
                return events
            if job_id is not None and await asyncio.to_thread(store.get, job_id) is None:
                break
        except UnknownJob:
            break
        except StoreError:  # the feed's thread logs it
            await asyncio.sleep(PAUSE_SECONDS)
    return []


@lru_cache(maxsize=KEPT)  # however many clients there are, an event is written out once
def message(event: Event) -> ServerSentEvent:
    """Return an event as it is sent."""
    state = EventState.model_validate(event)
    return ServerSentEvent(raw_data=state.model_dump_json(), event=event.name, id=str(event.seq))


@asynccontextmanager
async def stopping_with_server(feed: Feed) -> AsyncIterator[None]:
    """Have the feed stop as soon as the server is told to: it waits for open streams else.

    Within, the server's own handlers of SIGTERM and SIGINT are called after that. In a thread
    other than the main one there are none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(feed.stop)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    wrapped = [number for number, handler in before.items() if callable(handler)]
    for number in wrapped:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in wrapped:
            signal.signal(number, before[number])
