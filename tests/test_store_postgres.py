"""What is PostgreSQL's own: its schema, large values, conflicts, many claimers, the log, forks."""

import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from jobq import (
    Job,
    NotStrictJson,
    SchemaTooNew,
    Status,
    Store,
    StoreBusy,
    StoreError,
    open_store,
)
from jobq.lab.waiting import wait_until
from jobq.store import moves
from jobq.store.engine import Transaction, named_statements

if TYPE_CHECKING:
    from tests.conftest import Program

LEASE = 60.0
STATEMENTS = named_statements("postgres.sql")


@pytest.fixture
def engine() -> str:
    """Return the one engine of this file."""
    return "postgresql"


@pytest.fixture
def other(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Return a connection of another program's, to the same schema."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        yield connection


def with_options(url: str, **settings: str) -> str:
    """Return the URL with more settings of the server for its connections."""
    return url + "".join(f"%20-c{name}%3D{value}" for name, value in settings.items())


def take(store: Store, worker: str = "w1") -> Job:
    """Claim a job that has to be there."""
    job = store.claim(worker, LEASE)
    assert job is not None
    return job


# -------------------------------------------------------------------------------- the schema


OPEN_EACH = """
import sys
from jobq import open_store
for url in sys.argv[1:]:
    print("ready", flush=True)
    input()
    store = open_store(url)
    store.enqueue("nap", {})
    store.close()
"""


@pytest.mark.parametrize("crowd", [2, 8])
def test_any_number_may_be_the_first_at_once(
    start: Callable[..., "Program"],
    new_url: Callable[[], str],
    opened: Callable[..., Store],
    crowd: int,
) -> None:
    """Processes that open the same empty schema together all get on, twice in a row."""
    urls = [new_url() for _ in range(2)]
    programs = [start(OPEN_EACH, *urls) for _ in range(crowd)]
    for _ in urls:
        assert {program.hear() for program in programs} == {"ready"}
        for program in programs:
            program.tell()
    assert [program.rest() for program in programs] == [[]] * crowd
    for url in urls:
        assert len(opened(url).list()) == crowd
        with closing(psycopg.connect(url)) as connection:
            [(rows,)] = connection.execute("SELECT count(*) FROM jobq_schema").fetchall()
        assert rows == 1


def test_a_schema_of_a_later_jobq_is_refused(url: str, other: psycopg.Connection) -> None:
    """It may mean what this version cannot know; the message says how to go on."""
    open_store(url).close()
    [(version,)] = other.execute("UPDATE jobq_schema SET version = version + 1 RETURNING version")
    with pytest.raises(SchemaTooNew, match=f"has schema {version}.*update jobq"):
        open_store(url)


def tables(other: psycopg.Connection) -> set[str]:
    """Return the names of the tables in the current schema."""
    rows = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return {name for (name,) in rows}


@pytest.mark.parametrize("table", ["jobs", "events", "attempts", "marks"])
def test_a_table_of_another_program_is_refused_and_left_as_it_was(
    url: str, other: psycopg.Connection, table: str
) -> None:
    """A wrong URL must not cost anybody anything; the message says where a store may live."""
    other.execute(sql.SQL("CREATE TABLE {} (note text)").format(sql.Identifier(table)))
    with pytest.raises(StoreError, match=rf"not jobq.s .{table}.*another schema"):
        open_store(url)
    assert tables(other) == {table}


def test_a_role_that_may_not_create_tables_hears_what_to_grant(
    url: str, other: psycopg.Connection
) -> None:
    """Not a traceback of the server's; once somebody else has made the tables, rights suffice."""
    [(schema, role)] = other.execute("SELECT current_schema(), 'weak_' || current_schema()")
    name, of = sql.Identifier(role), sql.Identifier(schema)
    other.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'weak'").format(name))
    other.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(of, name))
    parts = urlsplit(url)
    weak = urlunsplit(parts._replace(netloc=f"{role}:weak@{parts.hostname}:{parts.port}"))
    with pytest.raises(StoreError, match=r"(?i)permission denied.*grant") as complaint:
        open_store(weak)
    assert "weak@" not in str(complaint.value)
    open_store(url).close()
    for what in ("TABLES", "SEQUENCES"):
        grant = sql.SQL("GRANT ALL ON ALL {} IN SCHEMA {} TO {}")
        other.execute(grant.format(sql.SQL(what), of, name))
    with closing(open_store(weak)) as store:
        store.enqueue("nap", {})
        assert store.finish(take(store), 1).status == "done"


