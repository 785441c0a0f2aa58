"""jobq.cli.watch, changes and views: a job and a queue, looked at while they change."""

import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from rich.console import Console, RenderableType

import jobq
from jobq import EventName, Job, Progress, Store
from jobq.cli.changes import Changes
from jobq.cli.views import Board, draw_job
from jobq.cli.watch import LEAST_SECONDS, looks

if sys.platform != "win32":
    import pty

if TYPE_CHECKING:
    from tests.conftest import Clock

PATIENCE = 60.0  # seconds for a process to answer or to end
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
WHOLE_SCREEN, NORMAL_SCREEN = "\x1b[?1049h", "\x1b[?1049l"

unix_only = pytest.mark.skipif(sys.platform == "win32", reason="it needs a pseudo-terminal")


def claimed(store: Store, worker: str = "w1") -> Job:
    """Return the next job, claimed."""
    job = store.claim(worker, 30.0)
    assert job is not None
    return job


def drawn(picture: RenderableType, width: int = 80) -> list[str]:
    """Return the lines of a picture as a terminal of that width shows them."""
    console = Console(width=width, height=24, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(picture)
    return [line.rstrip() for line in capture.get().splitlines()]


# ── lines ────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_is_told_from_its_beginning_line_by_line(store: Store, clock: "Clock") -> None:
    """Each change is told once; heartbeats only when they bring news."""
    job = store.enqueue("noop", {}).job
    changes, name = Changes(store, job.id), job.id[:8]
    assert list(changes.lines()) == [f"   0.00 s  {name} enqueued"]
    work = claimed(store)
    for progress in (None, Progress(1, 4), Progress(1, 4), Progress(2, 4, "half\x1b[2J")):
        clock.move(1.0)
        store.heartbeat(work, 30.0, progress)
    assert list(changes.lines()) == [
        f"   0.00 s  w1 took {name} (attempt 1)",
        f"   2.00 s  {name} is at 1 of 4",
        rf"   4.00 s  {name} is at 2 of 4 half\x1b[2J",
    ]
    assert (list(changes.lines()), changes.over) == ([], False)
    store.finish(work, {})
    assert list(changes.lines()) == [f"   4.00 s  w1 finished {name}"]
    assert changes.over


def test_the_queue_is_told_from_now_on(store: Store) -> None:
    """What was before is not told; the whole queue is never over."""
    store.enqueue("noop", {})
    changes = Changes(store)
    store.finish(claimed(store), {})
    first, second = changes.lines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  w1 took \w{8} \(attempt 1\)", first)
    assert "w1 finished" in second
    assert not changes.over


def test_a_long_log_is_told_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """More events than one read gives are told all the same, in order."""
    monkeypatch.setattr("jobq.cli.changes.PAGE", 2)
    changes = Changes(store)
    for _ in range(3):
        store.enqueue("noop", {})
        store.finish(claimed(store), {})
    assert len(list(changes.lines())) == 9


# ── pictures ─────────────────────────────────────────────────────────────────────────────────────


def test_a_running_job_is_drawn_with_its_progress(store: Store, clock: "Clock") -> None:
    """Kind, attempt, worker, time, a bar, what was told, and the attempts before this one."""
    store.enqueue("noop", {})
    store.fail(claimed(store), "no\nluck", after=0)
    work = claimed(store, "w2")
    clock.move(65.0)
    job = store.heartbeat(work, 30.0, Progress(5, 10, "[red]half[/]"))
    lines = drawn(draw_job(job, store.attempts(job.id), store.now()))
    assert lines[:2] == [f"job {job.id[:8]}  noop", "running, attempt 2 of 3 by w2, 0:01:05"]
    assert lines[2] == "━" * 20 + " " * 20 + "  5 of 10 [red]half[/]"
    assert lines[3:] == [
        r"error: no\nluck",
        r"attempt 1  0:00:00  w1  failed: no\nluck",
        "attempt 2  0:01:05  w2  running",
    ]


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(5), "5"),
        (Progress(0, 0, "nothing to do"), "0 of 0 nothing to do"),
        (Progress(30, 10), "━" * 40 + "  30 of 10"),
    ],
)
def test_progress_of_any_kind_can_be_drawn(store: Store, progress: Progress, line: str) -> None:
    """Without a total there is no bar, and more than all fills it."""
    store.enqueue("noop", {})
    job = store.heartbeat(claimed(store), 30.0, progress)
    assert drawn(draw_job(job, (), store.now()))[2] == line


