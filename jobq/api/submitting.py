"""Ask for work: the job is recorded, and the answer does not wait for it."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from jobq.api import problems
from jobq.api.dependencies import IdempotencyKey, StoreOfApp
from jobq.api.messages import JobAccepted, JobRequest, ReportRequest
from jobq.errors import NotStrictJson
from jobq.kinds import builtin

LOCATION = {
    "Location": {
        "description": "The URL of the job's status.",
        "schema": {"type": "string", "format": "uri"},
    }
}


def _responses(path: str) -> dict[int | str, dict[str, Any]]:
    return {
        202: {"headers": LOCATION},
        200: {
            "model": JobAccepted,
            "description": "The idempotency key was used before: this is its job.",
            "headers": LOCATION,
        },
        **problems.documented(
            path,
            problems.MALFORMED_BODY,
            problems.INVALID_INPUT,
            problems.BODY_TOO_LARGE,
            problems.NOT_JSON,
            problems.INVALID_FIELDS,
            problems.IDEMPOTENCY_CONFLICT,
            problems.STORE_BUSY,
            problems.STORE_UNAVAILABLE,
        ),
    }


EXACT = 2**53  # beyond it a float leaves out whole numbers
RECORDED = "A job was recorded durably, and a worker will run it."

router = APIRouter()


class Accepting:
    """Records a job and answers for it; given to the two endpoints that do so."""

    def __init__(
        self, request: Request, response: Response, store: StoreOfApp, key: IdempotencyKey
    ) -> None:
        self.store = store
        self._request = request
        self._response = response
        self._key = key

    def __call__(self, kind: str, payload: dict[str, Any], **options: Any) -> JobAccepted:
        """Record the job."""
        options.setdefault("max_attempts", self._request.app.state.max_attempts)
        try:
            job, created = self.store.enqueue(kind, payload, self._key, **options)
        except NotStrictJson as error:  # longer than this store takes it
            fault = {"type": "not_strict", "loc": ("body", "payload"), "msg": str(error)}
            raise RequestValidationError([{**fault, "input": payload}]) from None
        url = str(self._request.url_for("job_status", job_id=job.id))
        self._response.headers["Location"] = url
        if not created:
            self._response.status_code = 200
        return JobAccepted(job_id=job.id, status_url=url, created=created)


Accept = Annotated[Accepting, Depends(Accepting)]


@router.post(
    "/reports",
    summary="Ask for a report",
    status_code=202,
    response_description=RECORDED,
    responses=_responses("/reports"),
)
def request_report(body: ReportRequest, accept: Accept) -> JobAccepted:
    """Record a job that makes the sales report of a year, and answer without waiting for it."""
    return accept("sales_report", body.model_dump())


@router.post(
    "/jobs",
    summary="Ask for a job of any kind",
    status_code=202,
    response_description=RECORDED,
    responses=_responses("/jobs"),
)
def request_job(body: JobRequest, accept: Accept) -> JobAccepted:
    """Record a job of a kind that this server knows, with a payload that fits the kind."""
    payload = _checked(body)
    options: dict[str, Any] = {"priority": body.priority}
    if body.max_attempts is not None:
        options["max_attempts"] = body.max_attempts
    if body.delay_seconds:
        options["run_after"] = accept.store.now() + body.delay_seconds
    elif body.run_after is not None:
        options["run_after"] = max(0.0, body.run_after.timestamp())
    return accept(body.kind, payload, **options)


def _whole(value: Any) -> Any:
    """Return the value with 2026 for 2026.0: JSON has one kind of number, and so a schema."""
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    exact = isinstance(value, float) and value.is_integer() and abs(value) < EXACT
    return int(value) if exact else value


def _checked(body: JobRequest) -> dict[str, Any]:
    """Return the payload, with the defaults of its kind. Raises RequestValidationError."""
    kind = builtin.get(body.kind)
    if kind is None:
        rule = f"use one of {', '.join(builtin.kinds())}"
        fault = {"type": "unknown_kind", "loc": ("body", "kind"), "msg": rule, "input": body.kind}
        raise RequestValidationError([fault], body=body)
    if kind.payload is None:
        return body.payload
    try:
        return kind.payload.model_validate(_whole(body.payload)).model_dump(mode="json")
    except ValidationError as error:
        faults = [{**e, "loc": ("body", "payload", *e["loc"])} for e in error.errors()]
        raise RequestValidationError(faults, body=body) from None
