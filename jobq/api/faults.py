"""What every error becomes on its way out: the problem that tells the client, with its mend."""

import json
import logging
import reprlib
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException  # FastAPI's is one of these

from jobq.api import problems
from jobq.errors import (
    IdempotencyConflict,
    InvalidInput,
    StoreBusy,
    StoreError,
    UnknownJob,
    WrongStatus,
)
from jobq.store.rows import UnreadableJob

log = logging.getLogger(__name__)

BUSY_SECONDS = 1  # until a busy store is worth another try
MAX_FAULTS = 20  # that one answer names
MAX_SHOWN = 40  # characters of a value


async def _unknown_job(request: Request, error: UnknownJob) -> Response:
    detail = f"no job has the id {_shown(error.job_id)}: use the job_id of an answer to a request"
    return problems.answer(request, problems.UNKNOWN_JOB, detail)


async def _invalid_input(request: Request, error: InvalidInput) -> Response:
    return problems.answer(request, problems.INVALID_INPUT, str(error))


async def _wrong_status(request: Request, error: WrongStatus) -> Response:
    return problems.answer(request, problems.WRONG_STATUS, str(error))


async def _unauthorized(request: Request, error: problems.Unauthorized) -> Response:
    return problems.answer(
        request, problems.UNAUTHORIZED, str(error), {"WWW-Authenticate": "Bearer"}
    )


async def _forbidden(request: Request, error: problems.Forbidden) -> Response:
    return problems.answer(request, problems.NO_TOKEN, str(error))


async def _conflict(request: Request, error: IdempotencyConflict) -> Response:
    return problems.answer(
        request, problems.IDEMPOTENCY_CONFLICT, str(error), differing=error.differing
    )


async def _unreadable(request: Request, error: UnreadableJob) -> Response:
    log.error("%s", error)
    return problems.answer(request, problems.UNREADABLE_JOB)


async def _busy(request: Request, _: StoreBusy) -> Response:
    return problems.answer(request, problems.STORE_BUSY, headers={"Retry-After": str(BUSY_SECONDS)})


async def _unavailable(request: Request, error: StoreError) -> Response:
    log.error("%s", error)  # for the operator: the client learns nothing of files and folders
    return problems.answer(request, problems.STORE_UNAVAILABLE)


async def _invalid_request(request: Request, error: RequestValidationError) -> Response:
    if isinstance(error.body, bytes):  # FastAPI parses what is said to be JSON, and nothing else
        return problems.answer(request, problems.NOT_JSON)
    first, *_ = found = error.errors()
    if first["type"] == "json_invalid":
        why = f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][1]}"
        return problems.answer(request, problems.MALFORMED_BODY, why)
    faults = [_fault(e) for e in found[:MAX_FAULTS]]
    detail = "; ".join(f"{fault.field} {fault.detail}" for fault in faults)
    return problems.answer(request, problems.INVALID_FIELDS, detail, errors=faults)


def _fault(error: Mapping[str, Any]) -> problems.FieldFault:
    field = ".".join(map(str, error["loc"][1:])) or "body"
    if error["type"] == "missing":
        return problems.FieldFault(field=field, detail="is missing")
    if error["type"] == "extra_forbidden":
        return problems.FieldFault(field=field, detail="is no field: see /openapi.json")
    rule = error["msg"]
    return problems.FieldFault(
        field=field, detail=f"is {_shown(error['input'])}: {rule[0].lower()}{rule[1:]}"
    )


def _shown(value: Any) -> str:
    """Return a value as the client wrote it, more or less, and not all of a long one."""
    text = reprlib.repr(value) if isinstance(value, dict | list) else json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


async def _http_error(request: Request, error: HTTPException) -> Response:
    """Answer for what FastAPI found wrong before it called an endpoint."""
    for problem in (problems.MALFORMED_BODY, problems.BODY_TOO_LARGE):
        if error.status_code == problem.status:
            return problems.answer(request, problem)
    headers = dict(error.headers or {})
    mend = "see /openapi.json"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods(request, headers["Allow"]))
        mend = f"use {headers['Allow']}"
    detail = f"{request.method} {quote(request.scope['path'])} is not served: {mend}"
    return problems.answer(request, problems.of_status(error.status_code), detail, headers)


def _methods(request: Request, of_first_route: str) -> list[str]:
    """Return what the path is served with: Starlette knows of the first route that fits only."""
    route = request.scope.get("route")
    operations = request.app.openapi()["paths"].get(getattr(route, "path", None))
    return [method.upper() for method in operations] if operations else [of_first_route]


async def _unexpected(request: Request, _: Exception) -> Response:
    detail = "the server met an error that it did not expect; its log tells more"
    return problems.answer(request, problems.of_status(500), detail)


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    UnknownJob: _unknown_job,
    InvalidInput: _invalid_input,
    IdempotencyConflict: _conflict,
    WrongStatus: _wrong_status,
    problems.Unauthorized: _unauthorized,
    problems.Forbidden: _forbidden,
    UnreadableJob: _unreadable,
    StoreBusy: _busy,
    StoreError: _unavailable,
    RequestValidationError: _invalid_request,
    HTTPException: _http_error,
    Exception: _unexpected,
}
