"""`jobq enqueue` and `jobq list`: jobs go in, and where they stand."""

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Any

import typer

from jobq.checks import check_seconds
from jobq.cli.lines import ID_SHOWN, fitting, print_json
from jobq.cli.options import (
    AnyKind,
    AsJson,
    Key,
    Kind,
    Limit,
    MaxAttempts,
    OfKind,
    OfStatus,
    Payload,
    Priority,
    Url,
    Wait,
)
from jobq.cli.stores import existing_store, store_for
from jobq.errors import InvalidInput
from jobq.handlers import builtin
from jobq.job import Job, Status
from jobq.settings import load_settings

COLUMNS = "{:8}  {:9}  {:>8}  {:>6}  {}"


def enqueue(  # noqa: PLR0913 - each is an option of the command
    kind: Kind,
    payload: Payload = "{}",
    *,
    key: Key = None,
    max_attempts: MaxAttempts = None,
    wait: Wait = 0.0,
    priority: Priority = 0,
    any_kind: AnyKind = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Record a job and print its id."""
    if not any_kind and builtin.get(kind) is None:
        raise InvalidInput(
            f"kind {kind!r} is none of {', '.join(builtin.kinds())}; "
            "if a worker of yours knows it, say so with --any-kind"
        )
    what = _parse(payload)
    check_seconds(wait, "--in", least=0)
    settings = load_settings(url=url, max_attempts=max_attempts)
    with closing(store_for(settings)) as store:
        job, created = store.enqueue(
            kind,
            what,
            key,
            max_attempts=settings.max_attempts,
            run_after=store.now() + wait if wait else 0.0,
            priority=priority,
        )
    if as_json:
        print_json({"job": asdict(job), "created": created})
        return
    typer.echo(job.id)
    if not created:
        typer.echo(f"jobq: the key's job was made before; it is {job.status}", err=True)


def list_jobs(
    *,
    status: OfStatus = None,
    kind: OfKind = None,
    limit: Limit = 20,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs, newest first."""
    with closing(existing_store(load_settings(url=url))) as store:
        found = store.list(status=status, kind=kind, limit=limit)
        now = store.now()
    if as_json:
        print_json([asdict(job) for job in found])
    elif found:
        typer.echo("\n".join(_table(found, now)))
    elif status or kind:
        typer.echo("no such jobs")
    else:
        typer.echo("no jobs yet; `jobq enqueue noop` makes one")


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        before, after = text[: error.pos][-20:], text[error.pos :][:20]
        raise InvalidInput(
            f"payload is no JSON: {error.msg}, between {before!r} and {after!r} "
            f"(character {error.pos + 1})"
        ) from None
    except (RecursionError, ValueError) as error:  # too deep, or a number of too many digits
        raise InvalidInput(f"payload is too much for a JSON reader: {error}") from None


def _table(jobs: Iterable[Job], now: float) -> Iterable[str]:
    yield COLUMNS.format("ID", "STATUS", "ATTEMPTS", "AGE", "KIND")
    for job in jobs:
        about = job.error if job.status is Status.FAILED else job.worker
        yield fitting(
            COLUMNS.format(
                job.id[:ID_SHOWN],
                job.status,
                f"{job.attempts} of {job.max_attempts}",
                _age(now - job.created_at),
                f"{job.kind}: {about}" if about else job.kind,
            )
        )


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
