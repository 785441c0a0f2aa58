"""jobq.doctor on file and machine: each fault is made for real, is found, and no other is."""

import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest
from typer.testing import CliRunner

from jobq import open_store
from jobq.cli import app
from jobq.doctor import Finding, Grade, disk, examine_store, holders, machine
from jobq.doctor.finding import in_bytes, one_statement
from jobq.lab import folders
from jobq.store.sqlitefile import path_of

if TYPE_CHECKING:
    from tests.conftest import Program

TEMPORARY = tempfile.gettempdir()  # where other users may look, too


@pytest.fixture(autouse=True)
def _fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in an empty folder, with no settings and no lab's leftovers but the test's."""
    for name in [n for n in os.environ if n.startswith("JOBQ_")] + ["LEASE_SECONDS"]:
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("JOBQ_PORT", str(listener.getsockname()[1]))  # free
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store of a test is."""
    return tmp_path / "jobs.db"


def ill(findings: Iterator[Finding]) -> list[Finding]:
    """Return the findings that say anything but ok."""
    return [finding for finding in findings if finding.grade is not Grade.OK]


def run(*words: str) -> tuple[int, str]:
    """Run `jobq doctor` in this process; return its exit code and what it printed."""
    result = CliRunner().invoke(app, ["doctor", *words], prog_name="jobq")
    assert not isinstance(result.exception, Exception) or result.exit_code == 1, result.output
    return result.exit_code, result.output


# ── disk ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_store_that_is_not_there_is_a_warning(path: Path) -> None:
    """Nothing is broken, and nothing is made."""
    [found] = ill(examine_store(path))
    assert (found.grade, "jobq enqueue" in found.mend) == (Grade.WARN, True)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "temporary", "no/such/jobs.db"])
def test_a_path_that_cannot_be_a_store_fails(tmp_path: Path, name: str) -> None:
    """A folder, or a file in none: one line, and an end."""
    found = list(examine_store(tmp_path / name))
    assert [f.grade for f in found] == [Grade.FAIL]


@pytest.mark.parametrize(
    ("closed", "mode", "words"),
    [
        ("a/jobs.db", 0o555, "fail the file {}/a/jobs.db cannot be written to: chmod u+rw "),
        ("a", 0o555, "fail the folder {}/a cannot be written to: chmod u+rw "),
        ("a", 0o600, "fail the file may not be looked at ([Errno 13]"),
    ],
)
def test_what_cannot_be_used_fails(
    start: Callable[..., "Program"], closed: str, mode: int, words: str
) -> None:
    """A worker could do nothing. An ordinary user looks: root may do everything."""
    with tempfile.TemporaryDirectory(dir=TEMPORARY) as name:
        folder = Path(name)
        (folder / "a").mkdir()
        open_store(folder / "a" / "jobs.db").close()
        folder.chmod(0o755)
        (folder / "a" / "jobs.db").chmod(0o666)
        (folder / closed).chmod(mode)
        code = (
            "import os, sys, pathlib; from jobq.doctor import examine_store; "
            "os.geteuid() or os.setuid(65534); "
            "print(*examine_store(pathlib.Path(sys.argv[1])), sep='\\n', flush=True)"
        )
        line = start(code, f"{folder}/a/jobs.db").hear()
        (folder / closed).chmod(0o755)
    assert line.startswith(words.format(folder))


def test_a_network_file_system_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """oh-my-pi#9082: with the words of the store, which refuses it."""
    mount = SimpleNamespace(mountpoint=str(path.parent), fstype="nfs4")
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [mount])
    [found] = list(examine_store(path))
    assert found.grade is Grade.FAIL
    assert "network file system (nfs4)" in found.text


def test_a_disk_that_is_nearly_full_is_told_of(tmp_path: Path) -> None:
    """Little room is a warning, and hardly any a failure."""
    free = shutil.disk_usage(tmp_path).free
    assert disk.space(tmp_path, little=0, too_little=0).grade is Grade.OK
    assert disk.space(tmp_path, little=2 * free, too_little=0).grade is Grade.WARN
    assert disk.space(tmp_path, little=3 * free, too_little=2 * free).grade is Grade.FAIL


@pytest.mark.parametrize(("offset", "words"), [(7205, "2 h behind"), (-90, "90 s ahead of")])
def test_a_clock_that_differs_from_the_disks_is_told_of(
    tmp_path: Path, offset: float, words: str
) -> None:
    """As on a disk of another machine, or after the clock was set."""
    before = sorted(tmp_path.iterdir())
    assert disk.clock(tmp_path, time.time()).grade is Grade.OK
    assert words in disk.clock(tmp_path, time.time() + offset).text
    assert sorted(tmp_path.iterdir()) == before


# ── machine ───────────────────────────────────────────────────────────────────────────────────────


def test_an_old_python_or_sqlite_fails() -> None:
    """The line tells what is here and what is needed."""
    assert machine.python((3, 12, 1)).grade is Grade.OK
    assert machine.python((3, 10, 2)) == Finding(
        Grade.FAIL, "this is Python 3.10.2", "install Python 3.11 or newer"
    )
    assert machine.sqlite((3, 37, 0), (3, 37, 0)).grade is Grade.OK
    old = machine.sqlite((3, 34, 1), (3, 37, 0))
    assert (old.grade, old.mend) == (Grade.FAIL, "install a Python with SQLite 3.37 or newer")


def kernelspec(folder: Path, *argv: str) -> None:
    """Install a kernel named python3, as `ipykernel install` does."""
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True)
    spec.joinpath("kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python"}))


