"""jobq.store.joining: a job and a row of the caller's own, on a SQLite connection of its own."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from jobq import IdempotencyConflict, InvalidInput, Job, Store, StoreBusy, StoreError

if TYPE_CHECKING:
    from tests.conftest import Clock, Program

# How Python lets a program begin its transactions; the last is new in 3.12.
MODES: dict[str, dict[str, Any]] = {
    "legacy": {},
    "legacy immediate": {"isolation_level": "IMMEDIATE"},
    "by hand": {"isolation_level": None},
}
if sys.version_info >= (3, 12):
    MODES["always open"] = {"autocommit": False}
    MODES["by hand, newly"] = {"autocommit": True}
each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the store's file."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path, opened: Callable[..., Store], clock: "Clock") -> Store:
    """Return an empty store on SQLite."""
    return opened(path, clock=clock)


def connected(path: Path, **mode: Any) -> sqlite3.Connection:
    """Return a connection of the caller's own."""
    connection: sqlite3.Connection = sqlite3.connect(path, timeout=0.1, **mode)
    return connection


@pytest.fixture
def conn(store: Store, path: Path) -> Iterator[sqlite3.Connection]:
    """Return a connection of the caller's own, with a table in the store's file."""
    assert store.list() == []
    with closing(connected(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE orders (n INTEGER NOT NULL)")
        yield connection


def order(connection: sqlite3.Connection) -> None:
    """Write a row of the caller's own, in a transaction."""
    by_hand = connection.isolation_level is None or getattr(connection, "autocommit", 0) is True
    if by_hand and not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (7)")


def orders(path: Path) -> list[int]:
    """Return what another program sees of the rows."""
    with closing(connected(path)) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM orders")]


@pytest.mark.usefixtures("conn")
@each_mode
def test_the_callers_commit_commits_row_and_job(
    store: Store, path: Path, mode: dict[str, Any]
) -> None:
    """Before it nobody else sees either; in whichever way Python handles transactions."""
    with closing(connected(path, **mode)) as own:
        order(own)
        job, created = store.enqueue("nap", {"n": 7}, "order-7", conn=own)
        assert store.enqueue("nap", {"n": 7}, "order-7", conn=own) == (job, False)
        assert created
        assert own.in_transaction
        assert (store.list(), orders(path)) == ([], [])
        own.commit() if mode.get("autocommit") is not True else own.execute("COMMIT")
    assert (store.list(), orders(path)) == ([job], [7])
    assert [event.name for event in store.events(job.id)] == ["enqueued"]
    taken = store.claim("w1")
    assert taken is not None
    assert taken.id == job.id


@pytest.mark.usefixtures("conn")
@each_mode
def test_the_callers_rollback_leaves_neither(
    store: Store, path: Path, mode: dict[str, Any]
) -> None:
    """Nor does closing the connection, nor the key stay taken."""
    with closing(connected(path, **mode)) as own:
        order(own)
        store.enqueue("nap", {}, "order-7", conn=own)
        own.rollback() if mode.get("autocommit") is not True else own.execute("ROLLBACK")
        order(own)
        store.enqueue("nap", {}, "order-7", conn=own)
    assert (store.list(), orders(path)) == ([], [])
    assert store.enqueue("nap", {}, "order-7").created


def test_a_refused_enqueue_leaves_the_callers_transaction_open(
    store: Store, conn: sqlite3.Connection, path: Path
) -> None:
    """Whoever catches the error may commit the rows written before."""
    store.enqueue("nap", {}, "order-7")
    order(conn)
    with pytest.raises(IdempotencyConflict):
        store.enqueue("nap", {"n": 1}, "order-7", conn=conn)
    conn.commit()
    assert orders(path) == [7]
    assert len(store.list()) == 1


def as_dictionary(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    """Return a row as a program may have it made."""
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def test_the_connection_keeps_its_ways_and_they_do_not_matter(
    store: Store, conn: sqlite3.Connection
) -> None:
    """Rows may be dictionaries and texts bytes: the answer is a job, the connection as before."""
    conn.row_factory, conn.text_factory = as_dictionary, bytes
    order(conn)
    job = store.enqueue("nap", {"word": "ü"}, "order-7", conn=conn).job
    assert store.enqueue("nap", {"word": "ü"}, "order-7", conn=conn).job == job
    assert conn.execute("SELECT kind FROM jobs").fetchall() == [{"kind": b"nap"}]
    conn.commit()
    assert store.list() == [job]


def test_a_savepoint_of_the_callers_undoes_its_part(store: Store, conn: sqlite3.Connection) -> None:
    """Whatever its name."""
    order(conn)
    kept = store.enqueue("kept", {}, conn=conn).job
    conn.execute("SAVEPOINT here")
    store.enqueue("undone", {}, conn=conn)
    conn.execute("ROLLBACK TO here")
    conn.commit()
    assert store.list() == [kept]


def without_transaction(_: Path) -> sqlite3.Connection:
    """Return a connection in memory of which nobody has asked anything."""
    return sqlite3.connect(":memory:")


def to_another_file(path: Path) -> sqlite3.Connection:
    """Return a connection to a file beside the store's."""
    return sqlite3.connect(path.with_name("other.db"))


def to_a_file_that_is_gone(path: Path) -> sqlite3.Connection:
    """Return a connection to a file that was deleted."""
    connection = sqlite3.connect(path.with_name("gone.db"))
    connection.execute("CREATE TABLE t (n)")
    path.with_name("gone.db").unlink()
    return connection


def closed(path: Path) -> sqlite3.Connection:
    """Return a connection that was closed."""
    connection = sqlite3.connect(path)
    connection.close()
    return connection


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no transaction": (sqlite3.connect, "has no transaction open.*BEGIN IMMEDIATE"),
    "in memory": (without_transaction, "a database in memory: connect to the store's own file"),
    "another file": (to_another_file, r"other\.db: connect to the store's own file.*jobs\.db"),
    "a file that is gone": (to_a_file_that_is_gone, r"gone\.db: connect to"),
    "closed": (closed, "cannot be used here: .*closed"),
    "a path": (str, "conn is a str: use a sqlite3.Connection"),
    "a cursor": (lambda path: sqlite3.connect(path).cursor(), "conn is a Cursor"),
}


@pytest.mark.parametrize(("make", "complaint"), WRONG.values(), ids=WRONG)
def test_a_connection_that_cannot_carry_the_job_is_refused(
    store: Store, path: Path, make: Callable[[Path], Any], complaint: str
) -> None:
    """The message says what it is, and what is wanted."""
    given = make(path)
    with pytest.raises(InvalidInput, match=complaint):
        store.enqueue("nap", {}, conn=given)
    connection = given.connection if isinstance(given, sqlite3.Cursor) else given
    if isinstance(connection, sqlite3.Connection):
        connection.close()
    assert store.list() == []


def test_a_connection_of_another_thread_is_refused(
    store: Store, conn: sqlite3.Connection, path: Path
) -> None:
    """As sqlite3 does itself; the owner goes on."""
    told: list[Exception] = []

    def enqueue() -> None:
        try:
            store.enqueue("nap", {}, conn=conn)
        except InvalidInput as error:
            told.append(error)

    order(conn)
    thread = Thread(target=enqueue)
    thread.start()
    thread.join()
    assert "cannot be used here" in str(told[0])
    conn.commit()
    assert (store.list(), orders(path)) == ([], [7])


def test_a_link_to_the_file_is_the_file(store: Store, path: Path) -> None:
    """What counts is the file, not its name."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    with closing(sqlite3.connect(link)) as own:
        own.execute("BEGIN IMMEDIATE")
        job = store.enqueue("nap", {}, conn=own).job
        own.commit()
    assert store.list() == [job]


def test_a_transaction_that_read_before_another_wrote_is_told_how_to_begin(
    store: Store, conn: sqlite3.Connection
) -> None:
    """cpython#124510: SQLite cannot let it write any more, however long it waits."""
    conn.execute("BEGIN")
    assert conn.execute("SELECT count(*) FROM jobs").fetchall() == [(0,)]
    store.enqueue("nap", {})
    with pytest.raises(StoreBusy, match="begin with BEGIN IMMEDIATE"):
        store.enqueue("nap", {}, conn=conn)
    conn.rollback()
    assert len(store.list()) == 1


def test_workers_wait_for_the_callers_transaction(
    store: Store, conn: sqlite3.Connection, path: Path, opened: Callable[..., Store]
) -> None:
    """They are told if it takes too long, and have the job once it is committed."""
    hasty = opened(path, busy_seconds=0.1)
    order(conn)
    job = store.enqueue("nap", {}, conn=conn).job
    with pytest.raises(StoreBusy, match="another program writes to it"):
        hasty.enqueue("nap", {})
    mark = hasty.change_mark()
    conn.commit()
    hasty.wait_for_change(mark, 10)
    taken: Job | None = hasty.claim("w1")
    assert taken is not None
    assert taken.id == job.id


def test_a_database_that_is_full_is_what_the_caller_is_told(
    store: Store, conn: sqlite3.Connection
) -> None:
    """Whether SQLite undid the whole transaction or not; with some space freed it goes on."""
    ((pages,),) = conn.execute("PRAGMA page_count").fetchall()
    conn.execute(f"PRAGMA max_page_count = {pages + 4}")
    order(conn)
    with pytest.raises(StoreError, match="full; nothing was changed: free some space"):
        store.enqueue("nap", {"ballast": "x" * 100_000}, conn=conn)
    conn.rollback()
    conn.execute(f"PRAGMA max_page_count = {pages + 400}")
    order(conn)
    job = store.enqueue("nap", {"ballast": "x" * 100_000}, conn=conn).job
    conn.commit()
    assert store.list() == [job]


DIE = """
import os, sqlite3, sys
from jobq import open_store
store = open_store(sys.argv[1])
own = sqlite3.connect(sys.argv[1])
own.execute("INSERT INTO orders VALUES (7)")
store.enqueue("nap", {}, conn=own)
if sys.argv[2] == "after":
    own.commit()
os.kill(os.getpid(), 9)
"""


@pytest.mark.usefixtures("conn")
@pytest.mark.parametrize(("moment", "number"), [("before", 0), ("after", 1)])
def test_a_process_killed_leaves_both_or_none(
    start: Callable[..., "Program"], store: Store, path: Path, moment: str, number: int
) -> None:
    """SIGKILL before the commit, and after it."""
    assert start(DIE, str(path), moment).process.wait() != 0
    assert (len(store.list()), len(orders(path))) == (number, number)
