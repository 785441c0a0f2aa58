import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner, Result

import jobq
from jobq.cli import app
from jobq.lab import workspace

PATIENCE = 60.0  # seconds for a process to answer or to end

unix_only = pytest.mark.skipif(sys.platform == "win32", reason="these signals are POSIX's")


@pytest.fixture(autouse=True)
def _fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command runs in an empty folder, with no settings and a terminal of 80 columns."""
    for name in [n for n in os.environ if n.startswith("JOBQ_")] + ["LEASE_SECONDS"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", sys.path.copy())  # --import adds to it
    monkeypatch.chdir(tmp_path)


def run(*words: str, answer: str | None = None) -> Result:
    """Run a command in this process; it reads the answer from its standard input."""
    return CliRunner().invoke(app, words, input=answer, prog_name="jobq")


def printed(*words: str) -> str:
    """Run a command that must succeed, and return what it printed."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start commands as processes of their own; what hangs, or runs at the end, is killed."""
    started: list[subprocess.Popen[str]] = []
    # A shell's job in the background ignores Ctrl-C, and so do all that it starts. Not these.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def start(*words: str, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-m", "jobq", *words]
        child = subprocess.Popen(command, encoding="utf-8", **{**pipes, **options})
        started.append(child)
        watchdog = threading.Timer(PATIENCE, child.kill)
        watchdog.daemon = True
        watchdog.start()
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()
    signal.signal(signal.SIGINT, before)


def hear(child: subprocess.Popen[str], words: str, stream: str = "stdout") -> str:
    """Return the line with these words, once the process has printed it."""
    for line in getattr(child, stream):
        if words in line:
            return str(line)
    pytest.fail(f"the process ended, or hung for {PATIENCE:g} s, before it printed {words!r}")


def free_port() -> str:
    """Return a port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


# ── help ─────────────────────────────────────────────────────────────────────────────────────────


def commands(command: Any, *words: str) -> dict[tuple[str, ...], Any]:
    """Return every command by the words that name it."""
    found = {words: command}
    for name, child in getattr(command, "commands", {}).items():
        found |= commands(child, *words, name)
    return found


COMMANDS = commands(typer.main.get_command(app))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "jobq")
def test_help_tells_of_every_option(words: tuple[str, ...]) -> None:
    """A command's help says what it does and names each option; its lines fit 80 columns."""
    text = printed(*words, "--help")
    shown = [p for p in COMMANDS[words].params if not p.hidden]
    assert [
        o for p in shown if p.param_type_name == "option" for o in p.opts if o not in text
    ] == []
    assert [p.name for p in shown if p.name != "help" and not p.help] == []
    assert [
        line for line in text.splitlines() if len(line) > 80 or re.search(r"\w\.{3}$", line)
    ] == []


def test_commands_are_those_we_know() -> None:
    """A new command is put into the tests, too."""
    names = {" ".join(words) for words in COMMANDS}
    assert names == {
        *("", "serve", "worker", "enqueue", "show", "list", "lab"),
        *("demo", "demo crash"),
    }


def test_version_is_the_package_s() -> None:
    """`jobq --version` prints name and version."""
    assert printed("--version") == f"jobq {version('jobq')}\n"


# ── enqueue, list, show ──────────────────────────────────────────────────────────────────────────


def test_enqueue_prints_the_id_alone() -> None:
    """A script can take the id from stdout, and the job is in the store."""
    job_id = printed("enqueue", "nap", '{"seconds": 0}', "--max-attempts", "5", "--priority", "2")
    with closing(jobq.open_store("jobs.db")) as store:
        job = store.get(job_id.strip())
    assert job is not None
    assert (job.kind, job.payload, job.max_attempts, job.priority) == ("nap", {"seconds": 0}, 5, 2)


def test_enqueue_with_a_key_makes_one_job() -> None:
    """The same key gives the same id, and stderr says that nothing was made."""
    first = run("enqueue", "noop", "--key", "k1")
    again = run("enqueue", "noop", "--key", "k1")
    assert first.stdout == again.stdout
    assert first.stderr == ""
    assert "made before" in again.stderr


