"""jobq.lab.demo: the crash and the recovery, as `jobq demo crash` shows them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from jobq.errors import LabError
from jobq.lab.demo import _Crash, _judgement, _picture
from jobq.lab.lab import Lab
from jobq.lab.timeline import build
from jobq.lab.waiting import wait_until

PATIENCE = 60.0  # seconds for the demo to end

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and groups")


class Demo:
    """`jobq demo crash` in a folder and a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jobq", "demo", "crash"],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read_until(self, words: str) -> str:
        """Read the output up to the line that holds the words, and return that line."""
        assert self.process.stdout is not None
        line = next((line for line in self.process.stdout if words in line), None)
        assert line is not None, f"the demo ended without {words!r}: {self.process.communicate()}"
        return line

    def is_gone(self) -> bool:
        """Whether no process of the demo is left."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """Start the demo; end what is left of it."""
    demo = Demo(tmp_path)
    yield demo
    if not demo.is_gone():
        os.killpg(demo.process.pid, signal.SIGKILL)
    demo.process.communicate()


@posix
def test_the_demo_tells_the_crash_and_the_recovery(demo: Demo, tmp_path: Path) -> None:
    """The story, the result, the timeline and the picture; nothing else is left behind."""
    output, errors = demo.process.communicate(timeout=PATIENCE)
    assert (demo.process.returncode, errors) == (0, "")
    story = [line[10:] for line in output.splitlines() if re.match(r" *\d+\.\d\d s  ", line)]
    lines = [re.sub(r"\d{2,}", "N", line) for line in story]
    assert [line for line, _ in groupby(lines)] == [  # how many heartbeats depends on the load
        "a new queue; a worker's lease is 2 s, its heartbeat extends it",
        "w1 started, as process N",
        "asked for: the sales report of N, 1.5 s of work",
        "J1 enqueued",
        "w1 took J1 (attempt 1)",
        "w1 extended its lease on J1",
        "kill -9 N: w1 is gone (SIGKILL)",
        "J1 is running; workers alive: 0",
        "w2 started, as process N",
        "J1's lease ran out; attempt 1 is closed as crashed",
        "w2 took J1 (attempt 2)",
        "w2 extended its lease on J1",
        "w2 finished J1",
        "w2 stopped (exit code 0)",
    ]
    assert "sales of 2025 (invented data): 198,048.90 euro net, 1,864 orders; 2 attempts" in output
    assert re.search(r"^w1 +\[J1#1=.*X\.+C$", output, re.MULTILINE)
    assert output.endswith("\nprocesses left running: 0\npicture: crash.png\n")
    assert (tmp_path / "crash.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crash.png", "tmp"]
    assert list(demo.temporary.iterdir()) == []
    assert demo.is_gone()


@posix
@pytest.mark.parametrize("moment", ["a new queue", "w1 took J1", "workers alive: 0"])
def test_ctrl_c_leaves_nothing(demo: Demo, moment: str) -> None:
    """Interrupted at any moment, the demo ends its workers, says so in a line, and exits 130."""
    demo.read_until(moment)
    os.killpg(demo.process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, errors = demo.process.communicate(timeout=PATIENCE)
    assert demo.process.returncode == 130
    assert errors.strip() == "jobq: interrupted"
    assert demo.is_gone()
    assert list(demo.temporary.iterdir()) == []


@posix
def test_a_killed_demo_leaves_no_process(demo: Demo) -> None:
    """Also when the demo itself is killed, its worker ends."""
    demo.read_until("w1 took J1")
    demo.process.kill()
    demo.process.communicate(timeout=PATIENCE)
    wait_until(demo.is_gone, "the demo's worker to end")


def test_without_matplotlib_the_demo_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain install has no matplotlib: the last line is the mend for the picture."""
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    line = _picture(build((), name_job=str, name_worker=str), tmp_path / "crash.png")
    assert line.startswith("no picture: a picture needs matplotlib")
    assert line.endswith("pip install 'jobq[course]'")


def test_a_picture_of_somebody_else_is_kept(tmp_path: Path) -> None:
    """A crash.png that is not the demo's stays as it is, and the last line says so."""
    path = tmp_path / "crash.png"
    path.write_bytes(b"a holiday")
    assert "move it away" in _picture(build((), name_job=str, name_worker=str), path)
    assert path.read_bytes() == b"a holiday"


def test_a_late_recovery_is_no_success() -> None:
    """The demo claims what it measured: a job that ran again too late is an error."""
    with Lab(poll=0.01) as lab:
        job = lab.enqueue("noop", {})
        first = lab.store.claim("w1", 0.01)
        assert first is not None
        late = (first.locked_until or 0.0) + 2 * lab.poll
        lab.wait_until(lambda: lab.store.now() > late, "a time that is too late")
        lab.store.claim("w2", 30.0)
        run = _Crash(job, "w1", first.created_at, "w2", first.created_at)
        with pytest.raises(LabError, match=r"after the lease of w1 ran out.*Too late"):
            _judgement(lab, run)