# ------------------------------------------------------------------------------ large payloads


def test_a_megabyte_comes_back_as_it_went_in(url: str, opened: Callable[..., Store]) -> None:
    """As payload and as result, to the last byte, to this store and to another one."""
    text = 'ä🦀 \\" ' * 83_000  # 12 bytes of JSON each
    large = {"text": text}
    assert 990_000 < len(json.dumps(large, ensure_ascii=False).encode()) <= 1_000_000
    store = opened(url)
    assert store.enqueue("nap", large).job.payload == large
    job = take(store)
    assert job.payload == large
    assert store.finish(job, large).result == large
    found = opened(url).get(job.id)
    assert found is not None
    assert (found.payload, found.result) == (large, large)


def test_five_megabytes_need_a_larger_limit(url: str, opened: Callable[..., Store]) -> None:
    """They are refused at the door, and with the limit raised they come back whole."""
    large = {"text": "x" * 5_000_000}
    with pytest.raises(NotStrictJson, match="payload"):
        opened(url).enqueue("nap", large)
    store = opened(url, max_bytes=6_000_000)
    store.enqueue("nap", large)
    assert store.finish(take(store), large).result == large


# ----------------------------------------------------------------------------------- conflicts


def deadlocks(other: psycopg.Connection) -> int:
    """Return how many the server has seen in this database."""
    [(number,)] = other.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    return int(number)


@pytest.mark.parametrize("level", ["serializable", r"repeatable\ read"])
def test_a_stricter_isolation_of_the_server_changes_nothing(
    url: str,
    opened: Callable[..., Store],
    assert_consistent: Callable[[Store], None],
    level: str,
) -> None:
    """Where transactions can fail for one another's sake, the store tries again: no error."""
    store = opened(with_options(url, default_transaction_isolation=level.replace("\\ ", "%5C%20")))
    store.enqueue_many({"kind": "nap", "payload": {}} for _ in range(60))

    def work(number: int) -> int:
        ended = 0
        while job := store.claim(f"w{number}", LEASE):
            store.heartbeat(job, LEASE)
            store.finish(job, number)
            ended += 1
        return ended

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(work, range(6))) >= 1
    while work(0):  # a claim beside others may come away empty
        pass
    assert store.stats().counts[Status.DONE] == 60
    assert_consistent(store)


FAILS_AT_FIRST = """
CREATE SEQUENCE faults;
CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('faults') <= {times} THEN
        RAISE EXCEPTION 'as the server does' USING ERRCODE = {code};
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fault BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fault();
"""


def fail_at_first(other: psycopg.Connection, times: int, code: str) -> None:
    """Let that many transactions which write to the log fail with an error code."""
    other.execute(sql.SQL(FAILS_AT_FIRST).format(times=sql.Literal(times), code=sql.Literal(code)))


WRITES: dict[str, Callable[[Store], object]] = {
    "enqueue": lambda store: store.enqueue("nap", {}, "key"),
    "claim": lambda store: store.claim("w2", LEASE),
    "heartbeat": lambda store: store.heartbeat(running(store)),
    "finish": lambda store: store.finish(running(store), 1),
    "cancel": lambda store: store.cancel(running(store).id),
}


def running(store: Store) -> Job:
    """Return the job that is running."""
    [job] = store.list(status=Status.RUNNING)
    return job


