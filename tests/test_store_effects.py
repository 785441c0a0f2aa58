"""The contract of every store: a handler's own writes, marks, progress, and the caller's own rows.

Each test runs on every engine.
"""

import math
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from jobq import (
    EventName,
    IdempotencyConflict,
    InvalidInput,
    Job,
    LeaseLost,
    NotStrictJson,
    Store,
    StoreError,
    WriteFailed,
)
from jobq.job import Progress
from jobq.store.engine import Transaction

if TYPE_CHECKING:
    from tests.conftest import Clock, Program

LEASE = 10.0  # seconds on the clock of the test


@pytest.fixture
def orders(store: Store) -> Callable[[], list[int]]:
    """Make a table of a user's own in the database; return what reads the numbers in it."""
    with store.transaction() as tx:
        tx.execute("CREATE TABLE orders (n INTEGER NOT NULL)")

    def read() -> list[int]:
        with store.transaction() as tx:
            return [row["n"] for row in tx.execute("SELECT n FROM orders ORDER BY n")]

    return read


def order(tx: Transaction, n: int) -> None:
    """Write a row of the user's own."""
    tx.execute("INSERT INTO orders (n) VALUES (:n)", {"n": n})


def order_a_job_and_fail(store: Store, tx: Transaction) -> None:
    """Write a row of the user's own and a job, and raise."""
    order(tx, 7)
    store.enqueue("nap", {}, conn=tx)
    raise KeyError("mine")


def claimed(store: Store, **options: Any) -> Job:
    """Enqueue a job and claim it."""
    store.enqueue("nap", {}, **options)
    return take(store)


def take(store: Store, worker: str = "w1") -> Job:
    """Claim a job that has to be there."""
    job = store.claim(worker, LEASE)
    assert job is not None
    return job


def now(store: Store, job: Job) -> Job:
    """Return the job as it stands."""
    found = store.get(job.id)
    assert found is not None
    return found


# -------------------------------------------------------------------- writes with the finish


def test_a_handlers_write_and_its_result_are_committed_together(
    store: Store, orders: Callable[[], list[int]]
) -> None:
    """Whoever sees the one sees the other."""
    job = store.finish(claimed(store), "ok", also=lambda tx: order(tx, 7))
    assert (job, job.status) == (now(store, job), "done")
    assert orders() == [7]


