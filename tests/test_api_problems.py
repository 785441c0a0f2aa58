"""jobq.api.problems and jobq.api.faults: whatever error is documented can be met, and is so."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from jobq import Store
from jobq.api import MAX_BODY_BYTES, create_app, problems

if TYPE_CHECKING:
    from tests.conftest import Refused

BODIES = {"/reports": {"year": 2026}, "/jobs": {"kind": "noop"}}


class Server:
    """A server on a store of its own, that can be brought into every trouble."""

    def __init__(
        self, serve: Callable[[FastAPI], httpx.Client], opened: Callable[..., Store], folder: Path
    ) -> None:
        self.path = folder / "jobs.db"
        self.store = opened(self.path, busy_seconds=0.01)
        self.job = self.store.enqueue("noop", {}).job
        self._serve = serve

    def call(
        self, operation: str, app: FastAPI | None = None, job_id: str = "", **changes: Any
    ) -> httpx.Response:
        """Call as a client that makes no mistake does, but for the changes."""
        method, path = operation.split()
        body: dict[str, Any] = {}
        if method == "post" and path in BODIES:
            body = {"json": BODIES[path]}
        if "content" in changes:
            body = {}
        elif method == "delete":
            body = {"params": {"older_than_seconds": 0}}
        client = self._serve(app or create_app(self.store))
        url = path.format(job_id=job_id or self.job.id)
        return client.request(method.upper(), url, **(body | changes))


@pytest.fixture
def server(
    serve: Callable[[FastAPI], httpx.Client], opened: Callable[..., Store], tmp_path: Path
) -> Server:
    """Return a server with one job, which is queued."""
    return Server(serve, opened, tmp_path)


# How each problem is met, whatever the operation: what it does not read does no harm.


def malformed_body(server: Server, operation: str) -> httpx.Response:
    """Send what is said to be JSON, and is not."""
    return server.call(operation, content=b"{", headers={"Content-Type": "application/json"})


def not_json(server: Server, operation: str) -> httpx.Response:
    """Send what is not said to be JSON."""
    return server.call(operation, content=b"{}", headers={"Content-Type": "text/plain"})


def body_too_large(server: Server, operation: str) -> httpx.Response:
    """Send a byte too much."""
    headers = {"Content-Type": "application/json"}
    return server.call(operation, content=b" " * (MAX_BODY_BYTES + 1), headers=headers)


def invalid_input(server: Server, operation: str) -> httpx.Response:
    """Break the rules of headers and names."""
    headers = {"Idempotency-Key": "a\tb", "Last-Event-ID": "x"}
    return server.call(operation, headers=headers, params={"kind": "\0"})


def invalid_fields(server: Server, operation: str) -> httpx.Response:
    """Send a field that is none, and parameters that are not what they have to be."""
    body: dict[str, Any] = {"json": {"x": 1}} if operation.split()[1] in BODIES else {}
    return server.call(operation, params={"after": "x", "limit": "x", "all": "1"}, **body)


def unknown_job(server: Server, operation: str) -> httpx.Response:
    """Name a job that is not there."""
    return server.call(operation, job_id="none", params={"before": "none"})


def unreadable_job(server: Server, operation: str) -> httpx.Response:
    """Let another program spoil a job that could be cancelled, or retried."""
    job = server.store.enqueue("noop", {}).job
    if operation.endswith("/retry"):
        server.store.cancel(job.id)
    with closing(sqlite3.connect(server.path, isolation_level=None)) as other:
        other.execute("PRAGMA ignore_check_constraints = 1")
        other.execute("UPDATE jobs SET progress = '[' WHERE id = ?", (job.id,))
    return server.call(operation, job_id=job.id)


def idempotency_conflict(server: Server, operation: str) -> httpx.Response:
    """Use a key that belongs to something else."""
    server.store.enqueue("nap", {}, "k")
    return server.call(operation, headers={"Idempotency-Key": "k"})


def wrong_status(server: Server, operation: str) -> httpx.Response:
    """Come too late: the job is done."""
    job = server.store.claim("w1")
    if job is not None:
        server.store.finish(job, {})
    return server.call(operation)


def unauthorized(server: Server, operation: str) -> httpx.Response:
    """Send no token to a server that has one."""
    return server.call(operation, create_app(server.store, token="x" * 16))


def no_token(server: Server, operation: str) -> httpx.Response:
    """Come by a name that others know, as a proxy passes it on, to a server without a token."""
    app = create_app(server.store, allowed_hosts=["jobs.example"])
    return server.call(operation, app, headers={"Host": "jobs.example"})


def foreign_site(server: Server, operation: str) -> httpx.Response:
    """Come from a page of another site."""
    return server.call(operation, headers={"Origin": "https://elsewhere.example"})


def stopping(server: Server, operation: str) -> httpx.Response:
    """Ask a server that is about to end."""
    app = create_app(server.store)
    app.state.feed.stopping = True
    return server.call(operation, app)


def store_busy(server: Server, operation: str) -> httpx.Response:
    """Let another program have the database to itself."""
    server.store.close()  # SQLite gives nobody all of a file that others have open
    with closing(sqlite3.connect(server.path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        return server.call(operation)


def store_unavailable(server: Server, operation: str) -> httpx.Response:
    """Take the tables away."""
    with closing(sqlite3.connect(server.path)) as other:
        for table in ("events", "attempts", "jobs"):
            other.execute(f"DROP TABLE IF EXISTS {table}")
    return server.call(operation)


WAYS = {
    f"/problems/{way.__name__.replace('_', '-')}": way
    for way in (
        *(malformed_body, not_json, body_too_large, invalid_input, invalid_fields),
        *(unknown_job, unreadable_job, idempotency_conflict, wrong_status, unauthorized, no_token),
        *(foreign_site, stopping, store_busy, store_unavailable),
    )
}


def operations_with(document: dict[str, Any], problem: problems.ProblemType) -> Iterator[str]:
    """Yield the operations of which the document says that they can end so."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            response = operation["responses"].get(str(problem.status), {})
            examples = (
                response.get("content", {}).get(problems.PROBLEM_JSON, {}).get("examples", {})
            )
            if problem.uri in {example["value"]["type"] for example in examples.values()}:
                yield f"{method} {path}"


@pytest.mark.parametrize("problem", problems.TYPES, ids=lambda problem: problem.uri)
def test_every_documented_problem_can_be_met(
    server: Server, refused: "Refused", problem: problems.ProblemType
) -> None:
    """No operation is said to end in a problem that it cannot end in, and no type is idle."""
    operations = [*operations_with(create_app(server.store).openapi(), problem)]
    assert operations
    for operation in operations:
        answer = WAYS[problem.uri](server, operation)
        refused(answer, problem)
        said = answer.json()
        assert problems.Problem(**said).model_dump(exclude_unset=True) == said