@pytest.mark.parametrize("code", ["40001", "40P01"])
@pytest.mark.parametrize("name", WRITES)
def test_a_transaction_that_failed_for_anothers_sake_is_repeated(
    url: str,
    opened: Callable[..., Store],
    other: psycopg.Connection,
    assert_consistent: Callable[[Store], None],
    name: str,
    code: str,
) -> None:
    """A serialisation failure, and a deadlock: the caller sees neither, and it is done once."""
    store = opened(url)
    for _ in range(2):
        store.enqueue("nap", {})
    take(store)
    before = store.last_event()
    fail_at_first(other, 2, code)
    WRITES[name](store)
    assert len(store.events(after=before)) == 1
    assert_consistent(store)


def test_a_conflict_without_end_is_reported(
    url: str, opened: Callable[..., Store], other: psycopg.Connection
) -> None:
    """In about the time that a store waits for others, and nothing has changed."""
    store = opened(url, busy_seconds=0.5)
    fail_at_first(other, 10**9, "40001")
    with pytest.raises(StoreBusy):
        store.enqueue("nap", {})
    assert store.list() == []


def test_a_real_deadlock_is_cured_by_another_try(
    url: str, opened: Callable[..., Store], other: psycopg.Connection
) -> None:
    """Another program locks two jobs in the other order; the server undoes the store's part."""
    store = opened(with_options(url, deadlock_timeout="20ms"))
    other.execute("SET deadlock_timeout = '30s'")  # whoever looks first is the one undone
    before = deadlocks(other)
    for first, second in ((0, 1), (1, 0)):  # the store's order is that of the ids
        store.enqueue_many({"kind": "nap", "payload": {}} for _ in range(2))
        jobs = sorted(store.claim_many("w1", 2, LEASE), key=lambda job: job.id)
        with ThreadPoolExecutor(1) as thread, other.transaction():
            lock = "SELECT 1 FROM jobs WHERE id = %s FOR UPDATE"
            other.execute(lock, (jobs[first].id,))
            ending = thread.submit(store.finish_many, [(job, 1) for job in jobs])
            wait_until(lambda: others_wait(other), "the store to wait for the lock")
            other.execute(lock, (jobs[second].id,))
            other.execute("SELECT 1")
        assert [job.status for job in ending.result() if isinstance(job, Job)] == ["done"] * 2
    store.close()  # a connection tells what it has counted when it ends
    wait_until(lambda: deadlocks(other) > before, "the server to have counted a deadlock")


