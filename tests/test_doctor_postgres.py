"""jobq.doctor on a PostgreSQL store: each fault is made for real, is found, and no other is."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from jobq import Store
from jobq.doctor import Finding, Grade, examine_store, queue, sessions, tables
from jobq.lab.waiting import wait_until

if TYPE_CHECKING:
    from jobq.lab.pgserver import Server

PASSWORD = "hunter2-of-the-doctor"  # noqa: S105 - of users that each test makes


@pytest.fixture
def engine() -> str:
    """Each store here is on PostgreSQL."""
    return "postgresql"


@pytest.fixture
def store(url: str, opened: Callable[..., Store]) -> Store:
    """Return a store that goes by the server's clock."""
    return opened(url)


Sql = Callable[..., list[Any]]


@pytest.fixture
def sql(url: str) -> Iterator[Sql]:
    """Return what runs a statement in the schema of the store."""
    with psycopg.connect(url, autocommit=True) as connection:

        def run(statement: str, *names: str) -> list[Any]:
            text = SQL(statement).format(*map(Identifier, names))
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
def user(url: str, pg_server: "Server") -> Iterator[Callable[[str], str]]:
    """Return what makes a role with some attributes and gives the URL with its name."""
    made: list[str] = []
    with psycopg.connect(pg_server.url(), autocommit=True) as connection:

        def make(attributes: str = "") -> str:
            name = f"guest_{os.getpid()}_{len(made)}"
            text = SQL("CREATE ROLE {} LOGIN PASSWORD {} " + attributes)
            connection.execute(text.format(Identifier(name), PASSWORD))
            made.append(name)
            return signed_in(url, name)

        yield make
        for name in made:
            connection.execute(SQL("DROP OWNED BY {}").format(Identifier(name)))
            connection.execute(SQL("DROP ROLE {}").format(Identifier(name)))


def signed_in(url: str, name: str, password: str = PASSWORD) -> str:
    """Return the URL with another user."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{name}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


def ill(url: str, **options: Any) -> list[Finding]:
    """Return the findings that say anything but ok, beside that the server is one for tests."""
    found = [f for f in examine_store(url, **options) if f.grade is not Grade.OK]
    return [f for f in found if not f.text.startswith("fsync is off")]


def schema_of(url: str) -> str:
    """Return the name of the schema of a URL of these tests."""
    return url.rpartition("%3D")[2]


def test_a_store_without_a_fault_has_none(url: str, store: Store) -> None:
    """Each check has its line, and none of them says more than ok."""
    store.enqueue("noop", {})
    assert ill(url) == []
    text = "\n".join(map(str, examine_store(url)))
    for words in (
        *("answers: PostgreSQL", "connections are in use", "LISTEN works", "has version"),
        *("no table, no column and no index is missing", "no job is left alone"),
    ):
        assert words in text


def test_nothing_is_changed(url: str, store: Store, sql: Sql) -> None:
    """No row, no table, and no word of the store's channel is different afterwards."""
    store.enqueue("noop", {})

    def state() -> list[Any]:
        return [
            *sql("SELECT xmin, * FROM jobs"),
            *sql("SELECT xmin, * FROM jobq_schema"),
            *sql("SELECT oid, relname, relnamespace, relfilenode FROM pg_class ORDER BY oid"),
        ]

    before = state()
    assert len(list(examine_store(url))) > 10
    assert state() == before


def test_a_table_that_another_has_for_itself_gives_a_line(url: str, store: Store) -> None:
    """The doctor waits for a second at most, and tells of all the rest."""
    assert store.list() == []
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE jobs")
        found = ill(url)
    assert found[-1].text.startswith("the jobs could not be looked at")
    assert {f.text.partition(" (")[2] for f in found} == {
        "canceling statement due to lock timeout)"
    }


# ── the server ────────────────────────────────────────────────────────────────────────────────────


def unused() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("change", "why", "mend"),
    [
        (lambda url: signed_in(url, "jobq"), "password authentication failed", "mend user and"),
        (lambda url: signed_in(url, "no"), "password authentication failed", "mend user and"),
        (
            lambda url: urlsplit(url)._replace(path="/nowhere").geturl(),
            'database "nowhere" does not exist',
            "createdb",
        ),
        (
            lambda _: f"postgresql://jobq:{PASSWORD}@127.0.0.1:{unused()}/jobq",
            "Connection refused",
            "see that the server runs",
        ),
        (
            lambda _: f"postgresql://jobq:{PASSWORD}@no-such-host.invalid/jobq",
            "no-such-host.invalid",
            "mend the host",
        ),
        (lambda url: url.replace("search_path", "serch_path"), "serch_path", "mend the options"),
        (lambda _: f"postgresql://jobq:{PASSWORD}@127.0.0.1/?colour=red", "colour", "the options"),
    ],
)
def test_a_server_out_of_reach_is_one_line(
    url: str, change: Callable[[str], str], why: str, mend: str
) -> None:
    """Each reason has its mend, and the password stays out of both."""
    wrong = change(url)
    [found] = list(examine_store(wrong))
    assert found.grade is Grade.FAIL
    assert found.text.startswith("no connection to postgresql://")
    assert why in found.text
    assert mend in found.mend
    assert str(urlsplit(wrong).password) not in str(found)


