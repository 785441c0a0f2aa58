"""`jobq stats`: how many jobs stand where."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict

import typer

from jobq.cli.lines import WIDTH, counted, fitting, print_json
from jobq.cli.options import AsJson, Url
from jobq.cli.stores import existing_store
from jobq.job import Stats, Status
from jobq.oneline import in_units, one_line
from jobq.settings import load_settings

NUMBER = 10  # columns of a number: "cancelled", and a space before it
NAME = WIDTH - NUMBER * len(Status)


def stats(*, url: Url = None, as_json: AsJson = False) -> None:
    """Count the jobs by kind and status."""
    with closing(existing_store(load_settings(url=url))) as store:
        found = store.stats()
    if as_json:
        print_json(asdict(found))
    else:
        typer.echo("\n".join([*_table(found), "", pace(found)]))


def pace(found: Stats) -> str:
    """Return how long jobs wait, and how many come to an end."""
    waits = found.oldest_waiting_seconds
    oldest = "no job waits" if waits is None else f"the oldest queued job is {in_units(waits)} old"
    return f"{oldest}; {counted(found.finished_last_minute, 'job')} ended in the last minute"


def _table(found: Stats) -> Iterator[str]:
    """Yield a line for each kind, and one for all."""
    yield f"{'KIND':{NAME}}" + "".join(f"{status.upper():>{NUMBER}}" for status in Status)
    for kind, counts in sorted(found.kinds.items()):
        yield _row(kind, counts)
    yield _row("all", found.counts)


def _row(name: str, counts: dict[Status, int]) -> str:
    cut = one_line(name)
    cut = cut if len(cut) < NAME else cut[: NAME - 2] + "…"
    return fitting(f"{cut:{NAME}}" + "".join(f"{counts[status]:>{NUMBER}}" for status in Status))
