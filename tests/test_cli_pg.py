"""`jobq pg`, as real processes."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from jobq.lab import pgfolder
from jobq.lab.folders import fresh_folder
from jobq.lab.pgserver import Server, find_server
from jobq.lab.waiting import wait_until

PATIENCE = 60.0  # seconds for a command

Command = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def home(pg_server: Server) -> Iterator[Path]:
    """Return a folder in place of the one that keeps the data of the user's programs."""
    assert pg_server.pid
    folder = fresh_folder()
    folder.chmod(0o711)
    yield folder
    for kept in folder.rglob(pgfolder.STATE):
        Server(kept.parent).stop("immediate")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user of that home, with no settings of jobq."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("JOBQ_")}
    return {**inherited, "HOME": str(home), "XDG_DATA_HOME": "", "LOCALAPPDATA": str(home)}


@pytest.fixture
def jobq(environment: dict[str, str], tmp_path: Path) -> Callable[..., Command]:
    """Return what runs a command to its end, in an empty folder."""

    def run(*words: str, **more: str) -> Command:
        return subprocess.run(
            [sys.executable, "-m", "jobq", *words],
            cwd=tmp_path,
            env=environment | more,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )

    return run


def fault(done: Command) -> str:
    """Return the one line that a command which could not do it has printed."""
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def pasted(done: Command) -> str:
    """Return the URL of the line to paste, which a command printed alone."""
    assert done.returncode == 0, done.stderr
    line = re.fullmatch(r"(?:export |\$env:)JOBQ_URL ?= ?'(\S+)'\n", done.stdout)
    assert line
    return line[1]


def test_start_url_stop(jobq: Callable[..., Command], home: Path) -> None:
    """The line to paste leads to a database that is there; it is kept from start to start."""
    url = pasted(jobq("pg", "start"))
    assert list(home.rglob(pgfolder.STATE)), "it is not where the user's programs keep data"
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept ()")
    assert pasted(jobq("pg", "start")) == url, "a second start gives the same server"
    assert jobq("pg", "url").stdout == f"{url}\n"
    assert "`jobq pg start` starts it again" in jobq("pg", "stop").stdout
    assert re.search("no server runs in .*: `jobq pg start` starts one", fault(jobq("pg", "url")))
    again = jobq("pg", "stop")
    assert (again.returncode, again.stderr) == (0, "")
    assert "nothing to stop" in again.stdout
    assert pasted(jobq("pg", "start")) == url
    with psycopg.connect(url) as connection:
        connection.execute("SELECT FROM kept")
    jobq("pg", "stop")


def test_the_url_is_one_that_commands_take(jobq: Callable[..., Command]) -> None:
    """A job put there with JOBQ_URL is listed from there."""
    url = pasted(jobq("pg", "start"))
    job_id = jobq("enqueue", "noop", "{}", JOBQ_URL=url).stdout.strip()
    assert job_id[:8] in jobq("list", JOBQ_URL=url).stdout
    jobq("pg", "stop")


def test_each_folder_has_a_server_of_its_own(jobq: Callable[..., Command], home: Path) -> None:
    """What helps against a server that does not run names the folder too."""
    folder = str(home / "other one")
    assert "`jobq pg start --folder '" + folder + "'`" in fault(
        jobq("pg", "url", "--folder", folder)
    )
    url = pasted(jobq("pg", "start", "--folder", folder))
    assert jobq("pg", "url", "--folder", folder).stdout == f"{url}\n"
    assert jobq("pg", "url").returncode == 1
    jobq("pg", "stop", "--folder", folder)


@pytest.mark.parametrize(
    ("name", "told"), [("file", "is a file: name a folder"), ("", "holds other things")]
)
def test_a_folder_that_cannot_be_used_is_told(
    jobq: Callable[..., Command], tmp_path: Path, name: str, told: str
) -> None:
    """A file, or a folder with other things: one line, and nothing is changed."""
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert told in fault(jobq("pg", "start", "--folder", str(tmp_path / name)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C comes otherwise there")
def test_ctrl_c_during_the_first_start_leaves_nothing_half_done(
    jobq: Callable[..., Command], environment: dict[str, str], home: Path
) -> None:
    """Exit code 130, no traceback, no process; and the next start works."""
    folder = home / "interrupted"
    command = [sys.executable, "-m", "jobq", "pg", "start", "--folder", str(folder)]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, encoding="utf-8", process_group=0
    ) as child:
        wait_until(lambda: list(folder.glob(f"{pgfolder.NEW}*/data/*")), "data to be made")
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=PATIENCE)
    assert (child.returncode, said) == (130, "jobq: interrupted\n")
    server = find_server(folder)
    assert server
    assert not server.data.exists()
    assert list(folder.glob(f"{pgfolder.NEW}*")) == []
    assert [p.pid for p in psutil.process_iter() if str(folder) in words(p)] == []
    assert pasted(jobq("pg", "start", "--folder", str(folder)))


def words(process: psutil.Process) -> str:
    """Return the command line of a process, as far as it is to be seen."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
