"""Errors as problem details (RFC 9457): every error that the API sends has one shape.

`type` is what a program compares. It is a path of this server, and getting it explains the
problem. What HTTP itself defines, such as an unknown path, has the type `about:blank`.
"""

import json
import logging
import reprlib
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException  # FastAPI's is one of these

from jobq.errors import IdempotencyConflict, InvalidInput, StoreBusy, StoreError, UnknownJob

log = logging.getLogger(__name__)

PROBLEM_JSON = "application/problem+json"
BUSY_SECONDS = 1  # until a busy store is worth another try
MAX_FAULTS = 20  # that one answer names
MAX_SHOWN = 40  # characters of a value


class ProblemType(NamedTuple):
    """What can go wrong, and the mend."""

    uri: str
    status: int
    title: str
    meaning: str
    example: Mapping[str, Any] = {}  # of the members that only this problem has


MALFORMED_BODY = ProblemType(
    "/problems/malformed-body",
    400,
    "Malformed body",
    "The body is not JSON that can be read: send one object in UTF-8, without deep nesting.",
)
INVALID_INPUT = ProblemType(
    "/problems/invalid-input",
    400,
    "Invalid input",
    "What was sent beside the body, such as Idempotency-Key, breaks the rule that `detail` names.",
)
UNKNOWN_JOB = ProblemType(
    "/problems/unknown-job",
    404,
    "Unknown job",
    "No job has this id: use the `job_id` that the request for the job was answered with.",
)
BODY_TOO_LARGE = ProblemType(
    "/problems/body-too-large",
    413,
    "Body too large",
    "The body is longer than any request needs to be: send the described fields and no others.",
)
NOT_JSON = ProblemType(
    "/problems/not-json",
    415,
    "Not JSON",
    "The body is not said to be JSON: send the header Content-Type: application/json.",
)
INVALID_FIELDS = ProblemType(
    "/problems/invalid-fields",
    422,
    "Invalid fields",
    "Fields of the body break rules: `errors` names each field, its value and the rule.",
    {"errors": [{"field": "year", "detail": "is true: use a number"}]},
)
IDEMPOTENCY_CONFLICT = ProblemType(
    "/problems/idempotency-conflict",
    422,
    "Idempotency key used before",
    "The key belongs to a job that was asked for with other values of the fields that `differing` "
    "names: repeat the first request exactly, or use a new key.",
    {"differing": ["year"]},
)
STORE_BUSY = ProblemType(
    "/problems/store-busy",
    503,
    "Store busy",
    "Others kept the store from being written to, and nothing was changed: send the same request "
    "again after the seconds in Retry-After.",
)
STORE_UNAVAILABLE = ProblemType(
    "/problems/store-unavailable",
    503,
    "Store unavailable",
    "The store cannot be used, for instance because its disk is full, and nothing was changed: "
    "the server's log tells why. Send the same request again once that is mended.",
)
TYPES = (
    *(MALFORMED_BODY, INVALID_INPUT, UNKNOWN_JOB, BODY_TOO_LARGE, NOT_JSON),
    *(INVALID_FIELDS, IDEMPOTENCY_CONFLICT, STORE_BUSY, STORE_UNAVAILABLE),
)


class FieldFault(BaseModel):
    """A field that breaks a rule."""

    field: str
    detail: str = Field(description="Its value, and the rule.")


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str = Field(description="What went wrong, for programs; getting it explains it.")
    title: str = Field(description="What went wrong, in words.")
    status: int = Field(description="The status code of the answer.")
    detail: str = Field(description="What went wrong this time, and the mend.")
    instance: str = Field(description="The path that was asked for.")
    errors: list[FieldFault] = Field([], description="Of invalid-fields: each faulty field.")
    differing: list[str] = Field(
        [], description="Of idempotency-conflict: each field that differs."
    )


RETRY_AFTER = {
    "Retry-After": {
        "description": "Whole seconds to wait before asking again (RFC 9110, section 10.2.3).",
        "schema": {"type": "integer", "minimum": 1},
    }
}

router = APIRouter()


@router.get("/problems/{name}", response_class=PlainTextResponse, include_in_schema=False)
async def explain_problem(name: str) -> str:
    """Explain a type of problem in plain text."""
    for problem in TYPES:
        if problem.uri == f"/problems/{name}":
            return f"{problem.title} ({problem.status})\n\n{problem.meaning}\n"
    raise HTTPException(404)