def test_enqueue_in_a_while() -> None:
    """`--in` is a wait from now until the first attempt."""
    job = json.loads(printed("enqueue", "noop", "--in", "3600", "--json"))["job"]
    assert job["run_after"] == pytest.approx(time.time() + 3600, abs=60)


def test_unknown_kind_needs_a_word() -> None:
    """A kind that no handler here knows is taken with `--any-kind` alone."""
    refused = run("enqueue", "mail")
    assert refused.exit_code == 2
    assert "nap, noop, sales_report" in refused.stderr
    assert not Path("jobs.db").exists()
    assert len(printed("enqueue", "mail", "--any-kind").strip()) == 32


def test_list_fits_a_terminal() -> None:
    """A line stands for a job, newest first; nothing in it breaks a line or the screen."""
    printed("enqueue", "noop")
    printed("enqueue", "k" * 200, "--any-kind")
    printed("enqueue", "two\nlines\x1b[2J", "--any-kind")
    lines = printed("list").splitlines()
    assert lines[0].startswith("ID ")
    assert [line.split("s  ", 1)[1][:12] for line in lines[1:]] == [
        "two\\nlines\\x",
        "k" * 12,
        "noop",
    ]
    assert max(map(len, lines)) == 80
    assert "\x1b" not in "".join(lines)


def test_list_chooses() -> None:
    """`--status`, `--kind` and `--limit` narrow the list down; an empty one is said in words."""
    for _ in range(3):
        printed("enqueue", "noop")
    printed("enqueue", "nap")
    assert len(printed("list", "--kind", "noop", "--limit", "2").splitlines()) == 3
    assert len(printed("list", "--status", "queued").splitlines()) == 5
    assert printed("list", "--status", "failed") == "no such jobs\n"
    assert json.loads(printed("list", "--status", "failed", "--json")) == []


def test_list_of_an_empty_store_says_what_to_do() -> None:
    """Where no job was ever made the list names the command that makes one."""
    jobq.open_store("jobs.db").close()
    assert "jobq enqueue" in printed("list")


@pytest.mark.parametrize("words", [["list"], ["show", "12345678"]])
def test_looking_makes_no_store(words: list[str]) -> None:
    """A look where nothing is leaves nothing there, and says so."""
    result = run(*words)
    assert result.exit_code == 1
    assert "there is no store at sqlite:///jobs.db" in result.stderr
    assert list(Path().iterdir()) == []


@pytest.fixture
def failing_job() -> str:
    """Return the id of a job that failed once, with an error in an awkward text, and then ended."""
    now = 1_000_000.0
    with closing(jobq.open_store("jobs.db", clock=lambda: now)) as store:
        store.enqueue("nap", {"seconds": 1})
        job = store.claim("worker-1")
        assert job is not None
        store.fail(job, "mailbox \u2709\x1b[31m full")
        now += 2
        job = store.claim("worker-2")
        assert job is not None
        return store.finish(job, {"slept_seconds": 1}).id