def test_each_status_of_a_job_is_drawn(store: Store, clock: "Clock") -> None:
    """Waiting, delayed, to be cancelled, cancelled, done: the second line says it."""

    def second(job: Job) -> str:
        return drawn(draw_job(job, store.attempts(job.id), store.now()))[1]

    job = store.enqueue("noop", {}).job
    clock.move(5.0)
    assert second(job) == "queued, for 0:00:05, until a worker takes it"
    work = claimed(store)
    assert second(store.cancel(job.id)) == (
        "running, attempt 1 of 3 by w1, 0:00:00, to be cancelled"
    )
    clock.move(2.0)
    assert second(store.confirm_cancel(work)) == "cancelled, attempt 1 of 3, after 0:00:02"
    store.retry(job.id)
    crashed = claimed(store)
    clock.move(31.0)
    assert second(crashed) == "running, attempt 1 of 3 by w1, 0:00:31, its lease has run out"
    store.finish(crashed, {})
    delayed = store.enqueue("noop", {}, run_after=clock() + 90).job
    assert second(delayed) == "queued, the next attempt in 0:01:30"
    assert second(store.cancel(delayed.id)) == "cancelled"
    store.retry(delayed.id)
    assert second(store.finish(claimed(store), {})) == "done, attempt 1 of 3, after 0:00:00"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_picture_breaks_a_narrow_terminal(store: Store, width: int) -> None:
    """Whatever a job holds, a line stays one line, and commands nothing."""
    store.enqueue("k\x1b[2J" * 50, {})
    job = store.heartbeat(claimed(store, "w" * 200), 30.0, Progress(1, 2, "m\n" * 50))
    board = Board(store, "sqlite:///" + "x" * 90)
    for picture in (draw_job(job, store.attempts(job.id), store.now()), board.draw(24)):
        lines = drawn(picture, width)
        assert max(map(len, lines)) <= width
        assert "[2J" not in "".join(lines).replace(r"\x1b[2J", "")
    assert len(drawn(draw_job(job, (), store.now()), width)) == 3


def test_the_board_counts_and_tells(store: Store, clock: "Clock") -> None:
    """Counts, the oldest that waits, what runs and how far, and what happened last."""
    store.enqueue("nap", {})
    work = claimed(store)
    store.enqueue("noop", {})
    clock.move(130.0)
    store.heartbeat(work, 30.0, Progress(1, 2, "half"))
    store.cancel(work.id)
    lines = drawn(Board(store, "title").draw(24))
    assert re.fullmatch(r"title  \d\d:\d\d:\d\d   Ctrl-C ends this", lines[0])
    assert lines[1:8] == [
        "1 queued   1 running   0 done   0 failed   0 cancelled",
        "the oldest queued job is 2 min old; 0 jobs ended in the last minute",
        "",
        "RUNNING, 1 of 1",
        f"{work.id[:8]}  nap  w1  0:02:10  1 of 2 half, to be cancelled",
        "",
        "LAST EVENTS",
    ]
    assert [line.split()[2:] for line in lines[8:11]] == [
        ["enqueued"],
        ["took", work.id[:8], "(attempt", "1)"],
        ["enqueued"],
    ]
    assert "is to be cancelled" in lines[11]
    assert len(lines) == 12  # the heartbeat's news stands with the job


@pytest.mark.parametrize("height", [5, 12, 24, 60])
def test_the_board_fits_the_terminal(store: Store, height: int) -> None:
    """However much there is to see, the newest of it is seen, within the height."""
    for n in range(60):
        store.enqueue("noop", {})
        claimed(store, f"w{n}")
    lines = drawn(Board(store, "title").draw(height))
    assert len(lines) <= max(height, 11)
    assert "w59 took" in lines[-1]


