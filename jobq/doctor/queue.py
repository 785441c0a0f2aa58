"""The queue: what was left alone in it, and what comes from the future. For every engine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from jobq.doctor.finding import Finding, ok, warn
from jobq.oneline import in_units

AHEAD_SECONDS = 2.0  # of the clock
UNATTENDED_SECONDS = 10.0  # since a job could be taken


class Asked(Protocol):
    """What answers a question that stands by the same name in each engine's file."""

    def ask(self, statement: str, **parameters: Any) -> Sequence[Any]:
        """Return every row of the answer; a row gives a value by its name."""


def times(look: Asked, now: float) -> Finding:
    """Check that what was written last was not written in the future."""
    newest = look.ask("newest_event")
    ahead = newest[0]["at"] - now if newest else 0.0
    if ahead > AHEAD_SECONDS:
        return warn(
            f"the newest event is dated {in_units(ahead)} from now",
            "set the clock: until then leases and waits last longer by as much",
        )
    return ok("no event is dated in the future")


def unattended(look: Asked, now: float) -> Iterator[Finding]:
    """Check that somebody does the work: an idle worker takes what it can within a second."""
    long_ago = now - UNATTENDED_SECONDS
    mend = "start a worker: `jobq worker`"
    left = look.ask("abandoned", before=long_ago)[0]
    if left["jobs"]:
        ago = in_units(now - left["since"])
        yield warn(f"the lease of {_jobs(left)} ran out, {ago} ago, and nobody took over", mend)
    waiting = look.ask("waiting", before=long_ago)[0]
    alone = waiting["jobs"] and not look.ask("running", now=now)[0]["jobs"]
    if alone:
        ago = in_units(now - waiting["since"])
        yield warn(f"{_jobs(waiting)} can be run, the first for {ago}, and nothing runs", mend)
    if not left["jobs"] and not alone:
        yield ok("no job is left alone")


def _jobs(row: Mapping[str, Any]) -> str:
    return f"{row['jobs']:,} job" + ("" if row["jobs"] == 1 else "s")
