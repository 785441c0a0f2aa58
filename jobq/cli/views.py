"""The pictures of `jobq watch`: one job with its progress, and the whole queue."""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobq.cli.changes import Changes, clock
from jobq.cli.lines import ID_SHOWN
from jobq.cli.stats import pace
from jobq.job import Attempt, Job, Status
from jobq.oneline import in_words, one_line
from jobq.store import Store

COLOURS = {
    Status.QUEUED: "cyan",
    Status.RUNNING: "yellow",
    Status.DONE: "green",
    Status.FAILED: "red",
    Status.CANCELLED: "magenta",
}
BAR = 40  # columns
ATTEMPTS = 5  # the last ones are shown
EVENTS = 200  # of the log that are read to begin with; heartbeats among them are not shown
MOST_RUNNING = 100  # jobs that are read
NAME = 20  # characters of a kind and of a worker's name
FIXED = 9  # lines of the board beside its two lists


def draw_job(job: Job, attempts: Sequence[Attempt], now: float) -> RenderableType:
    """Return where the job stands, its progress and its last attempts."""
    lines: list[RenderableType] = [
        _line(("job ", ""), (job.id[:ID_SHOWN], "bold"), (f"  {job.kind}", "")),
        _line((job.status, f"bold {COLOURS[job.status]}"), (_about(job, now), "")),
    ]
    if job.progress is not None:
        lines.append(_bar(job))
    if job.error is not None and job.status is not Status.DONE:
        lines.append(_line((f"error: {job.error}", "")))
    if job.status is Status.DONE:
        lines.append(_line((f"result: {json.dumps(job.result, ensure_ascii=False)}", "")))
    if len(attempts) > 1:
        lines += [_attempt(attempt, now) for attempt in attempts[-ATTEMPTS:]]
    return Group(*lines)


class Board:
    """The whole queue: counts, the jobs that run, and the last events."""

    def __init__(self, store: Store, title: str) -> None:
        self._store = store
        self._title = title
        self._changes = Changes(store, after=max(0, store.last_event() - EVENTS), progress=False)
        self._events: deque[str] = deque(maxlen=EVENTS)

    def draw(self, height: int) -> RenderableType:
        """Return the board, in at most so many lines if it is to hold anything."""
        self._changes.skip(EVENTS)
        self._events.extend(self._changes.lines())
        stats, now = self._store.stats(), self._store.now()
        running = self._store.list(status=Status.RUNNING, limit=MOST_RUNNING)
        room = max(2, height - FIXED)
        shown = running[: room // 2]
        number = stats.counts[Status.RUNNING]
        counts = [(f"{n:,} {status}   ", COLOURS[status]) for status, n in stats.counts.items()]
        events = list(self._events)[-max(1, room - len(shown)) :]
        return Group(
            _line((self._title, "bold"), (f"  {clock(now)}   Ctrl-C ends this", "dim")),
            _line(*counts),
            _line((pace(stats), "")),
            _line(("", "")),
            _line((f"RUNNING, {len(shown)} of {number:,}" if number else "NOTHING RUNS", "bold")),
            *_running(shown, now),
            _line(("", "")),
            _line(("LAST EVENTS", "bold")),
            *(_line((event, "")) for event in events),
        )


def _running(jobs: Sequence[Job], now: float) -> Iterator[Text]:
    """Yield a line for each job that runs."""
    kinds, workers = (
        [one_line(text or "")[:NAME] for text in texts]
        for texts in ([job.kind for job in jobs], [job.worker for job in jobs])
    )
    widths = [max(map(len, names), default=0) + 2 for names in (kinds, workers)]
    for job, kind, worker in zip(jobs, kinds, workers, strict=True):
        told = "" if job.progress is None else in_words(job.progress)
        since = _length(now - (job.started_at or now))
        names = f"{job.id[:ID_SHOWN]}  {kind:{widths[0]}}{worker:{widths[1]}}"
        yield _line((f"{names}{since}  {told}{_remark(job, now)}", ""))


def _about(job: Job, now: float) -> str:
    """Return what goes on, and for how long."""
    attempt = f"attempt {job.attempts} of {job.max_attempts}"
    if job.status is Status.RUNNING:
        since = _length(now - (job.started_at or now))
        return f", {attempt} by {one_line(job.worker or 'nobody')}, {since}{_remark(job, now)}"
    if job.status is Status.QUEUED:
        if job.run_after > now:
            return f", the next attempt in {_length(job.run_after - now)}"
        return f", for {_length(now - job.created_at)}, until a worker takes it"
    if not job.attempts or job.finished_at is None or job.started_at is None:
        return ""
    return f", {attempt}, after {_length(job.finished_at - job.started_at)}"


def _remark(job: Job, now: float) -> str:
    """Return what is out of the ordinary with a job that runs."""
    asked = ", to be cancelled" if job.cancel_requested else ""
    lost = ", its lease has run out" if job.locked_until and job.locked_until < now else ""
    return asked + lost


def _bar(job: Job) -> RenderableType:
    """Return a bar and what was told; a bar needs to know how much there is to do."""
    progress = job.progress
    assert progress is not None  # noqa: S101 - the caller looked
    words = Text(in_words(progress), no_wrap=True, overflow="ellipsis")
    if not progress.total:
        return words
    done = progress.total if job.status is Status.DONE else min(progress.done, progress.total)
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=BAR)
    row.add_column(no_wrap=True)
    row.add_row(ProgressBar(progress.total, done, width=BAR), words)
    return row


def _attempt(attempt: Attempt, now: float) -> Text:
    end = now if attempt.ended_at is None else attempt.ended_at
    why = f": {attempt.error}" if attempt.error else ""
    outcome = attempt.outcome or Status.RUNNING
    took = _length(end - attempt.started_at)
    return _line(
        (f"attempt {attempt.number}  {took}  {attempt.worker}  {outcome}{why}", "dim"),
    )


def _line(*parts: tuple[str, str]) -> Text:
    """Return parts, each with its style, as one line that is cut at the end of the terminal."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for words, style in parts:
        line.append(one_line(words), style)
    return line


def _length(seconds: float) -> str:
    return str(timedelta(seconds=int(max(0.0, seconds))))
