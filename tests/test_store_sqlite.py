"""What is SQLite's own: the file, its locks, its plans, and what can befall them."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from jobq import (
    ForeignFile,
    InvalidInput,
    Job,
    JobqError,
    SchemaTooNew,
    Status,
    Store,
    StoreBusy,
    StoreError,
    open_store,
)
from jobq.errors import UnsafeFilesystem, WriteFailed
from jobq.store.connection import STATEMENTS, Synchronous
from jobq.store.engine import Transaction
from jobq.store.sqlite import SCHEMA_VERSION, open_sqlite

if TYPE_CHECKING:
    from tests.conftest import Clock, Program

LEASE = 10.0
posix = pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows has no fork, flock or SIGSTOP, and links for administrators only",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a file that does not exist yet."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path, opened: Callable[..., Store], clock: "Clock") -> Store:
    """Return an empty store on SQLite."""
    return opened(path, clock=clock)


def sql(
    path: Path, statement: str, *parameters: object, timeout: float = 5.0
) -> list[tuple[Any, ...]]:
    """Do to the file what another program could: past jobq, and past its constraints."""
    with closing(sqlite3.connect(path, timeout=timeout)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        return connection.execute(statement, parameters).fetchall()


def files(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder with what they hold."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# ------------------------------------------------------------------------------- the file


@pytest.mark.parametrize(("synchronous", "number"), [("NORMAL", 1), ("FULL", 2)])
def test_every_thread_writes_ahead_and_syncs_as_asked(
    path: Path, synchronous: Synchronous, number: int
) -> None:
    """Journal mode and `synchronous` hold for each connection, not just for the first."""

    def modes(_: int) -> tuple[str, int]:
        with engine.read() as tx:
            (mode,), (level,) = tx.execute("PRAGMA journal_mode") + tx.execute("PRAGMA synchronous")
            return mode, level

    with closing(open_sqlite(path, synchronous=synchronous)) as engine, ThreadPoolExecutor() as two:
        assert {modes(0), *two.map(modes, range(2))} == {("wal", number)}


def test_a_copy_in_another_mode_is_put_back_to_write_ahead(
    path: Path, opened: Callable[..., Store]
) -> None:
    """A backup made by VACUUM INTO comes without the mode; as a store it has it again."""
    job = opened(path).enqueue("nap", {}).job
    copy = path.with_name("copy.db")
    sql(path, "VACUUM INTO ?", str(copy))
    assert sql(copy, "PRAGMA journal_mode") == [("delete",)]
    assert opened(copy).list() == [job]
    assert sql(copy, "PRAGMA journal_mode") == [("wal",)]


def test_full_is_the_default(path: Path) -> None:
    """An acknowledged job survives a power cut, unless somebody chose otherwise."""
    with closing(open_sqlite(path)) as engine, engine.read() as tx:
        assert tx.execute("PRAGMA synchronous")[0][0] == 2


OPEN_EACH = """
import sys
from jobq import open_store
for path in sys.argv[1:]:
    print("ready", flush=True)
    input()
    open_store(path).enqueue("nap", {})
"""


@pytest.mark.parametrize("crowd", [2, 8])
def test_any_number_may_be_the_first_at_once(
    start: Callable[..., "Program"], tmp_path: Path, opened: Callable[..., Store], crowd: int
) -> None:
    """Processes that open the same missing file together all get on, ten files in a row."""
    paths = [str(tmp_path / f"{n}.db") for n in range(10)]
    programs = [start(OPEN_EACH, *paths) for _ in range(crowd)]
    for _ in paths:
        assert {program.hear() for program in programs} == {"ready"}
        for program in programs:
            program.tell()
    assert [program.rest() for program in programs] == [[]] * crowd
    assert [len(opened(path).list()) for path in paths] == [crowd] * 10


def test_an_empty_file_becomes_a_store(path: Path, opened: Callable[..., Store]) -> None:
    """As `touch jobs.db` leaves it."""
    path.touch()
    assert opened(path).list() == []


def make_a_database_of_another_program(path: Path) -> None:
    """Make a database with a table of notes."""
    sql(path, "CREATE TABLE notes (text)")


def make_a_text(path: Path) -> None:
    """Make a file that is no database."""
    path.write_text("Dear diary,\n" * 1_000)


@pytest.mark.parametrize("make", [make_a_database_of_another_program, make_a_text])
def test_a_foreign_file_is_refused_and_left_as_it_was(
    path: Path, make: Callable[[Path], None]
) -> None:
    """A wrong path must not cost anybody anything: no byte changes, no file appears beside it."""
    make(path)
    before = files(path.parent)
    with pytest.raises(ForeignFile, match="name another file"):
        open_store(path)
    assert files(path.parent) == before


def test_a_file_of_a_later_jobq_is_refused(path: Path) -> None:
    """Its schema may mean what this version cannot know; the message says how to go on."""
    open_store(path).close()
    sql(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(SchemaTooNew, match=f"has schema {SCHEMA_VERSION + 1}.*update jobq"):
        open_store(path)


def test_a_damaged_file_is_reported_with_the_mend(path: Path) -> None:
    """Not a traceback of SQLite's, and not an empty queue."""
    open_store(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError, match=r"malformed.*restore it from a copy"):
        open_store(path).list()