def test_a_kernel_of_another_python_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both pythons may be links to the same file, and yet know other packages."""
    there = tmp_path / "other" / "bin" / "python"
    there.parent.mkdir(parents=True)
    there.symlink_to(sys.executable)
    kernelspec(tmp_path, str(there), "-m", "ipykernel_launcher", "-f", "{connection_file}")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    found = machine.kernel(sys.executable)
    assert found.grade is Grade.WARN
    assert str(there) in found.text
    assert f"{sys.executable} -m ipykernel install --sys-prefix" in found.mend


@pytest.mark.parametrize("program", [sys.executable, "python", "python3"])
def test_a_kernel_of_this_python_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Without a path it is the one that runs Jupyter."""
    kernelspec(tmp_path, program, "-m", "ipykernel_launcher")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert machine.kernel(sys.executable).grade is Grade.OK


def test_a_kernelspec_that_is_no_json_gives_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever other programs have written is no reason for a traceback."""
    kernelspec(tmp_path, "python")
    (tmp_path / "kernels" / "python3" / "kernel.json").write_text("{")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    code, output = run()
    assert code == 0
    assert "warn Jupyter's kernel could not be looked at" in output


def test_a_port_in_use_is_told_of_with_its_user(start: Callable[..., "Program"]) -> None:
    """The process is named where the system tells; jobq's own server is no fault."""
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); input()"
    )
    other, own = start(code), start(code, "jobq", "serve")
    found = machine.port("127.0.0.1", int(other.hear()))
    assert found.grade is Grade.WARN
    if sys.platform == "linux":
        assert f"pid {other.pid} " in found.text
        assert machine.port("127.0.0.1", int(own.hear())).grade is Grade.OK


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_a_host_that_is_not_this_machine_is_told_of(host: str) -> None:
    """Nobody could listen there."""
    assert machine.port(host, 8718).grade is Grade.WARN


def test_leftovers_of_a_killed_lab_are_told_of(start: Callable[..., "Program"]) -> None:
    """The folder of a lab whose process is gone; that of a living one is left alone."""
    code = "import sys, tempfile; from jobq.lab import folders; tempfile.tempdir = sys.argv[1]; "
    code += "print(folders.fresh_folder(), flush=True); input()"
    program = start(code, tempfile.gettempdir())
    folder = Path(program.hear())
    assert machine.leftovers(list(folders.orphans())).grade is Grade.OK
    program.kill()
    found = machine.leftovers(list(folders.orphans()))
    assert found.grade is Grade.WARN
    assert str(folder) in found.mend
    assert folder.is_dir()


# ── command ───────────────────────────────────────────────────────────────────────────────────────


def test_the_command_prints_a_line_for_each_check(path: Path) -> None:
    """Each begins with its grade, and none is wider than a terminal."""
    open_store(path).close()
    code, output = run()
    assert code == 0
    lines = output.splitlines()
    assert len(lines) > 12
    assert all(line[:5] in {"ok   ", "warn ", "fail ", "     "} for line in lines), output
    assert max(map(len, lines)) <= 80
    assert "fail" not in output


def test_a_failure_is_the_exit_code(path: Path) -> None:
    """Warnings are not."""
    code, _ = run()  # there is no store
    assert code == 0
    path.write_bytes(b"x" * 100)
    code, output = run()
    assert code == 1
    assert "fail jobs.db is not a jobq store: move it away, or name another file" in output


def test_the_command_speaks_json(path: Path) -> None:
    """A list of grade, text and mend."""
    open_store(path).close()
    code, output = run("--json")
    findings = json.loads(output)
    assert code == 0
    assert {"grade": "ok", "text": "its structure is whole", "mend": ""} in findings


def test_the_url_is_an_option_like_everywhere(tmp_path: Path) -> None:
    """A relative and an absolute one, as for the other commands."""
    (tmp_path / "a").mkdir()
    open_store(tmp_path / "a" / "my jobs?#.db").close()
    for url in ("sqlite:///a/my jobs?#.db", f"sqlite:///{tmp_path}/a/my jobs?#.db"):
        code, output = run("--url", url)
        assert (code, "the schema is version" in output) == (0, True), output
    code, output = run("--url", "mysql://localhost/jobs")
    assert (code, output.startswith("fail store URL 'mysql://")) == (1, True)


def test_faulty_settings_are_all_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault is a line, and nothing is looked at by guess."""
    monkeypatch.setenv("JOBQ_PORT", "0")
    monkeypatch.setenv("JOBQ_POLL_SECONDS", "no")
    code, output = run()
    assert code == 1
    assert output.count("fail JOBQ_") == 2
    assert "nothing else was looked at" in output


def test_sizes_are_in_words() -> None:
    """To the precision that a reader needs."""
    assert [in_bytes(size) for size in (0, 250_000, 12_400_000, 79e9)] == [
        *("0.0 MB", "0.2 MB", "12 MB", "79 GB")
    ]


def test_a_statement_on_one_line_is_whole() -> None:
    """A comment in it would swallow what follows."""
    assert one_statement("CREATE TABLE a (\n  x,  -- one\n  y);") == "CREATE TABLE a ( x, y);"


def test_a_password_in_a_command_is_not_told(start: Callable[..., "Program"]) -> None:
    """As in that of a server which listens on the port."""
    code = "print('up', flush=True); input()"
    program = start(code, "--url", "postgresql://jobq:hunter2@h/d")
    assert program.hear() == "up"
    assert "hunter2" not in holders.command(psutil.Process(program.pid))


def test_a_path_is_found_in_its_url() -> None:
    """With three slashes from the present folder, with four from the root."""
    assert path_of("sqlite:///a/b.db") == Path("a/b.db")
    assert path_of("sqlite:////a/b.db") == Path("/a/b.db")
    assert path_of("b.db") == Path("b.db")
