"""jobq.doctor on a store: each fault is made for real, is found, and no other is."""

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from jobq import ForeignFile, Store, open_store
from jobq.doctor import Finding, Grade, database, examine_store, holders, queue, wal
from jobq.lab.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import Program

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not tell who holds a lock"
)

# Opens the store, does as it is told, and says so.
ANOTHER = """
import sys
import sqlite3
from jobq import open_store
store = open_store(sys.argv[1])
raw = sqlite3.connect(sys.argv[1], isolation_level=None)
print("open", flush=True)
while line := sys.stdin.readline().strip():
    if line == "write":
        with store.transaction():
            print(line, flush=True)
            sys.stdin.readline()
    else:
        raw.execute(line).fetchall()
        print(line, flush=True)
"""
# Writes without a break, as a busy worker does.
BUSY = """
import sys
from jobq import open_store
store = open_store(sys.argv[1])
print("open", flush=True)
while True:
    store.enqueue("noop", {})
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store of a test is."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path, opened: Callable[..., Store]) -> Store:
    """Return a store that this process has open too."""
    return opened(path)


@pytest.fixture
def another(path: Path, store: Store, start: Callable[..., "Program"]) -> "Program":
    """Return another process that has the store open."""
    assert store.list() == []
    program = start(ANOTHER, str(path))
    assert program.hear() == "open"
    return program


def told(program: "Program", line: str) -> None:
    """Have the other process do something, and return when it is done."""
    program.tell(line)
    assert program.hear() == line


def stopped(program: "Program") -> None:
    """Stop the other process in its tracks."""
    os.kill(program.pid, signal.SIGSTOP)
    wait_until(
        lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED, "it to stand still"
    )


def ill(findings: Iterator[Finding]) -> list[Finding]:
    """Return the findings that say anything but ok."""
    return [finding for finding in findings if finding.grade is not Grade.OK]


def sql(path: Path, *statements: str) -> None:
    """Do something to the file that jobq would not do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for statement in statements:
            raw.execute(statement).fetchall()


# ── healthy ───────────────────────────────────────────────────────────────────────────────────────


def test_a_healthy_store_gives_no_cause_for_complaint(path: Path, store: Store) -> None:
    """Every line of it says ok; what is just being done is no fault."""
    store.enqueue("noop", {})
    store.enqueue("noop", {})
    assert store.claim("worker", 30) is not None
    assert ill(examine_store(path)) == []


def test_a_store_is_the_same_after_the_doctor_has_been_there(path: Path) -> None:
    """Not a byte of its content has changed, and nothing lies beside it that did not before."""
    with closing(open_store(path)) as store:
        store.enqueue("noop", {})
    before, files = path.read_bytes(), sorted(path.parent.iterdir())
    assert len(list(examine_store(path))) > 10
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == (before, files)


def test_a_busy_worker_is_not_a_fault_and_not_disturbed(
    path: Path, store: Store, start: Callable[..., "Program"]
) -> None:
    """Met with the write lock each time, it has moved on in between; and it goes on."""
    program = start(BUSY, str(path))
    program.hear()
    assert ill(examine_store(path)) == []
    before = store.last_event()
    wait_until(lambda: store.last_event() > before, "the next job")
    assert str(program.pid) in "".join(map(str, examine_store(path)))