@pytest.mark.parametrize(
    ("place", "error", "complaint"),
    [
        ("", InvalidInput, "is no file"),
        (":memory:", InvalidInput, "is no file"),
        ("mysql://host/db", InvalidInput, "is not one of sqlite:///"),
        ("sqlite://host/db", InvalidInput, "is not one of sqlite:///"),
        ("no such folder/jobs.db", StoreError, "does not exist: make it"),
    ],
)
def test_a_place_that_cannot_hold_a_store_is_refused(
    place: str, error: type[JobqError], complaint: str
) -> None:
    """The message says what a store needs."""
    with pytest.raises(error, match=complaint):
        open_store(place)


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    """The message names the path and what it has to be."""
    with pytest.raises(StoreError, match="is a folder: name a file in it"):
        open_store(tmp_path)


def test_a_lock_that_cannot_be_opened_is_reported_with_the_mend(path: Path) -> None:
    """As in a folder that may only be read: no traceback of the system's."""
    path.with_name("jobs.db-lock").mkdir()
    with pytest.raises(StoreError, match=r"jobs\.db-lock.* writable"):
        open_store(path)


def test_an_unknown_durability_is_refused(path: Path) -> None:
    """OFF can corrupt the file; the message names the two there are."""
    with pytest.raises(InvalidInput, match="synchronous is 'OFF': use 'FULL' or 'NORMAL'"):
        open_store(path, synchronous="OFF")


def test_a_url_has_three_slashes_and_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[..., Store]
) -> None:
    """As in SQLAlchemy: relative to the current folder, and absolute with a fourth slash."""
    monkeypatch.chdir(tmp_path)
    job = opened("jobs.db").enqueue("nap", {}).job
    for place in ("sqlite:///jobs.db", f"sqlite:///{tmp_path / 'jobs.db'}", Path("jobs.db")):
        assert opened(place).list() == [job]


@posix
@pytest.mark.parametrize("fstype", ["nfs4", "CIFS", "9p", "fuse.sshfs", "smbfs", "webdav"])
def test_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fstype: str
) -> None:
    """oh-my-pi#9082: the log needs memory that all processes share; no link hides the place."""
    share, link = tmp_path / "share", tmp_path / "link"
    share.mkdir()
    link.symlink_to(share)
    pretend_mounts(monkeypatch, {Path(tmp_path.anchor): "ext4", share: fstype})
    for folder in (share, link):
        with pytest.raises(UnsafeFilesystem, match=f"network file system \\({fstype.lower()}\\)"):
            open_store(folder / "jobs.db")
    assert list(share.iterdir()) == []


def test_a_local_disk_within_a_network_mount_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[..., Store]
) -> None:
    """The file system that holds the file counts, not one further up, or one beside it."""
    (tmp_path / "disk").mkdir()
    mounts = {tmp_path: "nfs4", tmp_path / "disk": "ext4", tmp_path / "dis": "nfs"}
    pretend_mounts(monkeypatch, mounts)
    assert opened(tmp_path / "disk" / "jobs.db").list() == []


def pretend_mounts(monkeypatch: pytest.MonkeyPatch, mounts: dict[Path, str]) -> None:
    """Stand in for the system's table of mounts: a test cannot mount a network share."""
    table = [SimpleNamespace(mountpoint=str(m), fstype=fstype) for m, fstype in mounts.items()]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: table)


def test_an_ended_thread_leaves_no_connection_open(path: Path, store: Store) -> None:
    """A server starts threads for ever; the files it holds open do not grow with them."""
    store.enqueue("nap", {})

    def held_open() -> int:
        return sum(Path(f.path).name.startswith(path.name) for f in psutil.Process().open_files())

    def read_in_threads(number: int) -> None:
        for _ in range(number):
            thread = Thread(target=store.list)
            thread.start()
            thread.join()

    read_in_threads(1)
    before = held_open()
    read_in_threads(20)
    assert held_open() == before


def test_no_snapshot_stays_open_after_a_read(path: Path, store: Store) -> None:
    """gotosocial#2808: after every kind of read the log can be emptied, so it does not grow."""
    job = store.enqueue("nap", {}).job
    store.get(job.id)
    store.list()
    store.events()
    store.attempts(job.id)
    store.stats()
    store.wait(store.change_mark(), 0)
    ((busy, _, _),) = sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    assert busy == 0
    assert path.with_name("jobs.db-wal").stat().st_size == 0


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need rights there")
def test_a_store_has_one_lock_by_whatever_name_it_is_opened(
    path: Path, store: Store, opened: Callable[..., Store]
) -> None:
    """Who comes by a symbolic link waits in the same queue."""
    store.enqueue("nap", {})
    link = path.with_name("link.db")
    link.symlink_to(path)
    opened(link).enqueue("nap", {})
    assert len(store.list()) == 2
    assert [p.name for p in path.parent.glob("*-lock")] == [f"{path.name}-lock"]


# ---------------------------------------------------------------------------------- plans