def test_a_board_skips_what_it_cannot_show(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst of events only the last ones are read."""
    monkeypatch.setattr("jobq.cli.views.EVENTS", 3)
    board = Board(store, "title")
    ids = [store.enqueue("noop", {}).job.id for _ in range(9)]
    lines = drawn(board.draw(24))
    assert [line.split()[1] for line in lines if "enqueued" in line] == [i[:8] for i in ids[-3:]]


def test_looks_are_few_while_much_changes(
    live: Store, opened: Callable[..., Store], url: str
) -> None:
    """A busy store is not looked into at each commit, and an idle one each second."""
    other, over = opened(url), threading.Event()

    def busy() -> None:
        while not over.is_set():
            other.enqueue("noop", {})

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        began, moments = time.monotonic(), looks(live)
        for _ in range(4):
            next(moments)
        assert time.monotonic() - began >= 3 * LEAST_SECONDS
    finally:
        over.set()
        thread.join()


# ── the command ──────────────────────────────────────────────────────────────────────────────────


class Terminal:
    """A `jobq watch` on a pseudo-terminal of 80 columns."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        ours = {name: value for name, value in os.environ.items() if not name.startswith("JOBQ_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jobq", "watch", *words],
            cwd=folder,
            env={**ours, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.seen = ""

    def see(self, words: str) -> str:
        """Return all that was shown so far, once these words are among it."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.seen:
            assert time.monotonic() < deadline, f"never saw {words!r} in {self.seen!r}"
            assert self._read(), f"ended before it showed {words!r}: {self.seen!r}"
        return self.seen

    def end(self) -> int:
        """Return the exit code, once it has ended and shown all."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Kill it, if it still runs."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self) -> bool:
        assert select.select([self._ours], [], [], PATIENCE)[0], "nothing is shown any more"
        try:
            text = os.read(self._ours, 65_536)
        except OSError:  # Linux's way to say that nobody is at the other end
            return False
        self.seen += text.decode("utf-8", "replace")
        return bool(text)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Start watches on terminals; what still runs at the end is killed."""
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        started.append(Terminal(tmp_path, *words))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Store]:
    """Return the store that a watch in the same folder finds."""
    with closing(jobq.open_store(tmp_path / "jobs.db")) as store:
        yield store


@unix_only
@pytest.mark.parametrize(("how", "code"), [("done", 0), ("failed", 1), ("cancelled", 1)])
def test_watch_ends_with_its_job(
    terminal: Callable[..., Terminal], jobs: Store, how: str, code: int
) -> None:
    """The picture changes at once, stays when the job is final, and the exit code tells its end."""
    job_id = jobs.enqueue("noop", {}).job.id
    watch = terminal(job_id[:8])
    watch.see("until a worker takes it")
    work = claimed(jobs)
    jobs.heartbeat(work, 30.0, Progress(1, 2, "half of it"))
    watch.see("1 of 2 half of it")
    if how == "cancelled":
        jobs.cancel(job_id)
        watch.see("to be cancelled")
        jobs.confirm_cancel(work)
    elif how == "failed":
        jobs.fail(work, "no luck", final=True)
    else:
        jobs.finish(work, {"answer": 42})
    assert watch.end() == code
    last = watch.seen[watch.seen.rindex("job ") :]
    assert {"done": '"answer": 42', "failed": "error: no luck"}.get(how, how) in last
    assert watch.seen.count(HIDE_CURSOR) == watch.seen.count(SHOW_CURSOR) == 1


@unix_only
def test_watch_of_a_final_job_shows_it_and_ends(
    terminal: Callable[..., Terminal], jobs: Store
) -> None:
    """There is nothing to wait for."""
    job = jobs.enqueue("noop", {}).job
    jobs.finish(claimed(jobs), {})
    watch = terminal(job.id)
    assert watch.end() == 0
    assert ", attempt 1 of 3, after 0:00:00" in watch.seen


@unix_only
@pytest.mark.parametrize(
    ("number", "code", "last"),
    [(signal.SIGINT, 130, "jobq: interrupted\r\n"), (signal.SIGTERM, 143, NORMAL_SCREEN)],
)
def test_a_stopped_board_gives_the_terminal_back(
    terminal: Callable[..., Terminal], jobs: Store, number: signal.Signals, code: int, last: str
) -> None:
    """Ctrl-C and SIGTERM end it with their codes; cursor and screen are as they were."""
    board = terminal()
    board.see("NOTHING RUNS")
    jobs.enqueue("noop", {})
    board.see("enqueued")
    board.process.send_signal(number)
    assert board.end() == code
    assert board.seen.endswith(last)
    for begin, end in (HIDE_CURSOR, SHOW_CURSOR), (WHOLE_SCREEN, NORMAL_SCREEN):
        assert board.seen.rindex(begin) < board.seen.rindex(end)
    assert "Traceback" not in board.seen


@unix_only
def test_a_pruned_job_ends_its_watch(terminal: Callable[..., Terminal], jobs: Store) -> None:
    """A job that is deleted while it is watched is an error in one line."""
    job_id = jobs.enqueue("noop", {}).job.id
    watch = terminal(job_id)
    watch.see("until a worker takes it")
    with jobs.transaction() as tx:
        tx.execute("DELETE FROM jobs")
    assert watch.end() == 1
    assert watch.seen.endswith(
        f"jobq: no job has the id '{job_id}'; `jobq list` shows those there are\r\n"
    )


@unix_only
def test_an_idle_board_needs_little_of_the_machine(
    terminal: Callable[..., Terminal], jobs: Store
) -> None:
    """While nothing changes it sleeps: below a twentieth of a processor."""
    jobs.enqueue("noop", {})
    board = terminal()
    board.see("enqueued")
    process = psutil.Process(board.process.pid)
    before, began = process.cpu_times(), time.monotonic()
    for _ in range(3):  # its clock goes on, second by second
        count = board.seen.count("Ctrl-C ends this")
        while board.seen.count("Ctrl-C ends this") == count:
            assert board._read()
    after, seconds = process.cpu_times(), time.monotonic() - began
    assert (after.user + after.system - before.user - before.system) / seconds < 0.05


def test_into_a_pipe_goes_a_line_for_each_change(jobs: Store, tmp_path: Path) -> None:
    """Each line comes as it happens, without a command for a terminal in it."""
    job = jobs.enqueue("noop", {}).job
    with subprocess.Popen(
        [sys.executable, "-m", "jobq", "watch", job.id],
        cwd=tmp_path,
        env={**os.environ, "FORCE_COLOR": "1"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == f"   0.00 s  {job.id[:8]} enqueued\n"
        work = claimed(jobs)
        assert "w1 took" in watch.stdout.readline()
        jobs.fail(work, "no luck", final=True)
        assert watch.stdout.read().endswith("no luck; failed for good\n")
        assert watch.wait(PATIENCE) == 1
    assert jobs.events(job.id)[-1].name is EventName.FAILED