def test_a_schema_that_is_not_there_fails(url: str, sql: Sql) -> None:
    """The mend is the statement that makes it, and it does."""
    sql("DROP SCHEMA {}", schema_of(url))
    [found] = ill(url)
    assert found.grade is Grade.FAIL
    assert found.text.startswith(f"the schema {schema_of(url)} is not there")
    sql(found.mend.partition(";")[0])
    assert [f.grade for f in ill(url)] == [Grade.WARN]


def test_a_schema_without_a_store_is_a_warning(url: str, sql: Sql) -> None:
    """Nothing is broken, and nothing is made."""
    [found] = ill(url)
    assert (found.grade, "jobq enqueue" in found.mend) == (Grade.WARN, True)
    assert sql("SELECT to_regclass('jobs')") == [(None,)]


def test_tables_of_another_program_fail(url: str, sql: Sql) -> None:
    """The store would refuse them, too."""
    sql("CREATE TABLE jobs (x int)")
    [found] = ill(url)
    assert found.grade is Grade.FAIL
    assert "another program's" in found.text


def test_who_may_not_make_a_store_is_told(url: str, sql: Sql, user: Callable[..., str]) -> None:
    """As in the schema public since PostgreSQL 15; the mend lets the user make one."""
    guest = user()
    sql("GRANT USAGE ON SCHEMA {} TO {}", schema_of(url), str(urlsplit(guest).username))
    [found] = ill(guest)
    assert found.grade is Grade.FAIL
    assert "may make none" in found.text
    sql(found.mend)
    assert [f.grade for f in ill(guest)] == [Grade.WARN]


def test_who_may_not_use_the_tables_is_told(
    url: str, store: Store, sql: Sql, user: Callable[..., str]
) -> None:
    """The mend grants what is missing, and no more."""
    assert store.list() == []
    guest = user()
    name = str(urlsplit(guest).username)
    sql("GRANT USAGE ON SCHEMA {} TO {}", schema_of(url), name)
    sql("GRANT ALL ON jobs, attempts, events, marks TO {}", name)
    sql("REVOKE DELETE ON jobs FROM {}", name)
    [found] = ill(guest)
    assert found.grade is Grade.FAIL
    assert f"GRANT DELETE ON jobs TO {name};" in found.mend
    sql(found.mend)
    assert [f.text for f in ill(guest) if f.grade is Grade.FAIL] == []


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_what_a_crash_may_lose_is_told(name: str) -> None:
    """A setting that is off has a line of its own."""
    from jobq.doctor.server import durability  # noqa: PLC0415

    on = dict.fromkeys(("fsync", "full_page_writes", "synchronous_commit"), True)
    assert [f.grade for f in durability(on)] == [Grade.OK]
    [found] = durability({**on, name: False})
    assert (found.grade, found.text.startswith(f"{name} is off: ")) == (Grade.WARN, True)


def test_settings_of_the_url_are_those_that_are_told_of(url: str, store: Store) -> None:
    """Each may be set for a user, a database or a connection alone."""
    assert store.list() == []
    [found] = ill(f"{url}%20-csynchronous_commit%3Doff")
    assert found.text.startswith("synchronous_commit is off")
    [found] = ill(f"{url}%20-cdefault_transaction_read_only%3Don")
    assert (found.grade, "nothing can be written" in found.text) == (Grade.FAIL, True)


@pytest.mark.parametrize(("offset", "words"), [(7205, "2 h behind"), (-90, "90 s ahead of")])
def test_a_clock_that_differs_from_the_servers_is_told_of(
    url: str, store: Store, offset: float, words: str
) -> None:
    """The server's decides."""
    assert store.list() == []
    [found] = ill(url, now=lambda: time.time() + offset)
    assert words in found.text


@pytest.mark.parametrize(("used", "grade"), [(20, Grade.OK), (90, Grade.WARN), (97, Grade.FAIL)])
def test_few_connections_left_are_told_of(used: int, grade: Grade) -> None:
    """A worker that gets none cannot work."""
    assert sessions.room({"used": used, "available": 97}).grade is grade


