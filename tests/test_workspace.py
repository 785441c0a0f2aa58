"""jobq.lab.workspace and jobq.lab.jupyter: the learner's copy of the notebooks, and JupyterLab."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobq.errors import LabError
from jobq.lab import jupyter, workspace
from jobq.lab.waiting import wait_until
from jobq.lab.workspace import prepare, reset

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")

PATIENCE = 60.0  # seconds for JupyterLab to end

LAUNCH = """
import sys
from pathlib import Path
from jobq.lab.jupyter import launch
sys.exit(launch(Path(sys.argv[1]), port=0, browser=False))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder of two notebooks, and things that are none of the learner's business."""
    folder = tmp_path / "notebooks"
    (folder / ".ipynb_checkpoints").mkdir(parents=True)
    (folder / ".ipynb_checkpoints" / "old.ipynb").write_text("old")
    (folder / "00.ipynb").write_text("first")
    (folder / "04.ipynb").write_text("second")
    return folder


@pytest.fixture
def target(tmp_path: Path, source: Path) -> Path:
    """Return a working copy of `source`."""
    folder = tmp_path / "jobq-course"
    prepare(source, folder)
    return folder


def contents(folder: Path) -> dict[str, str]:
    """Return what can be seen in a folder."""
    return {p.name: p.read_text() for p in folder.iterdir() if not p.name.startswith(".")}


def refuse(question: str) -> bool:
    """Fail the test: nothing was to be asked."""
    pytest.fail(f"asked {question!r}")


def test_the_notebooks_are_copied(source: Path, tmp_path: Path) -> None:
    """A new working copy holds every notebook, and nothing hidden."""
    prepared = prepare(source, tmp_path / "new" / "course")
    assert (prepared.fresh, prepared.kept) == (("00.ipynb", "04.ipynb"), ())
    assert contents(tmp_path / "new" / "course") == {"00.ipynb": "first", "04.ipynb": "second"}


def test_what_the_learner_changed_is_kept(source: Path, target: Path) -> None:
    """A later start refreshes the untouched notebooks alone, and makes deleted ones anew."""
    (target / "00.ipynb").write_text("my answers")
    (source / "00.ipynb").write_text("first, improved")
    (source / "04.ipynb").write_text("second, improved")
    (source / "07.ipynb").write_text("new")
    prepared = prepare(source, target)
    assert (prepared.fresh, prepared.kept) == (("04.ipynb", "07.ipynb"), ("00.ipynb",))
    assert contents(target) == {
        "00.ipynb": "my answers",
        "04.ipynb": "second, improved",
        "07.ipynb": "new",
    }
    (target / "04.ipynb").unlink()
    prepare(source, target)
    assert contents(target)["04.ipynb"] == "second, improved"


def test_a_file_of_the_same_name_is_kept(source: Path, target: Path) -> None:
    """A learner's own notebook is not overwritten by a later original that is called the same."""
    (target / "07.ipynb").write_text("mine")
    (source / "07.ipynb").write_text("new")
    assert prepare(source, target).kept == ("07.ipynb",)
    assert contents(target)["07.ipynb"] == "mine"


def test_a_copy_cut_short_is_completed(source: Path, target: Path) -> None:
    """After an interruption the next start takes what was copied for what it is."""
    (target / workspace.MANIFEST).write_text("{}")
    (target / "04.ipynb").unlink()
    assert prepare(source, target).fresh == ("00.ipynb", "04.ipynb")