BREAKS: dict[str, Callable[[Transaction], object]] = {
    "raises": lambda _: 1 // 0,
    "bad SQL": lambda tx: tx.execute("INSERT INTO nowhere VALUES (1)"),
    "breaks a constraint": lambda tx: tx.execute("INSERT INTO orders VALUES (NULL)"),
    "calls the store": lambda _: None,  # see the test
    "commits": lambda tx: tx.execute("COMMIT"),
    "commits behind a comment": lambda tx: tx.execute(" -- now\n/* do */ ;commit"),
    "rolls back": lambda tx: tx.execute("Rollback"),
    "begins": lambda tx: tx.execute("BEGIN"),
    "ends": lambda tx: tx.execute("END TRANSACTION"),
    "two statements": lambda tx: tx.execute("INSERT INTO orders VALUES (8); COMMIT"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_write_that_breaks_undoes_the_finish_and_the_attempt_can_still_be_failed(
    store: Store, orders: Callable[[], list[int]], name: str
) -> None:
    """Neither the result nor what was written before is there; WriteFailed says what happened."""
    job = claimed(store)
    log = store.events()

    def also(tx: Transaction) -> None:
        order(tx, 7)
        if name == "calls the store":
            store.enqueue("nap", {})
        BREAKS[name](tx)

    with pytest.raises(WriteFailed, match=r"^\w+: "):
        store.finish(job, "ok", also=also)
    assert now(store, job) == job
    assert store.events() == log
    assert orders() == []
    assert store.fail(job, "no").error == "no"


def test_an_interrupted_write_undoes_the_finish(
    store: Store, orders: Callable[[], list[int]]
) -> None:
    """Ctrl-C in the middle goes through as it is, and the store can be used on."""
    job = claimed(store)

    def interrupted(tx: Transaction) -> None:
        order(tx, 7)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.finish(job, "ok", also=interrupted)
    assert (now(store, job), orders()) == (job, [])
    assert store.finish(job, "ok").status == "done"


def test_g6_a_worker_that_lost_its_job_does_not_even_begin_its_write(
    store: Store, clock: "Clock"
) -> None:
    """The write may have effects of its own outside of the database."""
    late = claimed(store)
    clock.move(LEASE + 1)
    current = take(store, "w2")
    called: list[Transaction] = []
    with pytest.raises(LeaseLost):
        store.finish(late, "late", also=called.append)
    assert called == []
    assert now(store, current) == current


def test_a_result_that_json_cannot_carry_begins_no_write(store: Store) -> None:
    """It is refused first."""
    called: list[Transaction] = []
    with pytest.raises(NotStrictJson):
        store.finish(claimed(store), math.nan, also=called.append)
    assert called == []


def test_a_job_enqueued_by_a_write_comes_with_the_finish(store: Store) -> None:
    """The next step of a chain is there exactly if this one is done."""
    job = claimed(store)
    store.finish(job, 1, also=lambda tx: store.enqueue("next", {}, conn=tx))
    assert take(store).kind == "next"


DIE_IN_THE_WRITE = """
import os, sys
from jobq import open_store
store = open_store(sys.argv[1])
[job] = store.list(status="running")
def also(tx):
    tx.execute("INSERT INTO orders VALUES (7)")
    if sys.argv[2] == "in the write":
        os.kill(os.getpid(), 9)
store.finish(job, 1, also=also)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("moment", "found"), [("in the write", []), ("after the finish", [7])])
def test_killed_in_the_middle_neither_the_write_nor_the_finish_has_happened(
    start: Callable[..., "Program"],
    store: Store,
    url: str,
    orders: Callable[[], list[int]],
    moment: str,
    found: list[int],
) -> None:
    """SIGKILL leaves both or none, and the store free for others."""
    job = claimed(store)
    assert start(DIE_IN_THE_WRITE, url, moment).process.wait() != 0
    assert orders() == found
    assert now(store, job).status == ("done" if found else "running")
    if not found:
        assert store.finish(job, 1).status == "done"


# ----------------------------------------------------------------------- transaction, enqueue


def test_a_row_of_the_callers_and_a_job_are_committed_together(
    store: Store, orders: Callable[[], list[int]]
) -> None:
    """Nobody else sees either before the end of the block."""
    with store.transaction() as tx:
        order(tx, 7)
        job, created = store.enqueue("nap", {"n": 7}, "order-7", conn=tx)
        again = store.enqueue("nap", {"n": 7}, "order-7", conn=tx)
        seen: list[Job] = []
        other = Thread(target=lambda: seen.extend(store.list()))
        other.start()
        other.join()
    assert seen == []
    assert (created, again) == (True, (job, False))
    assert store.list() == [job]
    assert [event.name for event in store.events(job.id)] == [EventName.ENQUEUED]
    assert orders() == [7]


def test_a_transaction_that_raises_leaves_neither(
    store: Store, orders: Callable[[], list[int]]
) -> None:
    """The caller's error comes through as it is."""
    with pytest.raises(KeyError, match="mine"), store.transaction() as tx:
        order_a_job_and_fail(store, tx)
    assert (store.list(), orders()) == ([], [])
    assert store.enqueue("nap", {}).created


def test_a_refused_enqueue_does_not_spoil_the_transaction(
    store: Store, orders: Callable[[], list[int]]
) -> None:
    """Whoever catches the error keeps the rows that were written."""
    store.enqueue("nap", {}, "order-7")
    with store.transaction() as tx:
        order(tx, 7)
        with pytest.raises(IdempotencyConflict):
            store.enqueue("nap", {"n": 1}, "order-7", conn=tx)
        with pytest.raises(InvalidInput):
            store.enqueue("", {}, conn=tx)
        order(tx, 8)
    assert orders() == [7, 8]
    assert len(store.list()) == 1


def test_a_part_of_a_transaction_can_be_undone(
    store: Store, orders: Callable[[], list[int]]
) -> None:
    """By a savepoint, and those may be nested."""
    with store.transaction() as tx:
        with tx.savepoint():
            order(tx, 1)
            with pytest.raises(KeyError, match="mine"), tx.savepoint():
                order_a_job_and_fail(store, tx)
        order(tx, 3)
    assert (store.list(), orders()) == ([], [1, 3])


NESTED: dict[str, Callable[[Store], object]] = {
    "another transaction": lambda store: store.transaction().__enter__(),
    "enqueue without conn": lambda store: store.enqueue("nap", {}),
    "enqueue_many": lambda store: store.enqueue_many([{"kind": "nap", "payload": {}}]),
    "claim": lambda store: store.claim("w1", LEASE),
    "cancel": lambda store: store.cancel(store.list()[0].id),
    "retry_all": lambda store: store.retry_all(),
    "prune": lambda store: store.prune(0),
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_a_transaction_within_another_is_refused_and_loses_nothing(
    store: Store, orders: Callable[[], list[int]], nested: Callable[[Store], object]
) -> None:
    """It would not be undone with the outer one; the message says what to do instead."""
    store.enqueue("nap", {})
    with store.transaction() as tx:
        order(tx, 7)
        with pytest.raises(InvalidInput, match=r"transaction open.*pass it on"):
            nested(store)
        order(tx, 8)
    assert orders() == [7, 8]
    assert len(store.list()) == 1


@pytest.mark.parametrize(
    "sql",
    ["COMMIT", "end", "ROLLBACK", "BEGIN IMMEDIATE", "SAVEPOINT a", "RELEASE a", "--\n COMMIT"],
)
def test_a_transaction_is_not_ended_from_within(
    store: Store, orders: Callable[[], list[int]], sql: str
) -> None:
    """The statement is refused, and the transaction goes on to its end."""
    with store.transaction() as tx:
        order(tx, 7)
        with pytest.raises(InvalidInput, match="is the store's to say"):
            tx.execute(sql)
        order(tx, 8)
    assert orders() == [7, 8]


def test_a_table_may_be_named_like_a_word_of_the_transaction(store: Store) -> None:
    """Only a statement that begins with such a word is one."""
    with store.transaction() as tx:
        tx.execute('CREATE TABLE "commit" (n INTEGER)')
        tx.execute('INSERT INTO "commit" VALUES (?)', [1])
        assert [row["n"] for row in tx.execute('SELECT n FROM "commit"')] == [1]


def test_a_transaction_that_has_ended_is_no_place_for_a_job(store: Store) -> None:
    """Whether it was committed or undone; there is nothing that would commit the job."""
    with store.transaction() as ended:
        pass
    with pytest.raises(KeyError), store.transaction() as undone:
        raise KeyError
    for tx in (ended, undone):
        with pytest.raises(InvalidInput, match="this transaction has ended"):
            store.enqueue("nap", {}, conn=tx)
        with pytest.raises(InvalidInput, match="this transaction has ended"):
            tx.execute("SELECT 1")
        with store.transaction(), pytest.raises(InvalidInput, match="has ended"):
            tx.execute("SELECT 1")  # not even while another one is open
    assert store.list() == []


def test_a_transaction_belongs_to_its_thread(store: Store, orders: Callable[[], list[int]]) -> None:
    """Another thread that uses it is told so, and does no harm."""
    told: list[Exception] = []

    def use(tx: Transaction) -> None:
        try:
            store.enqueue("nap", {}, conn=tx)
        except InvalidInput as error:
            told.append(error)

    with store.transaction() as tx:
        thread = Thread(target=use, args=(tx,))
        thread.start()
        thread.join()
        order(tx, 7)
    assert "another thread's" in str(told[0])
    assert (store.list(), orders()) == ([], [7])


def test_a_transaction_of_another_store_is_refused(
    store: Store, new_url: Callable[[], str], opened: Callable[..., Store]
) -> None:
    """The job would be in the wrong database."""
    other = opened(new_url())
    with other.transaction() as tx, pytest.raises(InvalidInput, match="store's own"):
        store.enqueue("nap", {}, conn=tx)
    assert (store.list(), other.list()) == ([], [])


def test_an_error_of_the_callers_sql_is_explained(store: Store) -> None:
    """And the transaction can go on if it is caught."""
    with store.transaction() as tx:
        with pytest.raises(StoreError, match="nowhere"):
            tx.execute("SELECT * FROM nowhere")
        store.enqueue("nap", {}, conn=tx)
    assert len(store.list()) == 1


# -------------------------------------------------------------------------- marks, progress


def test_a_mark_holds_for_every_later_attempt_and_for_no_other_job(
    store: Store, clock: "Clock"
) -> None:
    """After a crash, and after an operator's retry too: what was done stays done."""
    job = claimed(store, max_attempts=1)
    assert not store.is_done(job, "mail-1")
    store.mark_done(job, "mail-1")
    store.mark_done(job, "mail-1")
    clock.move(LEASE + 1)
    assert store.claim("w2", LEASE) is None
    store.retry(job.id)
    again = take(store, "w2")
    assert store.is_done(again, "mail-1")
    assert not store.is_done(again, "mail-2")
    assert not store.is_done(claimed(store), "mail-1")


def test_g6_a_worker_that_lost_its_job_marks_nothing(store: Store, clock: "Clock") -> None:
    """It is not told what is done either: it has to stop."""
    late = claimed(store)
    clock.move(LEASE + 1)
    current = take(store, "w2")
    for ask in (store.is_done, store.mark_done):
        with pytest.raises(LeaseLost, match="w2 runs the job now"):
            ask(late, "mail-1")
    assert not store.is_done(current, "mail-1")


@pytest.mark.parametrize("key", ["", "  ", "k" * 300, "a\x00b", "\udcff", None, 5])
def test_a_key_that_some_database_could_not_keep_is_refused(store: Store, key: Any) -> None:
    """By the question as by the mark."""
    job = claimed(store)
    for ask in (store.is_done, store.mark_done):
        with pytest.raises(InvalidInput, match="key"):
            ask(job, key)


def test_progress_is_kept_with_the_job_and_offered_to_the_next_attempt(
    store: Store, clock: "Clock"
) -> None:
    """A heartbeat without one keeps the last; the log has each."""
    job = claimed(store)
    told = Progress(2**70, 0.5, "halb fertig 🦀")
    assert store.heartbeat(job, LEASE, told).progress == told
    assert store.heartbeat(job, LEASE).progress == told
    clock.move(LEASE + 1)
    again = take(store, "w2")
    assert repr(again.progress) == repr(told)
    beats = [e.progress for e in store.events(job.id) if e.name is EventName.HEARTBEAT]
    assert beats == [told, None]
    assert store.finish(again, 1).progress == told


BAD_PROGRESS: dict[str, Any] = {
    "NaN": Progress(math.nan),
    "infinite": Progress(1, math.inf),
    "negative": Progress(-1),
    "no number": Progress("half"),  # type: ignore[arg-type]  # the very thing that must fail
    "NUL": Progress(1, None, "a\x00b"),
    "half a pair": Progress(1, None, "\udcff"),
    "no text": Progress(1, None, None),  # type: ignore[arg-type]  # the same
    "a megabyte": Progress(1, None, "x" * 1_000_000),
    "a dictionary": {"done": 1},
}


@pytest.mark.parametrize("progress", BAD_PROGRESS.values(), ids=BAD_PROGRESS)
def test_a_progress_that_json_cannot_carry_is_refused(store: Store, progress: Any) -> None:
    """And changes nothing: the lease is as it was."""
    job = claimed(store)
    with pytest.raises(InvalidInput, match="progress"):
        store.heartbeat(job, LEASE, progress)
    assert now(store, job) == job


def test_a_small_limit_of_payloads_still_lets_an_attempt_fail(
    url: str, opened: Callable[..., Store]
) -> None:
    """An error is no payload: what cannot be told would leave the job without an end."""
    small = opened(url, max_bytes=100)
    job = claimed(small)
    with pytest.raises(NotStrictJson):
        small.finish(job, "x" * 200)
    assert small.fail(job, "x" * 2_000, final=True).error == "x" * 2_000