def test_an_attempt_begins_after_the_one_before_it_has_ended(
    live: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the claim began before: it waited for its turn, and saw the job given back."""
    live.enqueue("nap", {})
    first = take(live)
    make_ready = moves.make_ready

    def give_back_meanwhile(tx: Transaction, now: float) -> bool:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(live.release, first).result()
        return make_ready(tx, now)

    monkeypatch.setattr(moves, "make_ready", give_back_meanwhile)
    second = take(live)
    assert second.id == first.id
    before, after = live.attempts(first.id)
    assert before.ended_at is not None
    assert before.ended_at <= after.started_at == second.started_at
    times = [event.at for event in live.events(first.id)]
    assert times == sorted(times)


def others_wait(other: psycopg.Connection) -> bool:
    """Whether some backend waits for this one."""
    rows = other.execute(
        "SELECT 1 FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )
    return bool(rows.fetchall())


def test_a_lock_that_is_held_for_too_long_is_reported(
    url: str, opened: Callable[..., Store], other: psycopg.Connection
) -> None:
    """The store waits for busy_seconds, says so, and has changed nothing; a claim passes by."""
    store = opened(url, busy_seconds=0.3)
    job = store.enqueue("nap", {}).job
    behind = store.enqueue("nap", {}).job
    with other.transaction():
        other.execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", (job.id,))
        with pytest.raises(StoreBusy, match="another transaction is in the way"):
            store.cancel(job.id)
        assert take(store).id == behind.id
    assert store.cancel(job.id).status == "cancelled"


# ----------------------------------------------------------------------------- many claimers


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_g1_a_claim_never_takes_more_than_was_asked_for(
    live: Store, assert_consistent: Callable[[Store], None], limit: int
) -> None:
    """Eight claimers at once: a subquery that is run twice would lock, and take, too many."""
    live.enqueue_many({"kind": "nap", "payload": {}} for _ in range(240))
    together = threading.Barrier(8)

    def claim_all(number: int) -> list[list[Job]]:
        together.wait()
        batches = iter(lambda: live.claim_many(f"w{number}", limit, LEASE), [])
        return list(batches)

    with ThreadPoolExecutor(8) as threads:
        batches = list(itertools.chain.from_iterable(threads.map(claim_all, range(8))))
    assert max(map(len, batches)) == limit
    taken = [job.id for batch in batches for job in batch]
    assert len(taken) == len(set(taken)) == 240
    assert live.stats().counts[Status.RUNNING] == 240
    for batch in batches:
        assert [job.created_at for job in batch] == sorted(job.created_at for job in batch)
    assert_consistent(live)


# ------------------------------------------------------------------------------------ the log


def test_the_log_is_read_in_the_order_of_its_numbers_and_nothing_is_passed_over(
    live: Store, url: str, opened: Callable[..., Store]
) -> None:
    """A number is drawn before the commit: one that comes late must not lie behind the reader."""
    writer = opened(url)
    started, go_on = threading.Event(), threading.Event()

    def hold_open() -> None:
        with writer.transaction() as tx:
            writer.enqueue("slow", {}, conn=tx)
            started.set()
            go_on.wait()

    def overtake() -> None:
        live.enqueue("quick", {})

    follower = Follower(opened(url))
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(hold_open)
        started.wait()
        quick = threads.submit(overtake)
        threads.submit(quick.result, 1.0)  # it may have to wait for the other
        follower.look()
        go_on.set()
        slow.result()
        quick.result()
    wait_until(lambda: len(follower.look()) == 2, "both events to be read")
    assert follower.seqs == [event.seq for event in live.events()]


class Follower:
    """Reads the log of a store on from the last event that it has seen."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seqs: list[int] = []

    def look(self) -> list[int]:
        """Read on; return the numbers of all events seen so far."""
        after = self.seqs[-1] if self.seqs else 0
        self.seqs += [event.seq for event in self._store.events(after=after, limit=7)]
        return self.seqs


def test_a_reader_beside_many_writers_sees_every_event_once(
    live: Store, url: str, opened: Callable[..., Store]
) -> None:
    """While they write, and to the last one."""

    def write(number: int) -> None:
        for n in range(40):
            if n % 4:
                live.enqueue("nap", {"n": n})
            else:
                live.enqueue_many({"kind": "nap", "payload": {}} for _ in range(5))
            if job := live.claim(f"w{number}", LEASE):
                live.finish(job, n)

    follower = Follower(opened(url))
    with ThreadPoolExecutor(6) as threads:
        writing = [threads.submit(write, number) for number in range(6)]
        while not all(each.done() for each in writing):
            follower.look()
        for each in writing:
            each.result()
    last = live.last_event()
    wait_until(lambda: follower.look()[-1] == last, "the last event to be read")
    assert follower.seqs == [event.seq for event in live.events()]


# ------------------------------------------------------------------------------------- a fork


FORK = """
import os, sys, threading
from jobq import open_store
store = open_store(sys.argv[1])
store.enqueue("before", {})
mark = store.change_mark()
store.wait(mark, 0.0)  # whatever threads it has, it has now
child = os.fork()
name = "parent" if child else "child"
for _ in range(20):
    store.enqueue(name, {})
    job = store.claim(name, 60.0)
    store.finish(job, name)
print(name, flush=True)
if child:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    store.enqueue("after", {})
store.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_store_goes_on_in_both_processes_of_a_fork(
    live: Store,
    url: str,
    start: Callable[..., "Program"],
    assert_consistent: Callable[[Store], None],
) -> None:
    """They do not talk over one another on one connection, and the child's end hurts nobody."""
    assert sorted(start(FORK, url).rest()) == ["0", "child", "parent"]
    kinds = [job.kind for job in live.list()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "before": 1,
        "parent": 20,
        "child": 20,
        "after": 1,
    }
    assert live.stats().counts[Status.DONE] == 40
    assert_consistent(live)
