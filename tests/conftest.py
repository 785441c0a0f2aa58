"""What the tests share: a clock to set, a new store on every engine, and real processes."""

import functools
import itertools
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

import httpx
import psycopg
import pytest
import uvicorn
from fastapi import FastAPI
from hypothesis import settings
from psycopg.sql import SQL, Identifier
from psycopg.sql import Literal as Text
from starlette.types import Receive, Scope, Send

from jobq import Event, EventName, Job, Outcome, Status, Store, open_store
from jobq.api import create_app, problems
from jobq.job import MOVES
from jobq.lab.pgserver import NoServer, Server, temporary_server
from jobq.lab.story import Deed, Mark

ROOT = Path(__file__).resolve().parent.parent

# A shell ignores SIGINT for what it runs in the background; the programs that tests start, and
# interrupt, would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of Python processes, which may keep what they compile: else each takes
# twice as long to start. Kept apart, in a folder that git does not see.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".pytest_cache" / "pycache"))

# The same examples on every run, however slow the machine, and no folder left behind.
settings.register_profile("jobq", derandomize=True, deadline=None, database=None)
settings.load_profile("jobq")

AT_THE_END = ExitStack()  # what the whole run needs, and its end closes
SCHEMAS = itertools.count(1)


@functools.cache
def the_server() -> Server:
    """Return this run's PostgreSQL server, started when the first test wants it.

    Where there is none to start, the test is skipped; but hosting, which says CI, must not pass
    by skipping.
    """
    try:
        return AT_THE_END.enter_context(temporary_server(options={"fsync": "off"}))
    except NoServer as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def pytest_sessionfinish() -> None:
    """Stop what the whole run needed."""
    AT_THE_END.close()


@functools.cache
def a_connection() -> psycopg.Connection:
    """Return a connection to this run's server, for what the tests themselves do there."""
    url = the_server().url()
    connection = AT_THE_END.enter_context(psycopg.connect(url, autocommit=True))
    with suppress(psycopg.Error):  # of a server older than 16, which knows no such setting
        # The tests connect thousands of times; the usual 4,096 rounds of hashing take 10 ms each.
        connection.execute("SET scram_iterations = 1")
        password = Text(connection.info.password)
        connection.execute(SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(password))
    return connection


def new_schemas(_folder: Path) -> Iterator[str]:
    """Give the URLs of new, empty schemas on this run's PostgreSQL server."""
    for number in SCHEMAS:
        name = f"test_{number}"
        a_connection().execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
        yield f"{the_server().url()}?options=-csearch_path%3D{name}"


# A new engine is a line here: what gives the URLs of new, empty databases, and in FAST the options
# that give up durability for speed.
NEW_URLS: dict[str, Callable[[Path], Iterator[str]]] = {
    "sqlite": lambda folder: (f"sqlite:///{folder / f'{n}.db'}" for n in itertools.count(1)),
    "postgresql": new_schemas,
}
FAST = {"sqlite": {"synchronous": "NORMAL"}, "postgresql": {"synchronous": "NORMAL"}}
PATIENCE = 60.0  # seconds until a program that hangs is killed, which fails its test


