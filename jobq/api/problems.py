"""Errors as problem details (RFC 9457): every error that the API sends has one shape.

`type` is what a program compares. It is a path of this server, and getting it explains the
problem. What HTTP itself defines, such as an unknown path, has the type `about:blank`.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException  # FastAPI's is one of these

PROBLEM_JSON = "application/problem+json"


class ProblemType(NamedTuple):
    """What can go wrong, and the mend."""

    uri: str
    status: int
    title: str
    meaning: str
    example: Mapping[str, Any] = {}  # of the members that only this problem has
    notebook: str = "00_start_here"  # that explains it


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
UNREADABLE_JOB = ProblemType(
    "/problems/unreadable-job",
    500,
    "Unreadable job",
    "Another program has changed the row of this job into something that is none, and asking again "
    "does not help: the server's log and the list of jobs tell what is wrong with it.",
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
WRONG_STATUS = ProblemType(
    "/problems/wrong-status",
    409,
    "Wrong status",
    "The job stands where this cannot be done with it: see its status, and retry only what is "
    "failed or cancelled, cancel only what is queued or running.",
)
UNAUTHORIZED = ProblemType(
    "/problems/unauthorized",
    401,
    "Token missing or wrong",
    "This is for operators: send the server's JOBQ_TOKEN as `Authorization: Bearer …`.",
)
NO_TOKEN = ProblemType(
    "/problems/no-token",
    403,
    "Server without a token",
    "Operators are let in from other machines by a token only: start the server with JOBQ_TOKEN.",
)
FOREIGN_SITE = ProblemType(
    "/problems/foreign-site",
    403,
    "Foreign site",
    "The headers Host and Origin say that the request came about on a page of another site, or "
    "under a name that is not this server's: `detail` says which names are.",
)
STOPPING = ProblemType(
    "/problems/stopping",
    503,
    "Server stopping",
    "The server is about to end and takes no more requests: use another, or wait for the next.",
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
    "The store cannot be used, for instance because its disk is full or its database gives no "
    "answer: the server's log tells why. Send the same request again once that is mended; with "
    "an Idempotency-Key it takes effect once, whatever became of the first.",
)
TYPES = (
    *(MALFORMED_BODY, INVALID_INPUT, UNKNOWN_JOB, BODY_TOO_LARGE, NOT_JSON),
    *(INVALID_FIELDS, IDEMPOTENCY_CONFLICT, WRONG_STATUS, UNAUTHORIZED, NO_TOKEN, FOREIGN_SITE),
    *(UNREADABLE_JOB, STOPPING, STORE_BUSY, STORE_UNAVAILABLE),
)
OPERATOR = (UNAUTHORIZED, NO_TOKEN)  # of every endpoint that is for operators


class Unauthorized(Exception):
    """The token is missing or wrong."""


class Forbidden(Exception):
    """Nobody can be let in, because the server has no token."""


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
            more = f"Notebook {problem.notebook} tells more; `jobq lab` opens it."
            return f"{problem.title} ({problem.status})\n\n{problem.meaning}\n\n{more}\n"
    raise HTTPException(404)


def documented(path: str, *types: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of the operation at `path` that can end in these problems.

    A request from a foreign site ends everywhere before it has begun.

    FastAPI puts a model under application/json; `description` mends that.
    """
    responses: dict[int | str, dict[str, Any]] = {}
    for problem in (*types, FOREIGN_SITE):
        empty = {"model": Problem, "description": "", "content": {PROBLEM_JSON: {"examples": {}}}}
        response = responses.setdefault(problem.status, empty)
        response["description"] += f"**{problem.title}.** {problem.meaning}\n\n"
        example = _content(problem, problem.meaning, path, **problem.example)
        response["content"][PROBLEM_JSON]["examples"][problem.title] = {"value": example}
        if problem is STORE_BUSY:
            response["headers"] = RETRY_AFTER
    other = {"model": Problem, "description": "Any other error.", "content": {PROBLEM_JSON: {}}}
    return responses | {"default": other}


def _content(problem: ProblemType, detail: str, instance: str, **members: Any) -> dict[str, Any]:
    return Problem(
        type=problem.uri,
        title=problem.title,
        status=problem.status,
        detail=detail,
        instance=instance,
        **members,
    ).model_dump(exclude_unset=True)


def answer(
    request: Request,
    problem: ProblemType,
    detail: str | None = None,
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    """Return the problem as the answer to a request."""
    return JSONResponse(
        _content(problem, detail or problem.meaning, quote(request.scope["path"]), **members),
        status_code=problem.status,
        headers=headers,
        media_type=PROBLEM_JSON,
    )


def of_status(status: int) -> ProblemType:
    """Return the type that says no more than the status code (RFC 9457, section 4.2.1)."""
    phrase = HTTPStatus(status).phrase
    return ProblemType("about:blank", status, phrase, phrase)