def test_a_folder_with_other_things_is_refused(source: Path, tmp_path: Path) -> None:
    """Notebooks are not strewn among somebody's files; an empty folder is welcome."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    prepare(source, folder)
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_text("cat")
    with pytest.raises(LabError, match="photos is no copy of the course, and not empty"):
        prepare(source, other)
    assert contents(other) == {"cat.jpg": "cat"}


def test_no_notebooks_is_an_error(tmp_path: Path) -> None:
    """An installation without notebooks is named for what it is."""
    with pytest.raises(LabError, match="holds no notebooks"):
        prepare(tmp_path / "missing", tmp_path / "course")
    assert not (tmp_path / "course").exists()


def test_a_damaged_manifest_is_an_error(source: Path, target: Path) -> None:
    """Without knowing what was copied, nothing is overwritten."""
    (target / workspace.MANIFEST).write_text("{")
    with pytest.raises(LabError, match="is damaged"):
        prepare(source, target)


def test_reset_asks_and_says_what_would_be_lost(target: Path) -> None:
    """The question names the learner's own files; after a no, everything is as it was."""
    (target / "00.ipynb").write_text("my answers")
    (target / "notes.txt").write_text("mine")
    question = f"delete {target}, with 2 of your own or changed: 00.ipynb, notes.txt?"
    assert not reset(target, lambda asked: asked != question)
    assert contents(target)["00.ipynb"] == "my answers"


def test_reset_deletes_after_a_yes(source: Path, target: Path) -> None:
    """After a yes the working copy is gone, and the next start makes a new one."""
    (target / "00.ipynb").write_text("my answers")
    assert reset(target, lambda _: True)
    assert not target.exists()
    prepare(source, target)
    assert contents(target)["00.ipynb"] == "first"


def test_reset_of_nothing_needs_no_question(tmp_path: Path) -> None:
    """What is not there is not asked about."""
    assert reset(tmp_path / "jobq-course", refuse)


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_reset_refuses_what_it_did_not_make(tmp_path: Path, target: Path, kind: str) -> None:
    """A folder without the manifest, or a link to one with it, is never deleted."""
    other = tmp_path / "photos"
    if kind == "folder":
        other.mkdir()
    else:
        other.symlink_to(target, target_is_directory=True)
    with pytest.raises(LabError, match="photos is no copy of the course, so it is not deleted"):
        reset(other, refuse)
    assert other.exists()
    assert contents(target) != {}


def test_the_originals_are_found() -> None:
    """In a checkout, and installed, there is a folder of notebooks."""
    assert workspace.source_notebooks().is_dir()


def test_without_jupyterlab_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain install has no JupyterLab: the error names the mend."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "jupyterlab", raising=False)
    with pytest.raises(LabError, match=r"pip install 'jobq\[course\]'"):
        jupyter.launch(tmp_path)


def page(url: str) -> str:
    """Return JupyterLab's page; nothing as long as the server does not answer."""
    try:
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own server's
            return str(answer.read(), "utf-8")
    except urllib.error.URLError:
        return ""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start JupyterLab as `jobq lab` does, in a process group of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(tmp_path)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        yield server
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)


@posix
def test_jupyterlab_serves_the_folder_quietly_and_ends_with_ctrl_c(
    server: subprocess.Popen[str],
) -> None:
    """It listens on loopback with a token and asks for no news; one Ctrl-C ends it all."""
    assert server.stderr is not None
    url = next(line for line in server.stderr if "http://127.0.0.1" in line).split()[-1]
    assert "token=" in url
    wait_until(lambda: page(url), "JupyterLab to answer")
    config = re.search(r'id="jupyter-config-data".*?>(.*?)</script>', page(url), re.DOTALL)
    assert config is not None
    disabled = json.loads(config[1])["disabledExtensions"]
    assert "@jupyterlab/apputils-extension:announcements" in disabled
    os.killpg(server.pid, signal.SIGINT)  # as a terminal does
    server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(server.pid, 0)


@posix
def test_sigterm_ends_jupyterlab_too(server: subprocess.Popen[str]) -> None:
    """Who ends `jobq lab` with `kill` leaves no server behind."""
    assert server.stderr is not None
    server.stderr.readline()  # JupyterLab says the first thing
    server.terminate()
    server.communicate(timeout=PATIENCE)
    with pytest.raises(ProcessLookupError):
        os.killpg(server.pid, 0)
