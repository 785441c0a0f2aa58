"""`jobq retry`, `cancel` and `prune`: what an operator does to jobs."""

from contextlib import closing
from dataclasses import asdict

import typer

from jobq.cli.durations import parse_duration
from jobq.cli.lines import ID_SHOWN, counted, print_json
from jobq.cli.options import (
    Age,
    All,
    AsJson,
    Final,
    Id,
    IdOrAll,
    Retriable,
    RetriedKind,
    Unasked,
    Url,
)
from jobq.cli.stores import existing_store, find_job
from jobq.errors import InvalidInput
from jobq.job import Job, Status
from jobq.settings import load_settings
from jobq.store.addresses import shown
from jobq.store.operating import FINAL
from jobq.store.reading import check_status


def retry(
    start: IdOrAll = None,
    *,
    every: All = False,
    status: Retriable = None,
    kind: RetriedKind = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Queue a failed or cancelled job again.

    Its attempts start over. With --all, every failed job, or those chosen, each once.
    """
    if every == bool(start):
        raise InvalidInput("retry takes one of the two: the ID of a job, or --all")
    if start and (status or kind):
        raise InvalidInput(
            "--status and --kind choose among many jobs: leave out the ID and say --all"
        )
    with closing(existing_store(load_settings(url=url))) as store:
        if start:
            _report(store.retry(find_job(store, start).id), "queued again", as_json=as_json)
            return
        retried = store.retry_all(status=status or Status.FAILED, kind=kind)
    if as_json:
        print_json({"retried": retried})
    else:
        typer.echo(f"{counted(retried, 'job')} queued again")


def cancel(start: Id, *, url: Url = None, as_json: AsJson = False) -> None:
    """Cancel a job that is queued or running.

    One that is queued is cancelled at once. Of one that is running the worker is told with its
    next heartbeat; should it be done before it stops, it is done.
    """
    with closing(existing_store(load_settings(url=url))) as store:
        job = store.cancel(find_job(store, start).id)
    told = f"to be cancelled: the next heartbeat tells {job.worker}"
    _report(job, told if job.cancel_requested else "cancelled", as_json=as_json)


def prune(
    *,
    age: Age,
    status: Final = None,
    yes: Unasked = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Delete old jobs that are done, failed or cancelled.

    Their attempts and events go with them. A job with an idempotency key stays for as long as the
    key is promised to give the same job: JOBQ_KEEP_KEYS_SECONDS, a week by default.
    """
    seconds = parse_duration(age, "--older-than")
    if status is not None:
        check_status(status, FINAL)
    settings = load_settings(url=url)
    with closing(existing_store(settings)) as store:
        which = f"the {status} jobs" if status else "the done, failed and cancelled jobs"
        question = f"delete {which} in {shown(settings.url)} that ended over {age.strip()} ago?"
        deleted = 0
        if yes or typer.confirm(question, err=True):
            deleted = store.prune(
                seconds, status=status, keys_kept_seconds=settings.keep_keys_seconds
            )
    if as_json:
        print_json({"deleted": deleted})
    else:
        typer.echo(f"{counted(deleted, 'job')} deleted")


def _report(job: Job, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"job": asdict(job)})
    else:
        typer.echo(f"job {job.id[:ID_SHOWN]} is {what}")