def test_show_tells_the_story(failing_job: str) -> None:
    """The events stand in plain words with seconds since the first; the workers have lanes."""
    text = printed("show", failing_job[:4])
    assert f"job {failing_job}" in text
    assert "status   done, 2 of 3 attempts" in text
    assert 'result   {"slept_seconds": 1}' in text
    assert re.search(r"0\.00 s .*enqueued", text)
    assert re.search(r"0\.00 s .*worker-1 failed .*mailbox ✉\\x1b\[31m full", text)
    assert re.search(r"2\.00 s .*worker-2 finished", text)
    assert re.search(r"^worker-2 +\S*D$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_show_as_json_holds_all(failing_job: str) -> None:
    """`--json` gives the job with its attempts and events, and nothing else."""
    story = json.loads(printed("show", failing_job, "--json"))
    assert story["job"]["id"] == failing_job
    assert [attempt["outcome"] for attempt in story["attempts"]] == ["failed", "done"]
    assert [event["name"] for event in story["events"]] == [
        *("enqueued", "claimed", "failed", "claimed", "done"),
    ]


def test_show_wants_an_id_that_names_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beginning that is short, of no job, or of several, is refused; those are listed."""
    ids = [uuid.UUID(int=number) for number in (1, 2)]
    monkeypatch.setattr(uuid, "uuid4", iter(ids).__next__)
    printed("enqueue", "noop")
    printed("enqueue", "noop")
    several = run("show", "0000")
    assert several.exit_code == 2
    assert all(job_id.hex in several.stderr for job_id in ids)
    assert run("show", "000").exit_code == 2
    assert run("show", "0001").exit_code == 1
    assert printed("show", ids[0].hex).startswith(f"job {ids[0].hex}")


# ── demo, lab ────────────────────────────────────────────────────────────────────────────────────


@unix_only
def test_ctrl_c_ends_the_demo(process: Callable[..., subprocess.Popen[str]]) -> None:
    """An interrupted demonstration says so in a line and leaves no process and no file."""
    demo = process("demo", "crash")
    hear(demo, "w1 took J1")
    workers = psutil.Process(demo.pid).children(recursive=True)
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, errors) == (130, "jobq: interrupted\n")
    assert [worker for worker in workers if worker.is_running()] == []
    assert list(Path().iterdir()) == []


def test_lab_asks_before_it_deletes() -> None:
    """Without a yes, `--reset` leaves the learner's work, and opens nothing."""
    Path("course").mkdir()
    Path("course/one.ipynb").write_text("{}")
    workspace.prepare(Path("course"), Path("mine"))
    Path("mine/one.ipynb").write_text("my answers")
    result = run("lab", "--reset", "--folder", "mine", answer="n\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "delete mine" in result.stdout
    assert result.stdout.endswith("nothing was changed\n")
    assert Path("mine/one.ipynb").read_text() == "my answers"


def test_lab_keeps_out_of_other_folders() -> None:
    """A folder with other things in it is neither filled nor deleted, with `--yes` either."""
    Path("thesis.txt").write_text("all my work")
    assert run("lab", "--folder", ".").exit_code == 1
    assert run("lab", "--folder", ".", "--reset", "--yes").exit_code == 1
    assert [path.name for path in Path().iterdir()] == ["thesis.txt"]


# ── errors: a line and a code ────────────────────────────────────────────────────────────────────


@pytest.fixture
def _bad_files() -> None:
    """Lay out the files that the bad inputs name."""
    Path("bad").mkdir()
    with closing(sqlite3.connect("bad/foreign.db")) as foreign:
        foreign.execute("CREATE TABLE songs (title TEXT)")
    Path("bad/notes.txt").write_text("These are notes, and no database at all.\n" * 100)
    jobq.open_store("jobs.db").close()
    jobq.open_store("bad/newer.db").close()
    with closing(sqlite3.connect("bad/newer.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    Path("bad/broken.py").write_text("def unfinished(:\n")


BAD = {
    # what was asked for wrongly
    "list --url mysql://localhost/jobs": (2, "mysql://"),
    "list --url sqlite://jobs.db": (2, "sqlite:///relative.db"),
    "list --limit 0": (2, "limit is 0"),
    "list --status lost": (2, "queued"),
    "worker --lease -1": (2, "lease_seconds is -1.0"),
    "worker --lease nan": (2, "lease_seconds is nan"),
    "worker --grace inf": (2, "grace_seconds is inf"),
    "worker --poll 0": (2, "poll_seconds is 0.0"),
    "worker --import no_such_module": (2, "ModuleNotFoundError"),
    "worker --import bad.broken": (2, "SyntaxError"),
    "serve --port 99999": (2, "port is 99999"),
    "enqueue nap {seconds:1}": (2, "(character 2)"),
    "enqueue nap [1]": (2, "payload is a list"),
    'enqueue nap {"seconds":NaN}': (2, "payload.seconds is nan"),
    f"enqueue nap {'[' * 100_000}": (2, "too much for a JSON reader"),
    f"enqueue nap {'9' * 5_000}": (2, "too much for a JSON reader"),
    "enqueue noop --in -1": (2, "--in is -1"),
    "enqueue noop --in nan": (2, "--in is nan"),
    "enqueue noop --priority 5000": (2, "priority is 5000"),
    "enqueue noop --max-attempts 0": (2, "max_attempts is 0"),
    f"enqueue noop --key {'k' * 300}": (2, "300 characters"),
    "enqueue": (2, "Missing argument"),
    "show --url jobs.db": (2, "Missing argument"),
    "fly": (2, "No such command"),
    "list --sideways": (2, "No such option"),
    # what could not be done
    "enqueue noop --url sqlite:///none/jobs.db": (1, "the folder none does not exist"),
    "list --url sqlite:///bad": (1, "bad"),
    "list --url sqlite:///bad/notes.txt": (1, "is not a jobq store"),
    "list --url sqlite:///bad/foreign.db": (1, "is not a jobq store"),
    "worker --url sqlite:///bad/foreign.db": (1, "is not a jobq store"),
    "worker --url bad/newer.db": (1, "schema 99"),
    "serve --url sqlite:///bad/notes.txt --port PORT": (1, "is not a jobq store"),
    "serve --host no-such-host.invalid": (1, "cannot listen on no-such-host.invalid"),
    "serve --host 203.0.113.1": (1, "cannot listen on 203.0.113.1"),
}


@pytest.mark.usefixtures("_bad_files")
@pytest.mark.parametrize("words", BAD, ids=lambda words: words[:45])
def test_bad_input_is_one_line(words: str) -> None:
    """Each ends with a line on stderr that says what is wrong, a code, and no traceback."""
    code, message = BAD[words]
    result = run(*words.replace("PORT", free_port()).split())
    lines = result.stderr.splitlines()
    assert result.exit_code == code
    assert result.stdout == ""
    assert message in lines[-1]
    assert len(lines) == 1 or lines[0].startswith("Usage: ")
    assert "Traceback" not in result.stderr


def test_every_faulty_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults in the environment are all told at once, each on a line."""
    monkeypatch.setenv("JOBQ_PORT", "many")
    monkeypatch.setenv("LEASE_SECONDS", "-2")
    monkeypatch.setenv("JOBQ_URLL", "sqlite:///x.db")
    result = run("enqueue", "noop")
    assert result.exit_code == 2
    lines = sorted(result.stderr.splitlines())
    assert [line.split()[:2] for line in lines] == [
        ["jobq:", "JOBQ_PORT"],
        ["jobq:", "JOBQ_URLL"],
        ["jobq:", "LEASE_SECONDS"],
    ]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_unreadable_file_is_one_line() -> None:
    """A store that this user may not read is named, with the mend."""
    jobq.open_store("jobs.db").close()
    Path("jobs.db").chmod(0)
    result = run("list")
    assert result.exit_code == 1
    assert "readable and writable" in result.stderr


def test_port_in_use_is_one_line() -> None:
    """The port is tried before anything else, and the mend is named; no store is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("serve", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert "choose another with" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("jobs.db").exists()


def test_a_fault_of_our_own_is_a_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw shows where it came from with `--traceback` alone."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("jobq.cli.jobs.store_for", broken)
    result = run("enqueue", "noop")
    assert result.exit_code == 1
    assert result.stderr.startswith("jobq: a fault of jobq's own, ZeroDivisionError: by zero;")
    assert isinstance(run("--traceback", "enqueue", "noop").exception, ZeroDivisionError)


# ── processes: signals and streams ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("word", "code"), [("fly", 2), ("list", 1), ("--version", 0)])
def test_exit_code_reaches_the_shell(
    process: Callable[..., subprocess.Popen[str]], word: str, code: int
) -> None:
    """A real process ends with the code, and without a traceback."""
    child = process(word)
    _, errors = child.communicate(timeout=PATIENCE)
    assert child.returncode == code
    assert "Traceback" not in errors


@unix_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_worker_stops_cleanly(
    process: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    """SIGTERM and Ctrl-C end an idle worker with code 0."""
    worker = process("worker")
    hear(worker, "started")
    worker.send_signal(number)
    output, errors = worker.communicate(timeout=PATIENCE)
    assert output.endswith("stopped cleanly\n")
    assert (worker.returncode, errors) == (0, "")


def test_worker_runs_until_idle_with_handlers_of_its_own(
    process: Callable[..., subprocess.Popen[str]],
) -> None:
    """`--import` takes a module of the current folder; `--until-idle` ends when all is done."""
    Path("tasks.py").write_text(
        "import jobq.handlers\n"
        "@jobq.handlers.handler('greet')\n"
        "def greet(payload, context):\n"
        "    return 'hello ' + payload['name']\n"
    )
    job_id = printed("enqueue", "greet", '{"name": "Ann"}', "--any-kind").strip()
    worker = process("worker", "--import", "tasks", "--until-idle")
    assert worker.communicate(timeout=PATIENCE)[1] == ""
    assert worker.returncode == 0
    assert json.loads(printed("show", job_id, "--json"))["job"]["result"] == "hello Ann"


def test_traceback_shows_where_a_handler_raised(
    process: Callable[..., subprocess.Popen[str]],
) -> None:
    """Whoever writes a handler sees the line; the worker's own lines stay as they are."""
    Path("tasks.py").write_text(
        "import jobq\n@jobq.handler('trip')\ndef trip(payload, context):\n    1 / 0\n"
    )
    for words, shown in (["--traceback"], True), ([], False):
        printed("enqueue", "trip", "--any-kind", "--max-attempts", "1")
        worker = process(*words, "worker", "--import", "tasks", "--until-idle")
        output, errors = worker.communicate(timeout=PATIENCE)
        assert "ZeroDivisionError: division by zero\n" in output
        assert "Traceback" not in output
        assert ('tasks.py", line 4, in trip' in errors) is shown


@unix_only
def test_ctrl_c_ends_the_server(process: Callable[..., subprocess.Popen[str]]) -> None:
    """The server answers, Ctrl-C ends it with code 130, and its port is free again."""
    port = free_port()
    server = process("serve", "--port", port)
    assert f"http://127.0.0.1:{port} " in hear(server, "api listens on", "stderr")
    hear(server, "startup complete", "stderr")
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=PATIENCE)
    assert server.returncode == 130
    assert "Traceback" not in errors
    socket.create_server(("127.0.0.1", int(port))).close()


def test_server_for_others_warns(process: Callable[..., subprocess.Popen[str]]) -> None:
    """Beyond loopback the server says who can reach it."""
    server = process("serve", "--host", "0.0.0.0", "--port", free_port())  # noqa: S104 - that is it
    assert "whoever can reach this port" in hear(server, "warning", "stderr")


@pytest.mark.parametrize("words", [["worker"], ["serve", "--port", "PORT"]])
def test_owned_process_ends_with_its_owner(
    process: Callable[..., subprocess.Popen[str]], words: list[str]
) -> None:
    """With `--owned` the end of standard input ends the process."""
    words = [word.replace("PORT", free_port()) for word in words]
    child = process(*words, "--owned", stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
    hear(child, "started" if "worker" in words else "startup complete")
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 0


@unix_only
def test_a_reader_may_go_away(process: Callable[..., subprocess.Popen[str]]) -> None:
    """`jobq list | head -1` ends quietly."""
    printed("enqueue", "noop")
    child = process("list")
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    assert child.stderr.read() == ""
    assert child.wait(PATIENCE) == 141


def test_output_keeps_to_the_terminal_s_letters(
    process: Callable[..., subprocess.Popen[str]], failing_job: str
) -> None:
    """Where the terminal has no letter for a character, `?` stands for it."""
    child = process("show", failing_job, env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    output, errors = child.communicate(timeout=PATIENCE)
    assert (child.returncode, errors) == (0, "")
    assert "mailbox ?" in output
