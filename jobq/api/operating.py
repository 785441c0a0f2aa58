"""What operators ask and do: list jobs, retry them, cancel one, delete old ones, count."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from jobq.api import problems
from jobq.api.dependencies import Operator, StoreOfApp
from jobq.api.messages import Deleted, JobDetails, JobPage, QueueStats, Retried
from jobq.job import Status
from jobq.strictjson import MAX_NAME

YEARS = 100 * 31_536_000  # in seconds; more than any job is old
LONGEST_PAGE = 500  # jobs

ALWAYS = (*problems.OPERATOR, problems.STORE_BUSY, problems.STORE_UNAVAILABLE)
ONE_JOB = (problems.UNKNOWN_JOB, problems.UNREADABLE_JOB, problems.WRONG_STATUS, *ALWAYS)

router = APIRouter(dependencies=[Operator])


class _Which(BaseModel):
    """Which jobs are meant. A misspelt parameter is refused: without it, too many would be."""

    model_config = ConfigDict(extra="forbid")

    kind: str | SkipJsonSchema[None] = Field(
        None, min_length=1, max_length=MAX_NAME, description="Only jobs of this kind."
    )


class _Listed(_Which):
    status: Status | SkipJsonSchema[None] = Field(None, description="Only jobs of this status.")
    limit: int = Field(50, ge=1, le=LONGEST_PAGE)
    before: str | SkipJsonSchema[None] = Field(
        None, description="Id of the last job of the page before."
    )


class _ToRetry(_Which):
    status: Literal["failed", "cancelled"] = Field("failed", description="Jobs of this status.")


class _ToDelete(BaseModel):
    model_config = _Which.model_config

    older_than_seconds: float = Field(
        ge=0, le=YEARS, allow_inf_nan=False, description="Since they ended."
    )
    status: Literal["done", "failed", "cancelled"] | SkipJsonSchema[None] = Field(
        None, description="Only jobs of this status."
    )


@router.get(
    "/jobs",
    summary="List jobs",
    response_description="A page of jobs, newest first.",
    responses=problems.documented(
        "/jobs",
        problems.INVALID_INPUT,
        problems.UNKNOWN_JOB,
        problems.INVALID_FIELDS,
        *ALWAYS,
    ),
)
def list_jobs(request: Request, store: StoreOfApp, wanted: Annotated[_Listed, Query()]) -> JobPage:
    """List jobs, newest first, a page at a time."""
    one_more = wanted.model_copy(update={"limit": wanted.limit + 1})
    jobs = store.list(**dict(one_more))
    following = None
    if len(jobs) > wanted.limit:
        jobs.pop()
        following = str(request.url.include_query_params(before=jobs[-1].id))
    return JobPage(jobs=[JobDetails.model_validate(job) for job in jobs], next=following)


@router.post(
    "/jobs/retry",
    summary="Retry many jobs",
    responses=problems.documented(
        "/jobs/retry", problems.INVALID_INPUT, problems.INVALID_FIELDS, *ALWAYS
    ),
)
def retry_jobs(store: StoreOfApp, wanted: Annotated[_ToRetry, Query()]) -> Retried:
    """Queue all failed, or all cancelled, jobs again, each once."""
    return Retried(retried=store.retry_all(status=Status(wanted.status), kind=wanted.kind))


@router.post(
    "/jobs/{job_id}/retry",
    summary="Retry a job",
    responses=problems.documented("/jobs/no-such-id/retry", *ONE_JOB),
)
def retry_job(job_id: str, store: StoreOfApp) -> JobDetails:
    """Queue a failed or cancelled job again; its attempts start over."""
    return JobDetails.model_validate(store.retry(job_id))


@router.post(
    "/jobs/{job_id}/cancel",
    summary="Cancel a job",
    status_code=200,
    response_description="It is cancelled.",
    responses={
        202: {"model": JobDetails, "description": "It runs, and its worker is told to stop it."},
        **problems.documented("/jobs/no-such-id/cancel", *ONE_JOB),
    },
)
def cancel_job(job_id: str, store: StoreOfApp, response: Response) -> JobDetails:
    """Cancel a queued job at once, a running one with its worker's next heartbeat."""
    job = store.cancel(job_id)
    if not job.status.final:
        response.status_code = 202
    return JobDetails.model_validate(job)


@router.delete(
    "/jobs",
    summary="Delete old jobs",
    responses=problems.documented("/jobs", problems.INVALID_FIELDS, *ALWAYS),
)
def delete_jobs(
    request: Request, store: StoreOfApp, wanted: Annotated[_ToDelete, Query()]
) -> Deleted:
    """Delete jobs that ended longer ago than that, with their attempts and events.

    A job with an idempotency key stays until it is a week old, or what the server's
    `JOBQ_KEEP_KEYS_SECONDS` says: so long the key is sure to give the same job.
    """
    deleted = store.prune(
        wanted.older_than_seconds,
        status=None if wanted.status is None else Status(wanted.status),
        keys_kept_seconds=request.app.state.keep_keys_seconds,
    )
    return Deleted(deleted=deleted)


@router.get(
    "/stats",
    summary="Count jobs",
    responses=problems.documented("/stats", *ALWAYS),
)
def stats(store: StoreOfApp) -> QueueStats:
    """Tell how many jobs stand where, how long the oldest has waited, and how many end."""
    return QueueStats.model_validate(store.stats())