class Clock:
    """A clock that stands still until it is moved, forwards or back."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        """Return the time it was set to, in seconds."""
        return self.now

    def move(self, seconds: float) -> None:
        """Move the clock; a negative number steps it back."""
        self.now += seconds


class Program:
    """A Python program in a process of its own, told and heard line by line."""

    def __init__(self, code: str, *arguments: str, patience: float = PATIENCE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._watchdog = threading.Timer(patience, self.process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    def tell(self, line: str = "go") -> None:
        """Write a line to the program, which reads it with `input()`."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Return the next line that the program prints (it has to flush)."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the program ended, or hung until it was killed, before it said anything"
        return line.removesuffix("\n")

    def rest(self) -> list[str]:
        """Return all further lines, once the program has ended well."""
        output, _ = self.process.communicate()
        assert self.process.returncode == 0, f"the program ended with {self.process.returncode}"
        return output.splitlines()

    def kill(self) -> None:
        """End the program with SIGKILL, also when it is stopped, and wait until it is gone."""
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Start programs as real processes; what still runs at the end is killed."""
    programs: list[Program] = []

    def start_program(code: str, *arguments: str, **options: float) -> Program:
        programs.append(Program(code, *arguments, **options))
        return programs[-1]

    yield start_program
    for program in programs:
        program.kill()


@pytest.fixture
def clock() -> Clock:
    """Return the clock of `store`."""
    return Clock()


@pytest.fixture(scope="session")
def pg_server() -> Server:
    """Return the PostgreSQL server of this run."""
    return the_server()


@pytest.fixture(params=NEW_URLS)
def engine(request: pytest.FixtureRequest) -> str:
    """Return the name of each engine in turn."""
    return str(request.param)


@pytest.fixture
def new_url(engine: str, tmp_path: Path) -> Callable[[], str]:
    """Return what gives the URL of another new, empty database."""
    urls = NEW_URLS[engine](tmp_path)
    return lambda: next(urls)


@pytest.fixture
def fast(engine: str) -> dict[str, str]:
    """Return the options for a store that need not survive a power cut."""
    return FAST[engine]


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    """Return the URL of one database, empty until somebody opens it."""
    return new_url()


@pytest.fixture
def opened() -> Iterator[Callable[..., Store]]:
    """Open stores, and close them at the end."""
    stores: list[Store] = []

    def open_one(url: str | Path, **options: object) -> Store:
        stores.append(open_store(url, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(url: str, opened: Callable[..., Store], clock: Clock) -> Store:
    """Return an empty store that goes by `clock`."""
    return opened(url, clock=clock)


@pytest.fixture
def live(url: str, opened: Callable[..., Store]) -> Store:
    """Return an empty store that goes by the real time."""
    return opened(url)


Held = Callable[[Store], AbstractContextManager[object]]


@pytest.fixture
def held() -> Held:
    """Return what keeps everybody else from writing to a store, for as long as its block lasts."""
    return hold


@contextmanager
def hold(store: Store) -> Iterator[None]:
    """Begin a transaction that nobody else can write beside."""
    with store.transaction() as tx:
        if not store._engine.one_writer:  # on SQLite it is enough to have begun
            tx.execute("LOCK TABLE jobs IN EXCLUSIVE MODE")
        yield


@pytest.fixture
def outside(url: str) -> Callable[[str], object]:
    """Return what runs SQL in the database as another program would, past the store."""

    def run(sql: str) -> None:
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw, raw:
                raw.execute("PRAGMA ignore_check_constraints = 1")
                raw.execute(sql)
        else:
            with psycopg.connect(url) as other:
                other.execute(sql)

    return run


@pytest.fixture
def snapshots(url: str) -> Callable[[], bool]:
    """Return what says whether anybody holds on to an old state of the database."""

    def any_held() -> bool:
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw:
                [(busy, _, _)] = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return bool(busy)
        with psycopg.connect(url, autocommit=True) as other:
            [[count]] = other.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                " AND pid <> pg_backend_pid()"
                " AND (backend_xmin IS NOT NULL OR state LIKE 'idle in transaction%')"
            )
            return bool(count)

    return any_held


@pytest.fixture
def assert_consistent() -> Callable[[Store], None]:
    """Hold jobs, attempts and the event log of a store against each other."""

    def check(store: Store) -> None:
        events = store.events(limit=1_000_000)
        assert [e.seq for e in events] == sorted({e.seq for e in events})
        logs: dict[str, list[Event]] = {}
        for event in events:
            logs.setdefault(event.job_id, []).append(event)
        for job in pages(store):
            attempts = store.attempts(job.id)
            log = logs[job.id]
            claims = replay(log, job.status)
            # An operator's retry lets the attempts begin anew.
            retried = max((e.token for e in log if e.name is EventName.RETRIED), default=0)
            counted = [
                a for a in attempts if a.outcome is not Outcome.RELEASED and a.token > retried
            ]
            assert [a.token for a in attempts] == claims
            assert max(claims, default=0) == job.token
            assert len([a for a in attempts if a.outcome is None]) == (job.status == "running")
            assert job.attempts == len(counted) <= job.max_attempts

    return check


def pages(store: Store) -> Iterator[Job]:
    """Give every job of a store, newest first."""
    page = store.list(limit=1_000)
    while page:
        yield from page
        page = store.list(limit=1_000, before=page[-1].id)


def replay(log: list[Event], end: Status) -> list[int]:
    """Replay the log of one job against the table of moves; return the tokens of its claims."""
    status: Status | None = None
    tokens = [0]
    for event in log:
        before, after = MOVES[event.name]
        assert status in before, f"{event.name} came to a job that was {status}"
        assert event.status in after, f"{event.name} made a job {event.status}"
        if event.name is EventName.CLAIMED:
            assert event.token > tokens[-1], "a token did not grow"
            tokens.append(event.token)
        assert event.token == tokens[-1], f"{event.name} by a token that was not the current one"
        status = event.status
    assert status == end, f"the log ends with a job that is {status}, the job is {end}"
    return tokens[1:]


@pytest.fixture
def crash(store: Store, clock: Clock) -> tuple[tuple[Event, ...], list[Mark]]:
    """Return the log of a job whose first worker was killed at 1.25 s, and the mark of that.

    Lease 2 s; a heartbeat at 1 s; the lease ran out at 3 s; the second worker worked until 5 s.
    """
    job_id = store.enqueue("noop", {}).job.id
    first = store.claim("worker-1", 2.0)
    clock.move(1.0)
    assert first is not None
    store.heartbeat(first, 2.0)
    mark = Mark(clock() + 0.25, "worker-1", Deed.KILLED, "SIGKILL")
    clock.move(2.5)
    second = store.claim("worker-2", 2.0)
    clock.move(1.5)
    assert second is not None
    store.finish(second, {})
    return store.events(job_id), [mark]


# The API, over real sockets.


Serving = Callable[..., AbstractContextManager[httpx.Client]]
Refused = Callable[[httpx.Response, problems.ProblemType], str]


@pytest.fixture
def refused() -> Refused:
    """Return what holds an answer against the type of its problem and gives the detail."""

    def check(answer: httpx.Response, problem: problems.ProblemType) -> str:
        assert answer.headers["Content-Type"] == problems.PROBLEM_JSON, answer.text
        said = answer.json()
        assert (answer.status_code, said["type"]) == (problem.status, problem.uri), said
        return str(said["detail"])

    return check


@pytest.fixture
def serving() -> Serving:
    """Return what serves an app of its own, lifespan included, and gives a client of it."""
    return served


class Stage:
    """An app that is another one in each test, so that one server does for all of them."""

    app: FastAPI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app of the test answer."""
        await self.app(scope, receive, send)


