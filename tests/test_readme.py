import doctest
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = ROOT / ".ci" / "run"

PROGRAMS = Path(sys.executable).parent  # where jobq is installed
SET_UP = "python3 -m venv .venv"  # begins a command line for a fresh machine
SECONDS = 60.0
PORT = "8718"  # in the README; a free one here

# What differs from run to run, and how it is written for a comparison.
DIFFERS = [
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"\b(took|finished|failed|lost|released) [0-9a-f]{8}\b", r"\1 ID"),
    (r"(?m)^[0-9a-f]{8}(?=  )", "ID"),  # in the table of `jobq list`
    (r"\bworker-\d+(-\w+)?", "worker-N"),
    (r"\b(localhost|127\.0\.0\.1):\d+", r"\1:PORT"),
    (r"\b\d+(\.\d+)? (s|seconds)\b", "N s"),
    (r"(?mi)^date: .*$", "date: …"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"(?mi)^content-length: \d+$", "content-length: …"),  # a port has four digits or five
    (r"(?m)^\[\d+\] \d+$", "[job] pid"),
    (r"(?m)^bash: line \d+: +\d+ Killed .*\n", ""),  # what a shell without a terminal adds
]
COMPARE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE  # `...` stands for any text


def blocks(markdown: str, language: str) -> list[tuple[str, str]]:
    """Return the fenced blocks in a language, each with the block of text that follows it."""
    fence = rf"^```{language}\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?"
    found = re.finditer(fence, markdown, re.DOTALL | re.MULTILINE)
    return [(m[1], m[2] or "") for m in found]


def session(block: str) -> tuple[str, str]:
    """Return the commands of a console block (after `$ `, going on after `> `) and its output."""
    commands = re.findall(r"^[$>](?: (.*))?$", block, re.MULTILINE)
    output = [line for line in block.splitlines() if not re.match(r"[$>]( |$)", line)]
    return "\n".join(commands), "\n".join(output)


def same(text: str) -> str:
    """Return the text without what differs from run to run."""
    for pattern, instead in DIFFERS:
        text = re.sub(pattern, instead, text)
    return text.strip() + "\n"


def difference(want: str, got: str) -> str:
    """Return how an output differs from what the README shows; nothing if it does not."""
    checker = doctest.OutputChecker()
    if checker.check_output(same(want), same(got), COMPARE):
        return ""
    return checker.output_difference(doctest.Example("", same(want)), same(got), COMPARE)


def run(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a program to its end, then end all that it left running; return code and output."""
    output = folder / "output.of.block"
    environment = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(SECONDS)
        finally:
            end_group(process.pid)
            process.wait()
    return process.returncode, output.read_text(encoding="utf-8")


def end_group(group: int) -> None:
    """Kill every process of a group, if there is still one."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def free_port() -> str:
    """Return a port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def set_up_lines(markdown: str) -> list[str]:
    """Return the command lines that a fresh machine is set up with."""
    return [line for line in markdown.splitlines() if line.startswith(SET_UP)]


needs_bash = pytest.mark.skipif(sys.platform == "win32", reason="the console blocks are for bash")


@pytest.mark.parametrize(("program", "want"), blocks(README, "python"))
def test_python_block_runs(program: str, want: str, tmp_path: Path) -> None:
    """A program of the README runs in an empty folder and prints what the README shows."""
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    code, got = run([sys.executable, str(file)], tmp_path)
    assert code == 0, got
    found = difference(want, got)
    assert found == "", found


@needs_bash
@pytest.mark.parametrize("block", [block for block, _ in blocks(README, "console")])
def test_console_block_runs(block: str, tmp_path: Path) -> None:
    """A session of the README, in one shell in an empty folder, prints what the README shows."""
    commands, want = session(block)
    port = free_port()
    code, got = run(["bash", "-e", "-c", commands.replace(PORT, port)], tmp_path)
    assert code == 0, got
    found = difference(want, got.replace(port, PORT))
    assert found == "", found


def test_every_block_is_run() -> None:
    """The README holds programs, sessions and set-up lines, and no block that nobody runs."""
    fences = set(re.findall(r"^```(.*)$", README, re.MULTILINE)) - {""}
    assert fences - {"text"} == {"bash", "console", "python"}
    lines = [line for block, _ in blocks(README, "bash") for line in block.splitlines()]
    assert lines == set_up_lines(README)


def test_every_link_leads_somewhere() -> None:
    """Pictures and links to files are there, in a fresh clone too."""
    links = re.findall(r"\]\((?!\w+:|#)([^)#]+)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_one_line_runs_the_tests() -> None:
    """The README has one command line for the tests; .ci/run looks for it."""
    assert [line.endswith("pytest") for line in set_up_lines(README)].count(True) == 1


def ci_with(readme: str, folder: Path) -> tuple[int, str]:
    """Run .ci/run in a folder that holds nothing beside it but a README."""
    (folder / ".ci").mkdir()
    shutil.copy(CI, folder / ".ci")
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return run([str(folder / ".ci" / "run")], folder)


@needs_bash
def test_ci_runs_the_line_of_the_readme(tmp_path: Path) -> None:
    """.ci/run runs that line to its end, and nothing else."""
    assert ci_with(f"Tests:\n\n{SET_UP} --help | head -c 5 && echo pytest\n", tmp_path) == (
        0,
        "usagepytest\n",
    )


@needs_bash
@pytest.mark.parametrize("readme", ["no line\n", f"{SET_UP} --help && false pytest\n"])
def test_ci_fails_with_the_line(readme: str, tmp_path: Path) -> None:
    """.ci/run fails if the line does, or if there is none."""
    code, _ = ci_with(readme, tmp_path)
    assert code == 1


@needs_bash
@pytest.mark.parametrize("line", set_up_lines(README))
def test_line_for_a_fresh_machine_works(line: str, tmp_path: Path) -> None:
    """It installs with the tested versions, and its jobq commands work as installed here."""
    venv, install, *rest = line.split(" && ")
    assert venv == SET_UP
    assert install.startswith(".venv/bin/pip install ")
    assert "--constraint constraints.txt" in install
    for command in rest:
        if command.startswith(".venv/bin/jobq "):
            code, got = run(["bash", "-e", "-c", command.removeprefix(".venv/bin/")], tmp_path)
            assert code == 0, got


@needs_bash
def test_a_session_is_compared(tmp_path: Path) -> None:
    """Other output than shown is found; ids and worker names may differ; `...` skips lines."""
    block = (
        "$ echo worker-12 took 0123abcd attempt 1\n$ echo a \\\n> b\nworker-7 took 89abcdef {}\n"
    )
    commands, want = session(block)
    code, got = run(["bash", "-e", "-c", commands], tmp_path)
    assert code == 0
    assert difference(want.format("attempt 1\na b"), got) == ""
    assert difference(want.format("..."), got) == ""
    assert "attempt 2" in difference(want.format("attempt 2\na b"), got)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not collected yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@needs_bash
def test_a_session_leaves_nothing_running(tmp_path: Path) -> None:
    """What a block starts in the background ends with the block."""
    code, got = run(["bash", "-e", "-c", "sleep 60 & echo $!"], tmp_path)
    assert code == 0
    deadline = time.monotonic() + SECONDS
    while alive(int(got)):
        assert time.monotonic() < deadline, "waited for the process in the background to end"
