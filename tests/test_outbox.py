"""The outbox pattern: a business row and the job that follows from it, both or neither.

A shop that records an order and then sends a mail can die in between, or send mail for an order
that is rolled back. Here the order and the job `send_emails` are written in one transaction, and
the mail is the worker's business.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from jobq import InvalidInput, Job, Status, Store, StoreError
from jobq.lab import Lab

CREATE = "CREATE TABLE orders (id INTEGER PRIMARY KEY, address TEXT NOT NULL UNIQUE)"
INSERT = "INSERT INTO orders (address) VALUES (?)"
ADDRESS = "ann@example.org"

Place = Callable[[Store, Path, dict[str, Any]], Job]


def letter(address: str = ADDRESS, smtp_port: int = 2525) -> dict[str, Any]:
    """Return the payload of the mail that thanks for an order."""
    return {"to": [address], "subject": "Thank you", "smtp_port": smtp_port}


def place_in_ours(store: Store, _file: Path, mail: dict[str, Any]) -> Job:
    """Record an order, and its mail, in a transaction that the store begins."""
    with store.transaction() as tx:
        tx.execute(INSERT, mail["to"])
        return store.enqueue("send_emails", mail, mail["to"][0], conn=tx).job


def place_in_theirs(store: Store, file: Path, mail: dict[str, Any]) -> Job:
    """Do the same in the transaction of a connection that the shop has opened itself."""
    with closing(sqlite3.connect(file)) as connection, connection:  # which commits, or rolls back
        connection.execute(INSERT, mail["to"])
        return store.enqueue("send_emails", mail, mail["to"][0], conn=connection).job


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of the database; the pattern needs one that both know."""
    return tmp_path / "shop.db"


@pytest.fixture
def shop(file: Path, opened: Callable[..., Store]) -> Store:
    """Return the store in the shop's database, which has a table of orders."""
    store = opened(file)
    with store.transaction() as tx:
        tx.execute(CREATE)
    return store


@pytest.fixture(params=[place_in_ours, place_in_theirs])
def place(request: pytest.FixtureRequest) -> Place:
    """Return each way to place an order in turn."""
    found: Place = request.param
    return found


def orders(file: Path) -> list[str]:
    """Return the addresses of the orders, as any program on the database sees them."""
    with closing(sqlite3.connect(file)) as connection:
        return [address for (address,) in connection.execute("SELECT address FROM orders")]


def test_an_order_and_its_mail_are_there_together(shop: Store, file: Path, place: Place) -> None:
    """After the commit there are both, and a worker may take the job."""
    job = place(shop, file, letter())
    assert orders(file) == [ADDRESS]
    claimed = shop.claim("worker-1")
    assert claimed is not None
    assert (claimed.id, claimed.payload) == (job.id, letter())
    assert [event.name for event in shop.events(job.id)] == ["enqueued", "claimed"]


def test_an_order_that_fails_sends_no_mail(shop: Store, file: Path, place: Place) -> None:
    """What the database refuses takes the job along."""
    place(shop, file, letter())
    with pytest.raises((StoreError, sqlite3.IntegrityError), match="UNIQUE"):
        place(shop, file, letter())
    assert orders(file) == [ADDRESS]
    assert len(shop.list()) == 1


def test_a_mail_that_is_refused_undoes_the_order(shop: Store, file: Path, place: Place) -> None:
    """No order is recorded whose job could not be."""
    with pytest.raises(InvalidInput):
        place(shop, file, letter() | {"subject": float("nan")})
    assert (orders(file), shop.list()) == ([], [])


def test_nobody_takes_the_job_of_an_order_that_is_open(
    shop: Store, file: Path, opened: Callable[..., Store]
) -> None:
    """Until the commit there is no job, and after a rollback there never was one."""
    others = opened(file)
    with suppress(ZeroDivisionError), shop.transaction() as tx:
        tx.execute(INSERT, [ADDRESS])
        shop.enqueue("send_emails", letter(), conn=tx)
        assert others.claim("worker-1") is None
        raise ZeroDivisionError
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(INSERT, [ADDRESS])
        shop.enqueue("send_emails", letter(), conn=connection)
        assert others.claim("worker-1") is None
        connection.rollback()
    assert (orders(file), others.list(), others.last_event()) == ([], [], 0)


