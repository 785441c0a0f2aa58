"""`jobq show`: a job, its story and its timeline."""

import json
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict

import typer

from jobq.cli.lines import ID_SHOWN, WIDTH, fitting, print_json
from jobq.cli.options import AsJson, Id, Url
from jobq.cli.stores import existing_store, find_job
from jobq.job import Event, Job, Status
from jobq.oneline import in_words
from jobq.settings import load_settings
from jobq.store import LONGEST_LOG

HANG = " " * 11  # the width of a time in the story


def show(start: Id, *, url: Url = None, as_json: AsJson = False) -> None:
    """Tell a job's story and draw its timeline."""
    with closing(existing_store(load_settings(url=url))) as store:
        job = find_job(store, start)
        attempts = store.attempts(job.id)
        events = store.events(job.id, limit=LONGEST_LOG)
        now = store.now()
    if as_json:
        parts = {"attempts": [asdict(a) for a in attempts], "events": [asdict(e) for e in events]}
        print_json({"job": asdict(job), **parts})
        return
    until = None if job.status.final else now
    typer.echo("\n\n".join(["\n".join(_facts(job)), *_pictures(events, until)]))


def _facts(job: Job) -> Iterable[str]:
    """Yield the lines that say what was asked for and where it stands."""
    attempts = f", {job.attempts} of {job.max_attempts} attempts" if job.attempts else ""
    yield f"job {job.id}"
    yield fitting(f"kind     {job.kind}")
    yield fitting(f"payload  {json.dumps(job.payload, ensure_ascii=False)}")
    asked = ", to be cancelled" if job.cancel_requested else ""
    yield fitting(f"status   {job.status}{attempts}{asked}")
    if job.progress is not None and job.status is not Status.DONE:
        yield fitting(f"progress {in_words(job.progress)}")
    if job.status is Status.DONE:
        yield fitting(f"result   {json.dumps(job.result, ensure_ascii=False)}")
    if job.error is not None:
        yield fitting(f"error    {job.error}")


def _pictures(events: Sequence[Event], until: float | None) -> tuple[str, str]:
    """Return the story and the timeline, with seconds since the first event."""
    # The lab loads what experiments need, and no other command waits for that.
    from jobq.lab.story import tell  # noqa: PLC0415 - see the line above
    from jobq.lab.text import text_to_scale  # noqa: PLC0415
    from jobq.lab.timeline import build  # noqa: PLC0415

    def name_job(job_id: str) -> str:
        return job_id[:ID_SHOWN]

    lines = tell(events, name_job=name_job, name_worker=str, times=True).splitlines()
    story = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent=HANG) for line in lines)
    timeline = build(events, name_job=name_job, name_worker=str, until=until)
    return story, text_to_scale(timeline, width=WIDTH)
