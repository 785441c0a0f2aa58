"""`jobq enqueue` and `jobq list`: jobs go in, and where they stand."""

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Any

import typer

from jobq.checks import check_seconds
from jobq.cli.lines import ID_SHOWN, fitting, print_json
from jobq.cli.modules import check_known, import_modules
from jobq.cli.options import (
    AnyKind,
    AsJson,
    Before,
    Imports,
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
from jobq.cli.stores import existing_store, find_job, store_for
from jobq.errors import InvalidInput
from jobq.handlers import builtin, read
from jobq.job import Job, Status
from jobq.oneline import in_units, in_words
from jobq.settings import load_settings
from jobq.strictjson import encode

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
    imports: Imports = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Record a job and print its id.

    A payload that does not fit the kind is refused, and each fault named.
    """
    import_modules(imports or [])
    if not any_kind:
        check_known([kind], "import its module (--import), or say that you know it (--any-kind)")
    what = _parse(payload)
    check_seconds(wait, "--in", least=0)
    settings = load_settings(url=url, max_attempts=max_attempts)
    _check(kind, what, settings.max_payload_bytes)
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
    else:
        typer.echo(job.id)
        if not created:
            typer.echo(f"jobq: the key's job was made before; it is {job.status}", err=True)


def list_jobs(
    *,
    status: OfStatus = None,
    kind: OfKind = None,
    limit: Limit = 20,
    before: Before = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs, newest first."""
    with closing(existing_store(load_settings(url=url))) as store:
        last = None if before is None else find_job(store, before).id
        found = store.list(status=status, kind=kind, limit=limit, before=last)
        older = bool(found) and store.list(status=status, kind=kind, limit=1, before=found[-1].id)
        now = store.now()
    if as_json:
        print_json([asdict(job) for job in found])
    elif found:
        typer.echo("\n".join(_table(found, now)))
        if older:
            typer.echo(f"older ones: the same with --before {found[-1].id[:ID_SHOWN]}", err=True)
    elif status or kind or before:
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


def _check(kind: str, payload: Any, max_bytes: int) -> None:
    """Hold a payload against the model of its kind, if that is known here and has one."""
    known = builtin.get(kind)
    if known and known.payload and isinstance(payload, dict):  # the store refuses all else
        encode(payload, "payload", max_bytes=max_bytes)
        read(known.payload, payload)


def _table(jobs: Iterable[Job], now: float) -> Iterable[str]:
    yield COLUMNS.format("ID", "STATUS", "ATTEMPTS", "AGE", "KIND")
    for job in jobs:
        about = job.error if job.status is Status.FAILED else job.worker
        if job.status is Status.RUNNING and job.progress is not None:
            about = f"{job.worker}, {in_words(job.progress)}"
        yield fitting(
            COLUMNS.format(
                job.id[:ID_SHOWN],
                job.status,
                f"{job.attempts} of {job.max_attempts}",
                in_units(now - job.created_at),
                f"{job.kind}: {about}" if about else job.kind,
            )
        )