DEFINITIONS = {name for name in STATEMENTS if name.startswith(("schema", "upgrade_"))}
UNBOUNDED = {"counts"}  # counting every job reads an index of every job


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - DEFINITIONS - UNBOUNDED))
def test_no_statement_reads_all_jobs_or_sorts_them(path: Path, store: Store, name: str) -> None:
    """A scan is of a partial index that holds only what waits or runs, and is in order."""
    assert store.list() == []
    with closing(sqlite3.connect(path)) as connection:
        parameters = dict.fromkeys(re.findall(r":(\w+)", STATEMENTS[name]), 0)
        rows = connection.execute("EXPLAIN QUERY PLAN " + STATEMENTS[name], parameters).fetchall()
    plan = [detail for *_, detail in rows]
    assert [step for step in plan if "TEMP B-TREE" in step] == []
    scans = [step for step in plan if step.startswith(("SCAN jobs", "SCAN events", "SCAN att"))]
    assert [s for s in scans if not re.search(r"INDEX jobs_(ready|delayed|leased)\b", s)] == []


FINISHED = """
    INSERT INTO jobs (id, kind, payload, status, max_attempts, priority, rank, run_after, ready,
                      created_at, started_at, finished_at)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
    SELECT i, 'nap', '{}', iif(i % 2, 'done', 'failed'), 3, 0, i, 0, 1, i, i, i + 1 FROM n
"""


@pytest.fixture
def steps(store: Store) -> Callable[[Callable[[], object]], int]:
    """Return what counts the steps that SQLite takes for a call."""
    assert store.list() == []
    raw = store._engine._connection().raw  # type: ignore[attr-defined]  # of SQLite's engine

    def count(call: Callable[[], object]) -> int:
        taken = 0

        def one_more() -> None:
            nonlocal taken
            taken += 1

        raw.set_progress_handler(one_more, 1)
        call()
        raw.set_progress_handler(None, 1)
        return taken

    return count


def test_the_work_of_a_claim_does_not_grow_with_the_finished_jobs(
    path: Path, store: Store, steps: Callable[[Callable[[], object]], int]
) -> None:
    """The lesson's grew to 158 ms; here SQLite takes the same steps with 20,000 jobs as with 2."""

    def a_job() -> None:
        store.enqueue("nap", {})
        job = store.claim("w1", LEASE)
        assert job is not None
        store.heartbeat(job, LEASE)
        store.finish(job, 1)
        assert store.claim("w1", LEASE) is None

    a_job()
    before = steps(a_job)
    sql(path, FINISHED)
    assert steps(a_job) == before


def cancel_and_retry(store: Store) -> None:
    """Cancel and retry a job of a rare kind."""
    job = store.enqueue("rare", {}).job
    store.cancel(job.id)
    store.retry(job.id)
    store.cancel(job.id)


def mark(store: Store) -> None:
    """Have a job marked."""
    store.enqueue("nap", {})
    job = store.claim("w1", LEASE)
    assert job is not None
    store.mark_done(job, "mail-1")
    store.is_done(job, "mail-1")
    store.cancel(job.id)
    store.confirm_cancel(job)


