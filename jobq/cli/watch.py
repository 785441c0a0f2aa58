"""`jobq watch`: a job until it is final, or the whole queue until Ctrl-C.

On a terminal it is a picture that changes; into a pipe or a file goes a line for each change. It
sleeps until the store has changed.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import typer

from jobq.cli.options import Url, Watched
from jobq.cli.stores import existing_store, find_job
from jobq.errors import UnknownJob
from jobq.job import Status
from jobq.settings import load_settings
from jobq.store import Store
from jobq.store.addresses import shown

LOOK_SECONDS = 1.0  # the longest sleep: times that are shown go on though nothing changes
LEAST_SECONDS = 0.1  # the shortest, however much changes
SHARE = 10  # and so many times what a look takes: many jobs take long to count


def watch(start: Watched = None, *, url: Url = None) -> None:
    """Watch a job until it is final, or the whole queue until Ctrl-C.

    The exit code is 0 for a job that is done, and 1 for one that is failed or cancelled.
    """
    # What draws takes a while to import, and no other command waits for that.
    from rich.console import Console  # noqa: PLC0415 - see the line above

    settings = load_settings(url=url)
    with closing(existing_store(settings)) as store:
        job_id = find_job(store, start).id if start else None
        console = Console(highlight=False)
        # FORCE_COLOR has rich take a pipe for a terminal.
        if sys.stdout.isatty() and console.is_terminal and not console.is_dumb_terminal:
            _draw(store, job_id, console, shown(settings.url))
        else:
            _tell(store, job_id)
        if job_id is not None and _status(store, job_id) is not Status.DONE:
            raise typer.Exit(1)


def looks(store: Store) -> Iterator[None]:
    """Give the moments at which it is worth looking into the store; the first is now."""
    while True:
        mark, began = store.change_mark(), time.monotonic()
        yield
        time.sleep(max(LEAST_SECONDS, SHARE * (time.monotonic() - began)))
        store.wait_for_change(mark, LOOK_SECONDS)


def _tell(store: Store, job_id: str | None) -> None:
    """Print a line for each change, of the job from its beginning, of the queue from now on."""
    from jobq.cli.changes import Changes  # noqa: PLC0415 - see above

    changes = Changes(store, job_id)
    for _ in looks(store):
        for line in changes.lines():
            typer.echo(line)
        if changes.over:
            return


def _draw(store: Store, job_id: str | None, console: Any, title: str) -> None:
    """Show a picture that changes; that of a job stays when it is over."""
    from jobq.cli.views import Board, draw_job  # noqa: PLC0415 - see above

    board = Board(store, title)
    with _live(console, whole_screen=job_id is None) as show:
        for _ in looks(store):
            if job_id is None:
                show(board.draw(console.height))
            else:
                job = store.get(job_id)
                if job is None:
                    raise UnknownJob(job_id)
                show(draw_job(job, store.attempts(job_id), store.now()))
                if job.status.final:
                    return


@contextmanager
def _live(console: Any, *, whole_screen: bool) -> Iterator[Callable[[Any], None]]:
    """Give a function that shows a picture in place of the one before.

    However it ends, the terminal gets its cursor back, unless by SIGKILL.
    """
    from rich.live import Live  # noqa: PLC0415 - see above

    live = Live(console=console, screen=whole_screen, auto_refresh=False)
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        live.start()
        yield lambda picture: live.update(picture, refresh=True)
    finally:
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C comes too late
        live.stop()
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, before)


def _status(store: Store, job_id: str) -> Status | None:
    job = store.get(job_id)
    return None if job is None else job.status
