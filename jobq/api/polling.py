"""Ask how a job stands, now or as soon as that is worth telling."""

import hashlib
import math
import re
import time
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic.json_schema import SkipJsonSchema

from jobq.api import problems
from jobq.api.dependencies import FeedOfApp, StoreOfApp
from jobq.api.feed import Feed
from jobq.api.messages import Attempts, AttemptState, JobState
from jobq.errors import UnknownJob
from jobq.job import Job, Status
from jobq.store import Store

# `Prefer: respond-async, wait=10`; what stands in quotation marks is somebody else's.
WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*"?([0-9]{1,99})"?\s*(?:$|[,;])', re.IGNORECASE)
QUOTED = re.compile(r'"(?![0-9]+")(?:[^"\\]|\\.)*"')
LONGEST_WAIT = 60  # seconds of `Prefer: wait`
LONGEST_RETRY = 60  # seconds of Retry-After: a mean run time is no promise
LONGEST_SLEEP = 31_536_000  # seconds of it, a year, for a job that was put off further

POLLED = {
    **problems.RETRY_AFTER,
    "ETag": {
        "description": "Changes whenever the answer does: send it back as If-None-Match.",
        "schema": {"type": "string"},
    },
    "Preference-Applied": {
        "description": "The wait that was granted, of at most 60 s (RFC 7240).",
        "schema": {"type": "string"},
    },
}

router = APIRouter()


@router.get(
    "/jobs/{job_id}",
    summary="Poll for a job",
    response_model=JobState,
    response_description="How the job stands; with Retry-After while it is queued or running.",
    responses={
        200: {"headers": POLLED},
        304: {"description": "It stands as it did: nothing is sent.", "headers": POLLED},
        **problems.documented(
            "/jobs/no-such-id",
            problems.UNKNOWN_JOB,
            problems.UNREADABLE_JOB,
            problems.STORE_BUSY,
            problems.STORE_UNAVAILABLE,
        ),
    },
)
async def job_status(
    request: Request,
    job_id: str,
    store: StoreOfApp,
    feed: FeedOfApp,
    _prefer: Annotated[
        str | SkipJsonSchema[None],
        Header(
            alias="Prefer",
            description="`wait=N`: answer as soon as the job is final, or, with If-None-Match, "
            "stands otherwise; after N seconds in any case (RFC 7240, at most 60).",
            examples=["wait=20"],
        ),
    ] = None,
    _if_none_match: Annotated[
        str | SkipJsonSchema[None],
        Header(
            alias="If-None-Match",
            description="An ETag: the answer is 304 if it is still the same.",
        ),
    ] = None,
) -> Response:
    """Tell how a job stands, and what its work returned."""
    seconds = _wanted_wait(_lines(request, "Prefer") or "")
    known = _lines(request, "If-None-Match")
    look = await _settled(job_id, store, feed, seconds or 0, known)
    headers = {"ETag": look.tag, "Cache-Control": "no-cache"}
    if seconds is not None:
        headers["Preference-Applied"] = f"wait={seconds}"
    if not look.job.status.final:
        headers["Retry-After"] = str(await run_in_threadpool(retry_after, look.job, store))
    if look.is_one_of(known):
        return Response(status_code=304, headers=headers)
    return Response(look.body, headers=headers, media_type="application/json")


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


class _Look(NamedTuple):
    """A job as it was when it was looked at."""

    job: Job
    body: bytes

    @property
    def tag(self) -> str:
        """The entity tag of the answer."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    def is_one_of(self, tags: str | None) -> bool:
        """Whether the client has the answer already (RFC 9110, section 13.1.2)."""
        known = {tag.strip().removeprefix("W/") for tag in (tags or "").split(",")}
        return self.tag in known or "*" in known


async def _settled(
    job_id: str, store: Store, feed: Feed, seconds: float, tags: str | None
) -> _Look:
    """Return the job once it is final, or other than the client knows it, or time is over."""
    deadline = time.monotonic() + seconds
    while True:
        # Before the look: an event that comes between the two ends the wait.
        seen = await run_in_threadpool(store.last_event) if seconds else 0
        look = await run_in_threadpool(_look, job_id, store)
        left = deadline - time.monotonic()
        news = tags is not None and not look.is_one_of(tags)
        if look.job.status.final or news or left <= 0 or feed.stopping:
            return look
        await feed.wait(seen, left, job_id)


def _look(job_id: str, store: Store) -> _Look:
    job = store.get(job_id)
    if job is None:
        raise UnknownJob(job_id)
    return _Look(job, JobState.model_validate(job).model_dump_json().encode())


def _lines(request: Request, name: str) -> str | None:
    """Return a header that is a list, which may come in several lines (RFC 9110, section 5.3)."""
    return ", ".join(request.headers.getlist(name)) if name in request.headers else None


def _wanted_wait(prefer: str) -> int | None:
    """Return the seconds to wait, if any are wished for; what is malformed counts for nothing."""
    wished = WAIT.search(QUOTED.sub('""', prefer))
    return None if wished is None else min(int(wished[1]), LONGEST_WAIT)


def retry_after(job: Job, store: Store) -> int:
    """Return the whole seconds, 1 or more, until it is worth asking for the job again.

    That is until its next attempt may begin, and as long as jobs of its kind took lately.
    """
    now, typical = store.now(), store.typical_seconds(job.kind) or 0.0
    if job.status is Status.QUEUED:
        wait = min(max(0.0, job.run_after - now), LONGEST_SLEEP)
        return max(1, math.ceil(wait), round(min(wait + typical, wait + LONGEST_RETRY)))
    left = typical - (now - (job.started_at or now))
    return max(1, round(min(left, LONGEST_RETRY)))