ASKED: dict[str, Callable[[Store], object]] = {
    "cancel and retry": cancel_and_retry,
    "marks": mark,
    "retry all of a rare kind": lambda store: store.retry_all(kind="rare"),
    "prune of nothing": lambda store: store.prune(10**9),
    "a rare kind": lambda store: store.list(kind="rare"),
    "a page": lambda store: store.list(limit=1),
    "a page of a kind": lambda store: store.list(kind="nap", limit=1),
    "a page of a kind and status": lambda store: store.list(
        kind="nap", status=Status.DONE, limit=1
    ),
    "a kind's run time": lambda store: store.typical_seconds("nap"),
    "the last event": lambda store: store.last_event(),
    "an idle look": lambda store: store.wait(store.change_mark(), 0),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_the_work_of_an_answer_does_not_grow_with_the_finished_jobs(
    path: Path,
    store: Store,
    steps: Callable[[Callable[[], object]], int],
    ask: Callable[[Store], object],
) -> None:
    """An operator's page, a client's poll: as quick with 20,000 finished jobs as with 40."""
    few = FINISHED.replace("20000", "40")
    sql(path, few)
    cancel_and_retry(store)
    before = steps(lambda: ask(store))
    sql(path, FINISHED.replace("SELECT i,", "SELECT i + 100,"))
    assert steps(lambda: ask(store)) <= before + 10


# ------------------------------------------------------------------------------- bad rows

LARGEST = 2**63 - 1
CORRUPTIONS = {
    "payload that is no JSON": "payload = 'no'",
    "payload nested without end": f"payload = '{'[' * 100_000}'",
    "payload that is no UTF-8": "payload = CAST(x'22ff22' AS TEXT)",
    "kind that is no UTF-8": "kind = CAST(x'ff' AS TEXT)",
    "id that is no UTF-8": "id = CAST(x'ff' AS TEXT)",
    "result that is no JSON": "result = 'no'",
    "attempts past counting": f"attempts = {LARGEST}",
    "token past counting": f"token = {LARGEST}",
    "token that was given out before": "token = 0",
    "a lease, and no JSON": "payload = 'no', locked_until = 5",
}
WHILE_RUNNING = CORRUPTIONS | {
    "worker that is no UTF-8": "worker = CAST(x'ff' AS TEXT)",
    "worker that is nobody": "worker = NULL",
}


def corrupt(path: Path, change: str) -> None:
    """Change the first job by hand."""
    sql(path, f"UPDATE jobs SET {change} WHERE seq = 1")  # noqa: S608  # written above


def three_jobs(store: Store) -> tuple[Job, Job, Job]:
    """Enqueue three jobs; the first one has been claimed and given back once."""
    first, second, third = (store.enqueue("nap", {}).job for _ in range(3))
    taken = store.claim("w1", LEASE)
    assert taken is not None
    assert taken.id == first.id
    return store.release(taken), second, third


@pytest.mark.parametrize("change", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_a_bad_row_never_blocks_those_behind_it(path: Path, store: Store, change: str) -> None:
    """oban#652: the same claim fails the bad job with the reason, and takes the next."""
    _, second, third = three_jobs(store)
    corrupt(path, change)
    taken = store.claim("w1", LEASE)
    assert taken is not None
    assert taken.id == second.id
    assert store.get(third.id) == third
    ((status, error),) = sql(path, "SELECT status, error FROM jobs WHERE seq = 1")
    assert status == "failed"
    assert error.startswith("this job cannot be claimed: ")
    assert [event.name for event in store.events()[-2:]] == ["rejected", "claimed"]


@pytest.mark.parametrize("change", WHILE_RUNNING.values(), ids=WHILE_RUNNING)
def test_a_bad_row_whose_lease_ran_out_never_blocks_the_others(
    path: Path, store: Store, clock: "Clock", change: str
) -> None:
    """The sweep gets past it, and nobody has to mend the file first."""
    _, second, third = three_jobs(store)
    assert store.claim("w1", LEASE) is not None
    corrupt(path, change)
    clock.move(LEASE + 1)
    claims = [store.claim("w2", LEASE) for _ in range(3)]
    taken = [job.id for job in claims if job is not None]
    assert [job_id for job_id in taken if job_id in {second.id, third.id}] == [second.id, third.id]


@pytest.mark.parametrize("change", ["payload = 'no'", "status = 'lost'"])
def test_a_bad_row_that_is_asked_for_is_named(path: Path, store: Store, change: str) -> None:
    """Whoever looks at it learns which job it is, without a traceback."""
    first, *_ = three_jobs(store)
    corrupt(path, change)
    with pytest.raises(StoreError, match=first.id):
        store.get(first.id)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ("payload = 'no'", {"payload": {}, "status": "queued", "kind": "nap"}),
        ("payload = '[1]'", {"payload": {}, "status": "queued"}),
        ("kind = CAST(x'6eff' AS TEXT)", {"kind": "n\\xff", "payload": {"n": 1}}),
        ("error = CAST(x'ff' AS TEXT)", {"payload": {"n": 1}}),
        ("idempotency_key = CAST(x'ff' AS TEXT)", {"idempotency_key": "\\xff"}),
        ("status = 'lost'", {"status": "failed", "payload": {"n": 1}}),
        ("result = 'no'", {"result": None}),
        ("progress = '[]'", {"progress": None}),
        ("progress = '{\"percent\": 5}'", {"progress": None}),
        ('progress = \'{"done": "much"}\'', {"progress": None}),
        ("retry = '{\"base\": -1}'", {"retry": None, "max_attempts": 3}),
        (f"payload = '{'[' * 100_000}'", {"payload": {}}),
    ],
)
def test_a_bad_row_is_listed_as_far_as_it_can_be_read(
    path: Path, store: Store, change: str, kept: dict[str, Any]
) -> None:
    """Its error says which job it is and what is wrong; the others of its page are as they were."""
    bad, good = (store.enqueue("nap", {"n": n}).job for n in (1, 2))
    corrupt(path, change)
    newest, listed = store.list()
    assert newest == good
    assert {name: getattr(listed, name) for name in kept} == kept
    column = change.partition(" ")[0]
    assert f"has changed job {bad.id}: {column}: " in str(listed.error)
    assert [job.id for job in store.find(bad.id)] == [bad.id]
    counts = store.stats().counts
    assert counts[listed.status] == (2 if listed.status == good.status else 1)
    with pytest.raises(StoreError, match=f"{bad.id}: {column}"):
        store.get(bad.id)


def test_a_bad_row_stops_no_retry_and_no_prune_of_the_others(
    path: Path, store: Store, clock: "Clock"
) -> None:
    """Each of them goes past it."""
    for _ in range(3):
        store.enqueue("nap", {})
        taken = store.claim("w1", LEASE)
        assert taken is not None
        store.fail(taken, "no", final=True)
    corrupt(path, "locked_until = 5")  # a lease on a failed job breaks a constraint
    assert store.retry_all() == 2
    for job in store.list(status=Status.QUEUED):
        store.cancel(job.id)
    corrupt(path, "id = CAST(x'ff' AS TEXT)")
    clock.move(1)
    assert store.prune(0) == 2


def test_a_bad_line_does_not_end_the_log(path: Path, store: Store) -> None:
    """It is left out; whoever reads on from the last one seen gets all the others."""
    job = store.enqueue("nap", {}).job
    for _ in range(3):
        store.enqueue("nap", {})
    sql(path, "UPDATE events SET name = 'lost' WHERE seq IN (2, 3)")
    assert [event.seq for event in store.events()] == [1, 4]
    assert [event.seq for event in store.events(after=1, limit=1)] == [4]
    sql(path, "UPDATE events SET error = CAST(x'ff' AS TEXT) WHERE seq = 1")
    assert store.events(job.id) == ()


# ------------------------------------------------------------------------------ older files