@contextmanager
def served(app: "FastAPI | Stage", address: str = "127.0.0.1") -> Iterator[httpx.Client]:
    """Serve an app over a real socket on a free port, and give a client of it."""
    with socket.create_server((address, 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as `jobq serve` does
        lifespan: Literal["on", "off"] = "off" if isinstance(app, Stage) else "on"
        server = uvicorn.Server(uvicorn.Config(app, lifespan=lifespan, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            host = "localhost" if address == "127.0.0.1" else address
            with a_client(listener.getsockname()[1], host) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def a_client(port: int, host: str = "localhost") -> httpx.Client:
    """Return a client that calls the server by the name that the lesson uses, or another."""
    return httpx.Client(base_url=f"http://{host}:{port}", trust_env=False, timeout=PATIENCE)


@pytest.fixture(scope="session")
def stage() -> Iterator[tuple[Stage, httpx.Client]]:
    """Run the server for most of the tests."""
    app = Stage()
    with served(app) as client:
        yield app, client


@pytest.fixture
def serve(stage: tuple[Stage, httpx.Client]) -> Callable[[FastAPI], httpx.Client]:
    """Return what puts an app on the stage and gives a client of it."""

    def serve_app(app: FastAPI) -> httpx.Client:
        stage[0].app = app
        return stage[1]

    return serve_app


@pytest.fixture
def client(serve: Callable[[FastAPI], httpx.Client], store: Store) -> httpx.Client:
    """Return a client of a server on `store`."""
    return serve(create_app(store))


class Uvicorn:
    """`uvicorn jobq.api:app` as a real process in a folder, on a free port."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("JOBQ_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "jobq.api:app", "--port", "0"],
            cwd=folder,
            env=inherited | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self._watchdog = threading.Timer(PATIENCE, self.process.kill)
        self._watchdog.start()

    def client(self) -> httpx.Client:
        """Wait until the server listens, and return a client of it."""
        assert self.process.stderr is not None
        said = ""
        for line in self.process.stderr:
            said += line
            if listens := re.search(r"Uvicorn running on \S+:(\d+)", line):
                return a_client(int(listens[1]))
        pytest.fail(f"the server ended, or hung for {PATIENCE} s, before it listened: {said}")

    def wait(self) -> str:
        """Wait for the end of the process and return what it said."""
        _, said = self.process.communicate()
        self._watchdog.cancel()
        return said


@pytest.fixture
def start_uvicorn(tmp_path: Path) -> Iterator[Callable[..., Uvicorn]]:
    """Start servers in one folder, empty at first; each is ended when the test is over."""
    servers: list[Uvicorn] = []

    def start(**environment: str) -> Uvicorn:
        servers.append(Uvicorn(tmp_path, environment))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.returncode is None:
            server.process.terminate()
            server.wait()