def test_a_proxy_that_pools_transactions_is_told_of(
    url: str, store: Store, pooled: Callable[[str], str]
) -> None:
    """What LISTEN waits for goes to another of its connections; all else works."""
    assert store.list() == []
    [found] = ill(pooled(url))
    assert found.text.startswith("LISTEN does not work here")
    assert "a proxy stands between" in "\n".join(map(str, examine_store(pooled(url))))


@pytest.fixture
def pooled(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Return what gives the URL of a store by way of PgBouncer, where that is installed."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    started: list[subprocess.Popen[bytes]] = []

    def start(url: str) -> str:
        if not started:
            started.append(_bouncer(program, tmp_path, url))
        return f"postgresql://jobq:{PASSWORD}@127.0.0.1:{_port(tmp_path)}/{schema_of(url)}"

    yield start
    for process in started:
        process.terminate()
        process.wait()


def _port(folder: Path) -> int:
    return int((folder / "port").read_text())


def _bouncer(program: str, folder: Path, url: str) -> "subprocess.Popen[bytes]":
    """Start PgBouncer before a store: one connection of the server for everybody."""
    there = urlsplit(url)
    (folder / "port").write_text(str(unused()))
    (folder / "users").write_text(f'"jobq" "{PASSWORD}"\n')
    (folder / "bouncer.ini").write_text(
        f"[databases]\n{schema_of(url)} = host=127.0.0.1 port={there.port} dbname=jobq user=jobq "
        f"password={there.password} connect_query='SET search_path = {schema_of(url)}'\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {_port(folder)}\nauth_type = plain\n"
        f"auth_file = {folder}/users\npool_mode = transaction\ndefault_pool_size = 1\n"
        f"unix_socket_dir =\n"
    )
    folder.chmod(0o755)
    root = os.geteuid() == 0  # it refuses to be root's
    process = subprocess.Popen(
        [program, *(["-u", "nobody"] if root else []), str(folder / "bouncer.ini")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: _listens(_port(folder)) or process.poll() is not None, "the proxy")
    return process


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_an_install_without_psycopg_is_one_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra, and the mend installs it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    [found] = list(examine_store(url))
    assert (found.grade, found.mend) == (Grade.FAIL, "pip install 'jobq[postgres]'")


# ── the tables ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("DROP INDEX jobs_ready", "jobs_ready"),
        ("DROP INDEX events_of_job", "events_of_job"),
        ("DROP TABLE marks", "marks"),
        ("ALTER TABLE jobs DROP COLUMN progress", "jobs.progress"),
        ("ALTER TABLE jobs DROP CONSTRAINT jobs_idempotency_key_key", "jobs_idempotency_key_key"),
    ],
)
def test_a_missing_part_is_named(url: str, store: Store, sql: Sql, fault: str, part: str) -> None:
    """The mend is the statement that makes it, and it does."""
    assert store.list() == []
    sql(fault)
    [found] = ill(url)
    assert found.grade is Grade.FAIL
    assert found.text == f"{part} is missing from the schema"
    sql(found.mend.partition(": ")[2])
    assert ill(url) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("ALTER TABLE jobs ALTER priority TYPE bigint", "the column jobs.priority is not"),
        ('ALTER TABLE attempts ALTER job_id TYPE text COLLATE "C.utf8"', "attempts.job_id is"),
        (
            "DROP INDEX jobs_final; CREATE INDEX jobs_final ON jobs (finished_at)",
            "the index jobs_final is not as jobq makes it",
        ),
    ],
)
def test_a_part_that_was_made_otherwise_is_told_of(
    url: str, store: Store, sql: Sql, fault: str, words: str
) -> None:
    """It may do, but nobody has tried it."""
    assert store.list() == []
    sql(fault)
    [found] = ill(url)
    assert (found.grade, words in found.text) == (Grade.WARN, True)


def test_further_columns_and_indexes_are_no_fault(url: str, store: Store, sql: Sql) -> None:
    """Whoever looks for something of his own may help himself."""
    assert store.list() == []
    sql("ALTER TABLE jobs ADD COLUMN note text; CREATE INDEX mine ON jobs (note)")
    assert ill(url) == []


def test_a_later_schema_fails(url: str, store: Store, sql: Sql) -> None:
    """It is for a later jobq, and nothing else is looked at."""
    assert store.list() == []
    sql("UPDATE jobq_schema SET version = 99")
    [found] = ill(url)
    assert (found.grade, found.mend) == (Grade.FAIL, "update jobq")