# As the first jobq wrote it.
SCHEMA_1 = """
CREATE TABLE jobs (
    seq             INTEGER PRIMARY KEY,        -- the order of arrival
    id              TEXT    NOT NULL UNIQUE,
    kind            TEXT    NOT NULL,
    payload         TEXT    NOT NULL CHECK (json_valid(payload)),
    idempotency_key TEXT    UNIQUE,
    status          TEXT    NOT NULL DEFAULT 'queued'
                    CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    attempts        INTEGER NOT NULL DEFAULT 0,
    max_attempts    INTEGER NOT NULL,
    priority        INTEGER NOT NULL,
    rank            REAL    NOT NULL,           -- created_at, moved ahead by the priority
    run_after       REAL    NOT NULL,
    ready           INTEGER NOT NULL,           -- 0 while run_after lies ahead: see wake_delayed
    token           INTEGER NOT NULL DEFAULT 0, -- grows with each claim, never goes back
    worker          TEXT,
    locked_until    REAL,
    result          TEXT    CHECK (result IS NULL OR json_valid(result)),
    error           TEXT,
    created_at      REAL    NOT NULL,
    finished_at     REAL,
    -- A lease belongs to a running job and to no other.
    CHECK ((status = 'running') = (locked_until IS NOT NULL))
) STRICT;
CREATE INDEX jobs_ready   ON jobs (rank, seq)     WHERE status = 'queued' AND ready = 1;
CREATE INDEX jobs_delayed ON jobs (run_after)     WHERE status = 'queued' AND ready = 0;
CREATE INDEX jobs_leased  ON jobs (locked_until)  WHERE status = 'running';
CREATE INDEX jobs_listed  ON jobs (status, seq);
CREATE TABLE attempts (
    job_id     TEXT    NOT NULL,
    token      INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    worker     TEXT    NOT NULL,
    started_at REAL    NOT NULL,
    ended_at   REAL,
    outcome    TEXT CHECK (outcome IN ('done', 'failed', 'crashed', 'released', 'cancelled')),
    error      TEXT,
    PRIMARY KEY (job_id, token),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given out again
    job_id       TEXT    NOT NULL,
    at           REAL    NOT NULL,
    name         TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    attempt      INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    worker       TEXT,
    locked_until REAL,
    run_after    REAL,
    error        TEXT
) STRICT;
CREATE INDEX events_of_job ON events (job_id, seq);
PRAGMA application_id = 0x6A6F6271;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
INSERT INTO jobs (id, kind, payload, idempotency_key, status, attempts, max_attempts, priority,
                  rank, run_after, ready, token, worker, locked_until, result, created_at,
                  finished_at)
VALUES ('aa', 'nap', '{"n": 1}', 'key', 'done', 1, 3, 0, 10, 0, 1, 1, NULL, NULL, '5', 10, 12),
       ('bb', 'nap', '{}', NULL, 'running', 1, 3, 0, 20, 0, 1, 1, 'w1', 1000010, NULL, 20, NULL),
       ('cc', 'nap', '{}', NULL, 'queued', 0, 3, 0, 30, 0, 1, 0, NULL, NULL, NULL, 30, NULL);
INSERT INTO attempts VALUES ('aa', 1, 1, 'w1', 11, 12, 'done', NULL),
                            ('bb', 1, 1, 'w1', 21, NULL, NULL, NULL);
INSERT INTO events (job_id, at, name, status, attempt, token, worker, locked_until, run_after)
VALUES ('aa', 10, 'enqueued', 'queued', 0, 0, NULL, NULL, 0),
       ('aa', 11, 'claimed', 'running', 1, 1, 'w1', 41, NULL),
       ('aa', 12, 'done', 'done', 1, 1, 'w1', NULL, NULL),
       ('bb', 20, 'enqueued', 'queued', 0, 0, NULL, NULL, 0),
       ('bb', 21, 'claimed', 'running', 1, 1, 'w1', 1000010, NULL),
       ('cc', 30, 'enqueued', 'queued', 0, 0, NULL, NULL, 0);
"""


def make_schema_1(path: Path) -> None:
    """Write a file as the first jobq did."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA_1)


def layout(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return each table's columns, and each index's columns and condition."""
    parts = sql(path, "SELECT type, name, sql FROM sqlite_schema ORDER BY name")
    return {
        f"{kind} {name}": sql(path, f"PRAGMA {kind}_xinfo({name})")
        + ([(" ".join(text.split()),)] if kind == "index" and text else [])
        for kind, name, text in parts
    }