def test_a_caller_may_catch_the_refusal_and_go_on(shop: Store, file: Path) -> None:
    """A job that was refused leaves the rest of the transaction as it was."""
    with shop.transaction() as tx:
        tx.execute(INSERT, [ADDRESS])
        with pytest.raises(InvalidInput):
            shop.enqueue("", {}, conn=tx)
    assert (orders(file), shop.list()) == ([ADDRESS], [])


def test_a_shop_may_read_its_rows_as_it_likes(shop: Store, file: Path) -> None:
    """What the connection makes of rows and text is the shop's business, and stays so."""

    def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = as_dict
        connection.execute(INSERT, [ADDRESS])
        job = shop.enqueue("send_emails", letter(), conn=connection).job
        assert connection.execute("SELECT address FROM orders").fetchone() == {"address": ADDRESS}
        connection.commit()
    assert shop.get(job.id) == job


def test_a_transaction_that_is_over_takes_no_job(shop: Store) -> None:
    """It would be recorded whatever becomes of the caller's rows: the error says so."""
    with shop.transaction() as tx:
        pass
    with pytest.raises(InvalidInput, match="transaction"):
        shop.enqueue("noop", {}, conn=tx)
    assert shop.list() == []


def test_a_transaction_of_another_store_takes_no_job(
    shop: Store, tmp_path: Path, opened: Callable[..., Store]
) -> None:
    """The job would be recorded in the other database, where nobody looks for it."""
    other = opened(tmp_path / "other.db")
    with shop.transaction() as tx, pytest.raises(InvalidInput, match="store"):
        other.enqueue("noop", {}, conn=tx)
    assert (shop.list(), other.list()) == ([], [])


# Places orders without end: in the store's transaction, or in one of its own connection.
SHOP = """
import itertools, sqlite3, sys
from contextlib import closing
from jobq import open_store

file, way = sys.argv[1:]
store = open_store(file)

def place(connection, address):
    connection.execute("INSERT INTO orders (address) VALUES (?)", [address])
    mail = {"to": [address], "subject": "Thank you", "smtp_port": 2525}
    store.enqueue("send_emails", mail, address, conn=connection)

with closing(sqlite3.connect(file)) as own:
    for n in itertools.count():
        address = f"{input()}-{n}@example.org"
        if way == "ours":
            with store.transaction() as tx:
                place(tx, address)
                print("placed", flush=True)
                input()
        else:
            place(own, address)
            print("placed", flush=True)
            input()
            own.commit()
        print("committed", flush=True)
"""


@pytest.mark.parametrize("way", ["ours", "theirs"])
def test_a_shop_killed_before_the_commit_has_done_nothing(
    shop: Store, file: Path, start: Callable[..., Any], way: str
) -> None:
    """Neither the order nor the job is there, and the next one is placed without a wait."""
    program = start(SHOP, str(file), way)
    program.tell("ann")
    assert program.hear() == "placed"
    program.kill()
    assert (orders(file), shop.list()) == ([], [])
    place_in_ours(shop, file, letter())
    assert orders(file) == [ADDRESS]


@pytest.mark.parametrize("way", ["ours", "theirs"])
def test_a_shop_killed_at_any_moment_owes_no_mail(
    shop: Store, file: Path, start: Callable[..., Any], way: str
) -> None:
    """Each order has its job and each job its order, wherever in its work the shop was killed."""
    for name in ("ann", "bob", "cem"):
        program = start(SHOP, str(file), way)
        for _ in range(5):
            program.tell(name)
            program.hear()
            program.tell()
            program.hear()
        program.tell(name)
        program.tell()  # nobody waits for what it says to that
        program.kill()
    placed = orders(file)
    assert {job.idempotency_key for job in shop.list()} == set(placed)
    assert len(placed) >= 15


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Return a lab, whose store is in a database that the shop shares."""
    with Lab() as lab:
        yield lab


def test_the_mail_of_an_order_arrives_though_the_shop_is_gone(
    lab: Lab, start: Callable[..., Any]
) -> None:
    """Killed right after its commit, the shop has promised a mail, and a worker sends it."""
    server = lab.start_mail_server()
    with lab.store.transaction() as tx:
        tx.execute(CREATE)
    shop = start(SHOP.replace("2525", str(server.port)), str(lab.folder / "jobs.db"), "ours")
    shop.tell("ann")
    shop.hear()
    shop.tell()
    assert shop.hear() == "committed"
    shop.kill()
    lab.start_worker()
    [job] = lab.store.list()
    assert lab.wait_for(lab.name_job(job.id), Status.DONE).result["sent"] == 1
    assert server.accepted() == ["ann-0@example.org"]