def test_an_open_transaction_of_this_process_is_left_alone(path: Path, store: Store) -> None:
    """The doctor takes no lock away: closing a file can drop all that the process has on it."""
    with store.transaction() as tx:
        list(examine_store(path))
        with (
            closing(sqlite3.connect(path, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
        tx.execute("SELECT 1")


# ── processes ─────────────────────────────────────────────────────────────────────────────────────


@linux_only
def test_a_stopped_process_with_the_write_lock_is_named(path: Path, another: "Program") -> None:
    """It keeps everybody from writing, and the mend lets it go on."""
    told(another, "write")
    stopped(another)
    [found] = ill(examine_store(path))
    assert found.grade is Grade.FAIL
    assert f"pid {another.pid} " in found.text
    assert "is stopped and holds the write lock" in found.text
    assert f"kill -CONT {another.pid}" in found.mend


@linux_only
def test_a_stopped_process_with_sqlites_own_lock_is_named(path: Path, another: "Program") -> None:
    """A program that goes by SQLite alone can hold the lock, too."""
    told(another, "BEGIN IMMEDIATE")
    stopped(another)
    found = [f for f in ill(examine_store(path)) if f.grade is Grade.FAIL]
    assert [f.text.endswith("so that nobody can write") for f in found] == [True]


@linux_only
def test_a_stopped_process_without_a_lock_is_a_warning(path: Path, another: "Program") -> None:
    """Others take its job, once the lease has run out."""
    stopped(another)
    [found] = ill(examine_store(path))
    assert (found.grade, f"kill -CONT {another.pid}" in found.mend) == (Grade.WARN, True)


@linux_only
def test_a_write_that_does_not_end_is_a_warning(path: Path, another: "Program") -> None:
    """Nothing is stopped, and yet nobody can write."""
    told(another, "write")
    [found] = ill(examine_store(path))
    assert found.grade is Grade.WARN
    assert f"pid {another.pid} " in found.text
    assert "has held the write lock all the while" in found.text


@linux_only
def test_a_long_reader_is_named(path: Path, store: Store, another: "Program") -> None:
    """gotosocial#2808: it keeps the log from being emptied."""
    told(another, "BEGIN")
    told(another, "SELECT count(*) FROM jobs")
    store.enqueue("noop", {})
    [found] = ill(examine_store(path))
    assert found.grade is Grade.WARN
    assert f"pid {another.pid} " in found.text
    assert "cannot be emptied" in found.text
    told(another, "COMMIT")
    assert ill(examine_store(path)) == []


def test_where_locks_are_not_told_a_long_reader_is_still_found(
    path: Path, store: Store, another: "Program"
) -> None:
    """By the checkpoint that does not get past it; who has the store open is named."""
    told(another, "BEGIN")
    told(another, "SELECT count(*) FROM jobs")
    store.enqueue("noop", {})
    nameless = holders.Holder(another.pid, "python", stopped=False, hold=holders.Hold.NOTHING)
    with database.looking(path) as look:
        [found] = wal.log([wal.checkpoint(look), wal.checkpoint(look)], [[nameless]] * 2, 4096)
        assert found.grade is Grade.WARN
        assert f"pid {another.pid} " in found.mend
        told(another, "COMMIT")
        assert wal.checkpoint(look).left == 0


@linux_only
def test_a_link_to_a_store_leads_to_its_processes(
    path: Path, another: "Program", tmp_path: Path
) -> None:
    """The kernel knows files by their real path."""
    link = tmp_path / "link.db"
    link.symlink_to(path)
    told(another, "write")
    stopped(another)
    [found] = ill(examine_store(link))
    assert found.text.endswith("so that nobody can write")


def test_a_log_that_was_large_once_is_no_fault() -> None:
    """SQLite uses it again from its beginning; it is no smaller for that."""
    [found] = wal.log([wal.Checkpoint(left=0, moved=9)], [[]], 500_000_000)
    assert found.grade is Grade.OK
    assert "500 MB" in found.text


# ── database ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "name"),
    [("INDEX", "jobs_ready"), ("INDEX", "jobs_final"), ("TABLE", "marks")],
)
def test_a_missing_part_of_the_schema_is_named(
    path: Path, store: Store, kind: str, name: str
) -> None:
    """Claims would fail; the mend is the statement that makes it, and it does."""
    assert store.list() == []
    sql(path, f"DROP {kind} {name}")
    [found] = ill(examine_store(path))
    assert found.grade is Grade.FAIL
    assert found.text.startswith(name)
    sql(path, found.mend.partition(": ")[2])
    assert ill(examine_store(path)) == []


def test_a_job_that_nobody_took_over_is_told_of(path: Path, opened: Callable[..., Store]) -> None:
    """Its lease ran out long ago: no worker runs."""
    store = opened(path, clock=lambda: time.time() - 310)
    store.enqueue("noop", {})
    assert store.claim("worker", 10) is not None
    [found] = ill(examine_store(path))
    assert found.text == "the lease of 1 job ran out, 5 min ago, and nobody took over"
    assert "jobq worker" in found.mend


def test_jobs_that_wait_while_nothing_runs_are_told_of(
    path: Path, opened: Callable[..., Store]
) -> None:
    """No worker is there. Those whose time has not come are no matter."""
    store = opened(path, clock=lambda: time.time() - 7200)
    store.enqueue("noop", {})
    store.enqueue("noop", {}, run_after=time.time() + 60)
    [found] = ill(examine_store(path))
    assert found.text == "1 job can be run, the first for 2 h, and nothing runs"
    assert "jobq worker" in found.mend


def test_jobs_that_wait_for_a_busy_worker_are_no_fault(
    path: Path, opened: Callable[..., Store]
) -> None:
    """A queue is there to be waited in."""
    store = opened(path, clock=lambda: time.time() - 7200)
    store.enqueue("noop", {})
    store.enqueue("noop", {})
    assert store.claim("worker", 9000) is not None
    assert ill(examine_store(path)) == []


def test_an_event_from_the_future_is_told_of(path: Path, opened: Callable[..., Store]) -> None:
    """The clock was stepped back since, and leases last longer by as much."""
    ahead = opened(path, clock=lambda: time.time() + 3600 * 5)
    ahead.enqueue("noop", {})
    [found] = ill(examine_store(path))
    assert found.text == "the newest event is dated 5 h from now"


def test_another_journal_mode_is_told_of(path: Path) -> None:
    """Somebody has switched it, and the mend switches it back."""
    open_store(path).close()
    sql(path, "PRAGMA journal_mode = DELETE")
    [found] = ill(examine_store(path))
    assert found.text == "the journal mode is delete, not wal"
    open_store(path).close()
    assert ill(examine_store(path)) == []


def test_a_damaged_file_is_told_of(path: Path) -> None:
    """Whatever is damaged, there is a line for it and no traceback."""
    with closing(open_store(path)) as store:
        store.enqueue_many({"kind": "noop", "payload": {"n": n}} for n in range(500))
    whole = path.read_bytes()
    for place in range(5, 10):
        damaged = bytearray(whole)
        damaged[place * 4096 : place * 4096 + 2000] = b"\xff" * 2000
        path.write_bytes(damaged)
        found = ill(examine_store(path))
        assert any("copy" in finding.mend for finding in found), place


@pytest.mark.parametrize("content", [b"", b"x" * 10_000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_any_file_gives_findings_and_is_left_alone(path: Path, content: bytes) -> None:
    """Empty, foreign, or cut short."""
    path.write_bytes(content)
    assert len(ill(examine_store(path))) == 1
    assert path.read_bytes() == content


def test_a_file_of_another_program_is_refused(path: Path) -> None:
    """And not made a store of."""
    sql(path, "CREATE TABLE things (x)")
    with pytest.raises(ForeignFile), database.looking(path):
        pass
    assert [f.grade for f in ill(examine_store(path))] == [Grade.FAIL]


@pytest.mark.parametrize(("version", "grade"), [(1, Grade.WARN), (99, Grade.FAIL)])
def test_another_version_of_the_schema_is_told_of(path: Path, version: int, grade: Grade) -> None:
    """An older one is no fault, and a later one is for a later jobq."""
    open_store(path).close()
    sql(path, f"PRAGMA user_version = {version}")
    [found] = ill(examine_store(path))
    assert found.grade is grade


def test_a_file_that_is_locked_gives_a_line(path: Path, start: Callable[..., "Program"]) -> None:
    """Another program has the file for itself."""
    open_store(path).close()
    code = (
        "import sqlite3, sys; raw = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "raw.execute('PRAGMA locking_mode = EXCLUSIVE'); "
        "raw.execute('BEGIN EXCLUSIVE'); print('held', flush=True); input()"
    )
    program = start(code, str(path))
    assert program.hear() == "held"
    *_, locked, users = examine_store(path)
    assert (locked.grade, "locked" in locked.text) == (Grade.WARN, True)
    assert str(program.pid) in users.text


def test_a_large_file_is_not_read_through(path: Path, store: Store) -> None:
    """That could take minutes; the line says so."""
    assert store.list() == []
    with database.looking(path) as look:
        assert "too large" in database.whole(look, 2_000_000_000).text
        assert database.whole(look, 1000).text == "its structure is whole"


def test_what_takes_too_long_is_given_up(
    path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question to a large store has a limit, and going over it is a finding."""
    store.enqueue_many({"kind": "noop", "payload": {}} for _ in range(5_000))
    monkeypatch.setattr(database, "STATEMENT_SECONDS", -1.0)
    found = ill(examine_store(path))
    assert any("interrupted" in finding.text for finding in found)


def test_a_fault_of_a_check_is_a_finding(
    path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are carried out all the same."""
    assert store.list() == []

    def broken(*_: Any) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr(queue, "times", broken)
    found = list(examine_store(path))
    assert [f.text for f in found if f.grade is not Grade.OK] == [
        "the events could not be looked at (RuntimeError: oh)"
    ]
    assert found[-1].text == "no job is left alone"