def test_an_index_that_was_given_up_is_told_of(url: str, store: Store, sql: Sql) -> None:
    """As when CREATE INDEX CONCURRENTLY fails half-way; the mend makes it, once it can be."""
    store.enqueue_many({"kind": "noop", "payload": {}} for _ in range(2))
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql("CREATE UNIQUE INDEX CONCURRENTLY one_of_each ON jobs (kind)")
    [found] = ill(url)
    assert found.text == "the index one_of_each is invalid, and no statement uses it"
    sql("DELETE FROM jobs WHERE seq = 1")
    sql(found.mend.partition(": ")[2])
    assert ill(url) == []


# ── the sessions ──────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_that_stays_open_is_named(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its locks, and vacuum from its work; the mend ends it."""
    assert store.list() == []
    monkeypatch.setattr(sessions, "OPEN_SECONDS", 0.0)
    with psycopg.connect(url, application_name="report") as other:
        other.execute("SELECT count(*) FROM jobs")
        [found] = [f for f in ill(url) if f"pid {other.info.backend_pid} " in f.text]
        assert "(report) has a transaction open for 0 s, idle" in found.text
        with psycopg.connect(url, autocommit=True) as mender:
            mender.execute(found.mend.partition(": ")[2])
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")


def test_who_keeps_others_waiting_is_named(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch, start: Callable[..., Any]
) -> None:
    """Both ends of the wait have a name; the mend ends the one that holds the lock."""
    job_id = store.enqueue("noop", {}).job.id
    monkeypatch.setattr(sessions, "WAIT_SECONDS", 0.0)
    with psycopg.connect(url, application_name="editor") as other:
        other.execute("SELECT * FROM jobs FOR UPDATE")
        start(
            "import sys; from jobq import open_store; print('open', flush=True); "
            "open_store(sys.argv[1], busy_seconds=60).cancel(sys.argv[2])",
            url,
            job_id,
        ).hear()
        found: list[Finding] = []

        def named() -> bool:
            found[:] = [f for f in ill(url) if "for a lock that pid" in f.text]
            return bool(found)

        wait_until(named, "the other to wait")
        assert f"pid {other.info.backend_pid} (editor) holds" in found[0].text
        assert f"pg_terminate_backend({other.info.backend_pid})" in found[0].mend


def test_a_user_s_own_name_cannot_spoil_the_line(url: str, store: Store) -> None:
    """A program may call itself what it likes."""
    assert store.list() == []
    name = "two\tlines " + "x" * 50
    with psycopg.connect(url, application_name=name):
        text = "\n".join(map(str, examine_store(url)))
    assert "x" * 40 not in text


# ── the rows ──────────────────────────────────────────────────────────────────────────────────────


def test_a_table_without_autovacuum_is_told_of(url: str, store: Store, sql: Sql) -> None:
    """The mend turns it on."""
    assert store.list() == []
    sql("ALTER TABLE jobs SET (autovacuum_enabled = false)")
    [found] = ill(url)
    assert found.text.startswith("autovacuum is off for the table jobs")
    sql(found.mend)
    assert ill(url) == []


def test_dead_rows_that_nobody_removes_are_told_of(
    url: str, store: Store, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many of them, where autovacuum should have come by long ago."""
    store.enqueue("noop", {})
    sql("UPDATE jobs SET priority = priority")
    sql("SELECT pg_stat_force_next_flush()")
    monkeypatch.setattr(tables, "FEW", 1)
    monkeypatch.setattr(tables, "BEHIND", 0)
    [found] = ill(url)
    assert found.text.startswith("the table jobs has 1 dead rows and ")
    sql("VACUUM jobs")
    assert ill(url) == []


def test_what_stands_in_the_queue_is_told_of_as_on_sqlite(
    url: str, opened: Callable[..., Store]
) -> None:
    """A job that nobody took over, one that nobody takes, and an event from the future."""
    earlier = opened(url, clock=lambda: time.time() - 310)
    earlier.enqueue("noop", {})
    assert earlier.claim("worker", 10) is not None
    earlier.enqueue("noop", {})
    opened(url, clock=lambda: time.time() + 3600 * 5).enqueue("noop", {}, run_after=4e9)
    assert [f.text for f in ill(url)] == [
        "the newest event is dated 5 h from now",
        "the lease of 1 job ran out, 5 min ago, and nobody took over",
        "1 job can be run, the first for 5 min, and nothing runs",
    ]


def test_a_fault_of_a_check_is_a_finding(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are carried out all the same."""
    assert store.list() == []

    def broken(*_: Any) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr(queue, "times", broken)
    found = list(examine_store(url))
    assert "the events could not be looked at (RuntimeError: oh)" in [f.text for f in found]
    assert found[-1].text == "no job is left alone"