def documented(path: str, *types: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of the operation at `path` that can end in these problems.

    FastAPI puts a model under application/json: pass its document to `with_media_type`.
    """
    responses: dict[int | str, dict[str, Any]] = {}
    for problem in types:
        empty = {"model": Problem, "description": "", "content": {PROBLEM_JSON: {"examples": {}}}}
        response = responses.setdefault(problem.status, empty)
        response["description"] += f"**{problem.title}.** {problem.meaning}\n\n"
        example = _content(problem, problem.meaning, path, **problem.example)
        response["content"][PROBLEM_JSON]["examples"][problem.title] = {"value": example}
        if problem is STORE_BUSY:
            response["headers"] = RETRY_AFTER
    other = {"model": Problem, "description": "Any other error.", "content": {PROBLEM_JSON: {}}}
    return responses | {"default": other}


def with_media_type(document: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document with the schema of a problem under its own media type."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                content = response["content"]
                if PROBLEM_JSON in content:
                    content[PROBLEM_JSON] |= content.pop("application/json", {})
    return document


def _content(problem: ProblemType, detail: str, instance: str, **members: Any) -> dict[str, Any]:
    return Problem(
        type=problem.uri,
        title=problem.title,
        status=problem.status,
        detail=detail,
        instance=instance,
        **members,
    ).model_dump(exclude_unset=True)


def _answer(
    request: Request,
    problem: ProblemType,
    detail: str | None = None,
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    return JSONResponse(
        _content(problem, detail or problem.meaning, quote(request.scope["path"]), **members),
        status_code=problem.status,
        headers=headers,
        media_type=PROBLEM_JSON,
    )


async def _unknown_job(request: Request, error: UnknownJob) -> Response:
    detail = f"no job has the id {_shown(error.job_id)}: use the job_id of an answer to a request"
    return _answer(request, UNKNOWN_JOB, detail)


async def _invalid_input(request: Request, error: InvalidInput) -> Response:
    return _answer(request, INVALID_INPUT, str(error))


async def _conflict(request: Request, error: IdempotencyConflict) -> Response:
    return _answer(request, IDEMPOTENCY_CONFLICT, str(error), differing=error.differing)


async def _busy(request: Request, _: StoreBusy) -> Response:
    return _answer(request, STORE_BUSY, headers={"Retry-After": str(BUSY_SECONDS)})


async def _unavailable(request: Request, error: StoreError) -> Response:
    log.error("%s", error)  # for the operator: the client learns nothing of files and folders
    return _answer(request, STORE_UNAVAILABLE)


async def _invalid_request(request: Request, error: RequestValidationError) -> Response:
    if isinstance(error.body, bytes):  # FastAPI parses what is said to be JSON, and nothing else
        return _answer(request, NOT_JSON)
    first, *_ = found = error.errors()
    if first["type"] == "json_invalid":
        why = f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][1]}"
        return _answer(request, MALFORMED_BODY, why)
    faults = [_fault(e) for e in found[:MAX_FAULTS]]
    detail = "; ".join(f"{fault.field} {fault.detail}" for fault in faults)
    return _answer(request, INVALID_FIELDS, detail, errors=faults)


def _fault(error: Mapping[str, Any]) -> FieldFault:
    field = ".".join(map(str, error["loc"][1:])) or "body"
    if error["type"] == "missing":
        return FieldFault(field=field, detail="is missing")
    if error["type"] == "extra_forbidden":
        return FieldFault(field=field, detail="is no field: see /openapi.json")
    rule = error["msg"]
    return FieldFault(
        field=field, detail=f"is {_shown(error['input'])}: {rule[0].lower()}{rule[1:]}"
    )


def _shown(value: Any) -> str:
    """Return a value as the client wrote it, more or less, and not all of a long one."""
    text = reprlib.repr(value) if isinstance(value, dict | list) else json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


async def _http_error(request: Request, error: HTTPException) -> Response:
    """Answer for what FastAPI found wrong before it called an endpoint."""
    for problem in (MALFORMED_BODY, BODY_TOO_LARGE):
        if error.status_code == problem.status:
            return _answer(request, problem)
    headers = error.headers or {}
    mend = f"use {headers['Allow']}" if "Allow" in headers else "see /openapi.json"
    detail = f"{request.method} {quote(request.scope['path'])} is not served: {mend}"
    return _answer(request, _of_status(error.status_code), detail, headers)


async def _unexpected(request: Request, _: Exception) -> Response:
    detail = "the server met an error that it did not expect; its log tells more"
    return _answer(request, _of_status(500), detail)


def _of_status(status: int) -> ProblemType:
    """Return the type that says no more than the status code (RFC 9457, section 4.2.1)."""
    phrase = HTTPStatus(status).phrase
    return ProblemType("about:blank", status, phrase, phrase)


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    UnknownJob: _unknown_job,
    InvalidInput: _invalid_input,
    IdempotencyConflict: _conflict,
    StoreBusy: _busy,
    StoreError: _unavailable,
    RequestValidationError: _invalid_request,
    HTTPException: _http_error,
    Exception: _unexpected,
}