def test_a_file_of_the_first_schema_becomes_one_of_the_present(
    path: Path, opened: Callable[..., Store]
) -> None:
    """Column by column and index by index, and marked so that the first jobq refuses it."""
    make_schema_1(path)
    opened(path)
    new = path.with_name("new.db")
    opened(new)
    assert layout(path) == layout(new)
    assert sql(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


def test_the_jobs_of_a_file_of_the_first_schema_go_on(
    path: Path,
    opened: Callable[..., Store],
    clock: "Clock",
    assert_consistent: Callable[[Store], None],
) -> None:
    """What was done is done, what ran has its lease, what waited is run; all can be operated."""
    make_schema_1(path)
    store = opened(path, clock=clock)
    waiting, running, done = store.list()
    assert (done.status, done.result, done.started_at) == ("done", 5, None)
    assert store.enqueue("nap", {"n": 1}, "key") == (done, False)
    assert store.typical_seconds("nap") is None
    assert store.stats().kinds["nap"][Status.RUNNING] == 1
    assert store.cancel(running.id).cancel_requested
    assert store.confirm_cancel(running).status == "cancelled"
    taken = store.claim("w2", LEASE)
    assert taken is not None
    assert taken.id == waiting.id
    store.finish(taken, 1)
    assert_consistent(store)
    clock.move(1)
    assert store.prune(0) == 3


UPGRADE_AND_DIE = """
import os, sys
from pathlib import Path
from jobq.store import connection, sqlite
before = connection.OpenTransaction.execute
def die_at_the_index(self, sql, parameters=()):
    if "jobs_final" in sql:
        os.kill(os.getpid(), 9)
    return before(self, sql, parameters)
connection.OpenTransaction.execute = die_at_the_index
sqlite.open_sqlite(Path(sys.argv[1]))
"""


def test_an_upgrade_that_is_killed_is_done_by_the_next(
    start: Callable[..., "Program"], path: Path, opened: Callable[..., Store]
) -> None:
    """It is one transaction: the file stays as it was."""
    make_schema_1(path)
    before = layout(path)
    assert start(UPGRADE_AND_DIE, str(path)).process.wait() != 0
    assert layout(path) == before
    assert len(opened(path).list()) == 3


def test_any_number_may_upgrade_at_once(
    start: Callable[..., "Program"], tmp_path: Path, opened: Callable[..., Store]
) -> None:
    """Four processes that open the same old file together all get on, five files in a row."""
    crowd, paths = 4, [tmp_path / f"{n}.db" for n in range(5)]
    for path in paths:
        make_schema_1(path)
    programs = [start(OPEN_EACH, *map(str, paths)) for _ in range(crowd)]
    for _ in paths:
        assert {program.hear() for program in programs} == {"ready"}
        for program in programs:
            program.tell()
    assert [program.rest() for program in programs] == [[]] * crowd
    assert [len(opened(path).list()) for path in paths] == [crowd + 3] * 5


# ----------------------------------------------------- transactions that a statement undoes


def undo_and_say_nothing(tx: Transaction) -> None:
    """Write a row, have SQLite undo the whole transaction, and swallow the error."""
    tx.execute("INSERT INTO orders VALUES (7)")
    with suppress(StoreError):
        tx.execute("INSERT OR ROLLBACK INTO orders VALUES (NULL)")


@pytest.fixture
def orders(store: Store) -> Callable[[], list[int]]:
    """Make a table of a user's own; return what reads the numbers in it."""
    with store.transaction() as tx:
        tx.execute("CREATE TABLE orders (n INTEGER NOT NULL)")

    def read() -> list[int]:
        with store.transaction() as tx:
            return [row["n"] for row in tx.execute("SELECT n FROM orders")]

    return read


def test_a_finish_that_its_own_write_undid_is_no_success(
    store: Store, orders: Callable[[], list[int]]
) -> None:
    """The job is still its worker's, who can fail the attempt."""
    store.enqueue("nap", {})
    job = store.claim("w1", LEASE)
    assert job is not None
    with pytest.raises(WriteFailed, match="this transaction has ended"):
        store.finish(job, 1, also=undo_and_say_nothing)
    assert (store.get(job.id), orders()) == (job, [])
    assert store.fail(job, "no").error == "no"


def test_what_follows_an_undone_transaction_is_refused(
    store: Store, orders: Callable[[], list[int]]
) -> None:
    """It would be committed by itself, without what came before; and so is the end of the block."""
    with pytest.raises(InvalidInput, match="has ended"), store.transaction() as tx:
        undo_and_refuse(store, tx)
    with pytest.raises(InvalidInput, match="has ended"), store.transaction() as tx:
        undo_and_say_nothing(tx)
    assert (store.list(), orders()) == ([], [])


def undo_and_refuse(store: Store, tx: Transaction) -> None:
    """See that neither a row nor a job can be written any more."""
    undo_and_say_nothing(tx)
    with pytest.raises(InvalidInput, match="has ended"):
        tx.execute("INSERT INTO orders VALUES (8)")
    store.enqueue("nap", {}, conn=tx)


# ---------------------------------------------------------------------------------- locks

HOLD = """
import sys
from pathlib import Path
from jobq.store.sqlite import open_sqlite
engine = open_sqlite(Path(sys.argv[1]))
with engine.write():
    print("holding", flush=True)
    input()
print("let go", flush=True)
input()
"""
WORK = """
import sys
from jobq import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
input()
done = 0
while job := store.claim(sys.argv[2]):
    store.finish(job, 1)
    done += 1
print(done)
"""
LIST = """
import sys
from jobq import open_store
store = open_store(sys.argv[1])
for job in store.list():
    print(job.kind)
store.close()
"""
GIVE_UP_AND_FORK = """
import os, sys
from jobq import StoreBusy, open_store
store = open_store(sys.argv[1], busy_seconds=0.1)
print("ready", flush=True)
input()
try:
    store.enqueue("nap", {})
except StoreBusy:
    if os.fork() != 0:
        print("forked", flush=True)
sys.stdin.read()
"""
HOLD_IN_A_THREAD_AND_FORK = """
import os, sys, threading
from pathlib import Path
from jobq.store.sqlite import open_sqlite
engine = open_sqlite(Path(sys.argv[1]))
holding = threading.Event()
def hold():
    with engine.write():
        holding.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
holding.wait()
if os.fork() != 0:
    print("forked", flush=True)
sys.stdin.read()
"""
FORK = """
import os, sys
from jobq import open_store
store = open_store(sys.argv[1])
store.enqueue("before", {})
connection = store._engine._connection()
child = os.fork()
store.enqueue("parent" if child else "child", {})
if not child:
    # Ended as Python ends, with all that it does then.
    sys.exit(store._engine._connection() is connection)
_, status = os.waitpid(child, 0)
assert status == 0, "the child wrote by the connection of its parent"
assert store._engine._connection() is connection
store.enqueue("after", {})
"""
CLOSE_UNDER_THREADS = """
import sys, threading, time
from jobq import JobqError, open_store
store = open_store(sys.argv[1], synchronous="NORMAL")
end = time.monotonic() + 1.5
def work(n):
    while time.monotonic() < end:
        try:
            store.enqueue("nap", {"text": "x" * 2000})
            if n % 2:
                store.list()
            elif job := store.claim(f"w{n}"):
                store.finish(job, 1)
        except JobqError:
            pass
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    store.close()
    time.sleep(0.005)
"""
PATIENCE = 5.0  # seconds to wait for a lock that is free, or soon will be


@pytest.fixture
def hold(start: Callable[..., "Program"], path: Path) -> Callable[[], "Program"]:
    """Return what starts a process that holds the write lock until it is told to let go."""

    def start_holding() -> "Program":
        program = start(HOLD, str(path))
        assert program.hear() == "holding"
        return program

    return start_holding


@posix
def test_a_process_stopped_in_mid_write_makes_the_others_give_up_in_time(
    hold: Callable[[], "Program"], path: Path, opened: Callable[..., Store]
) -> None:
    """StoreBusy says what to look for; once the process goes on, so does everybody."""
    store, other = opened(path, busy_seconds=0.1), opened(path, busy_seconds=PATIENCE)
    holder = hold()
    os.kill(holder.pid, signal.SIGSTOP)
    with pytest.raises(StoreBusy, match=r"held the write lock for 0\.1 s; is one stopped"):
        store.enqueue("nap", {})
    os.kill(holder.pid, signal.SIGCONT)
    holder.tell()
    assert holder.hear() == "let go"
    assert other.enqueue("nap", {}).created  # whoever gave up does not hold on to its turn
    assert store.enqueue("nap", {}).created


@posix
def test_nobody_waits_for_a_reader_or_makes_it_wait(
    hold: Callable[[], "Program"], path: Path, opened: Callable[..., Store]
) -> None:
    """While the write lock is held, all that only reads goes on, an idle worker's look included."""
    store = opened(path, busy_seconds=0.1)
    job = store.enqueue("nap", {}, run_after=store.now() + 3600).job
    hold()
    assert store.get(job.id) == job
    assert store.list() == [job]
    assert store.claim("w1", LEASE) is None
    assert [event.name for event in store.events(job.id)] == ["enqueued"]
    assert store.attempts(job.id) == ()
    assert store.stats().oldest_waiting_seconds is not None


@posix
def test_a_store_opens_while_its_lock_is_held(
    hold: Callable[[], "Program"], path: Path, opened: Callable[..., Store]
) -> None:
    """Whoever looks for the process that is stopped in mid-write can look into the store."""
    job = opened(path).enqueue("nap", {}).job
    hold()
    assert opened(path, busy_seconds=0.1).get(job.id) == job


@posix
def test_kill_dash_nine_frees_the_lock(
    hold: Callable[[], "Program"], path: Path, opened: Callable[..., Store]
) -> None:
    """The kernel drops the lock of a process that dies, and SQLite undoes its transaction."""
    store = opened(path, busy_seconds=PATIENCE)
    hold().kill()
    assert store.enqueue("nap", {}).created


@posix
def test_a_turn_that_was_given_up_is_not_kept_by_a_child(
    hold: Callable[[], "Program"], start: Callable[..., "Program"], path: Path
) -> None:
    """A fork copies the open file of the turn; when it comes, the lock is let go all the same."""
    store = open_store(path, busy_seconds=PATIENCE)
    forker = start(GIVE_UP_AND_FORK, str(path))
    assert forker.hear() == "ready"
    holder = hold()
    forker.tell()
    assert forker.hear() == "forked"
    holder.tell()
    assert store.enqueue("nap", {}).created
    store.close()


@posix
def test_the_lock_of_a_killed_process_is_not_kept_by_its_child(
    start: Callable[..., "Program"], path: Path, opened: Callable[..., Store]
) -> None:
    """A handler's own child may outlive the worker, and must not stop the queue."""
    store = opened(path, busy_seconds=PATIENCE)
    parent = start(HOLD_IN_A_THREAD_AND_FORK, str(path))
    assert parent.hear() == "forked"
    parent.process.kill()
    parent.process.wait()
    assert store.enqueue("nap", {}).created


@posix
def test_a_wait_that_a_signal_breaks_off_does_not_keep_its_turn(
    hold: Callable[[], "Program"], path: Path, opened: Callable[..., Store]
) -> None:
    """A signal handler may raise while the lock is waited for; the next writer still gets it."""

    class Interrupted(Exception):
        pass

    def interrupt(_: int, __: FrameType | None) -> None:
        raise Interrupted

    store, other = opened(path), opened(path, busy_seconds=PATIENCE)
    holder = hold()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            store.enqueue("nap", {})
    finally:
        signal.signal(signal.SIGALRM, before)
    holder.tell()
    assert other.enqueue("nap", {}).created
    assert store.enqueue("nap", {}).created


def test_a_write_takes_the_lock_before_it_reads(path: Path) -> None:
    """cpython#124510: what reads first and writes later fails at once if another wrote between."""
    with closing(open_sqlite(path)) as engine, engine.write() as tx:
        assert tx.all("counts") == []
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            sql(path, "CREATE TABLE another (text)", timeout=0)


def test_another_programs_write_is_waited_for_and_then_named(
    path: Path, opened: Callable[..., Store]
) -> None:
    """A program that knows nothing of the fair lock still holds SQLite's own."""
    store = opened(path, busy_seconds=0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="another program writes to it"):
            store.enqueue("nap", {})
    assert store.enqueue("nap", {}).created


@posix
@pytest.mark.parametrize("workers", [2, 4])
def test_workers_that_never_pause_get_fair_shares(
    start: Callable[..., "Program"], path: Path, store: Store, workers: int
) -> None:
    """Of 100 jobs a worker nobody gets less than half of that, however busy the others are."""
    for _ in range(100 * workers):
        store.enqueue("nap", {})
    programs = [start(WORK, str(path), f"w{n}") for n in range(workers)]
    assert {program.hear() for program in programs} == {"ready"}
    for program in programs:
        program.tell()
    shares = [int(program.rest()[0]) for program in programs]
    assert sum(shares) == 100 * workers
    assert min(shares) >= 50, f"the shares were {shares}"


def test_opening_a_store_twice_drops_no_lock(
    start: Callable[..., "Program"], path: Path, opened: Callable[..., Store]
) -> None:
    """Closing any other file on the database drops a process's locks; then commits are lost.

    Another process would take itself for the last one, and delete the log while it is written to
    (sqlite.org/howtocorrupt.html, section 2.2).
    """
    store = opened(path)
    store.enqueue("first", {})
    opened(path)
    assert start(LIST, str(path)).rest() == ["first"]
    store.enqueue("second", {})
    assert start(LIST, str(path)).rest() == ["second", "first"]


def test_a_store_may_be_closed_while_its_threads_are_at_work(
    start: Callable[..., "Program"], path: Path
) -> None:
    """SQLite's own closing would be the end of the process; here each thread gets an error."""
    assert start(CLOSE_UNDER_THREADS, str(path)).rest() == []
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_store_closed_within_a_transaction_closes_at_its_end(store: Store) -> None:
    """The transaction is committed, and the next call opens a new connection."""
    with store.transaction() as tx:
        store.close()
        job = store.enqueue("nap", {}, conn=tx).job
    assert store.list() == [job]
    assert store.enqueue("nap", {}).created


@posix
def test_a_fork_shares_no_connection(start: Callable[..., "Program"], path: Path) -> None:
    """solid_queue#324: parent and child each write by their own, and the file stays whole."""
    assert start(FORK, str(path)).rest() == []
    kinds = {kind for (kind,) in sql(path, "SELECT kind FROM jobs")}
    assert kinds == {"before", "parent", "child", "after"}
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


# -------------------------------------------------------------------------------- full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of one megabyte."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    folder = tmp_path / "small"
    folder.mkdir()
    command = [str(mount), "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not (mount and umount) or subprocess.run(command, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk, and not everywhere")
    yield folder
    subprocess.run([umount, "--lazy", str(folder)], check=True)


def fill(store: Store) -> list[Job]:
    """Enqueue until nothing more goes in; return the jobs that were acknowledged."""
    jobs = []

    def enqueue_for_ever() -> None:
        while True:
            jobs.append(store.enqueue("nap", {"ballast": "x" * 50_000}).job)

    with pytest.raises(StoreError, match="full; nothing was changed: free some space"):
        enqueue_for_ever()
    return jobs


def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path, clock: "Clock") -> None:
    """The error says what to do; readers go on; with some space freed, writers do too."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    store = open_store(small_disk / "jobs.db", clock=clock)
    jobs = fill(store)
    with pytest.raises(StoreError, match="free some space"):
        [store.claim("w1", LEASE) for _ in range(100)]
    assert {job.id for job in store.list()} == {job.id for job in jobs}
    ballast.unlink()
    clock.move(LEASE + 1)
    taken = store.claim("w2", LEASE)
    assert taken is not None
    assert store.finish(taken, 1).status == "done"
    store.close()


def test_a_full_database_loses_nothing_that_was_acknowledged(path: Path, clock: "Clock") -> None:
    """The same with SQLite's own limit of pages, wherever no small disk can be had."""
    with closing(open_sqlite(path)) as engine:
        store = Store(engine, clock=clock)
        with engine.read() as tx:
            tx.execute("PRAGMA max_page_count = 100")
        jobs = fill(store)
        assert {job.id for job in store.list()} == {job.id for job in jobs}
        with engine.read() as tx:
            tx.execute("PRAGMA max_page_count = 200")
        assert store.enqueue("nap", {}).created
