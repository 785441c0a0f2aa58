import json
import os
import re
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
import pytest
import typer
from psycopg.sql import SQL, Identifier
from typer.testing import CliRunner, Result

import jobq
from jobq.cli import app
from jobq.handlers import builtin
from jobq.lab import workspace
from jobq.settings import Settings

if TYPE_CHECKING:
    from jobq.lab.pgserver import Server

PATIENCE = 60.0  # seconds for a process to answer or to end

unix_only = pytest.mark.skipif(sys.platform == "win32", reason="these signals are POSIX's")


@pytest.fixture(autouse=True)
def _fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each command runs in an empty folder, with no settings and a terminal of 80 columns.

    What it imports from there is forgotten, and so are the kinds that this registered.
    """
    for name in [n for n in os.environ if n.startswith("JOBQ_")] + ["LEASE_SECONDS"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", sys.path.copy())  # --import adds to it
    monkeypatch.setattr(builtin, "_kinds", builtin._kinds.copy())
    monkeypatch.chdir(tmp_path)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


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
        *("", "serve", "worker", "enqueue", "show", "list", "watch", "stats"),
        *("retry", "cancel", "prune", "settings", "doctor", "demo", "demo crash", "demo scaling"),
        *("lab", "pg", "pg start", "pg stop", "pg url"),
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
    printed("enqueue", "nap", '{"seconds": 1}')
    assert len(printed("list", "--kind", "noop", "--limit", "2").splitlines()) == 3
    assert len(printed("list", "--status", "queued").splitlines()) == 5
    assert printed("list", "--status", "failed") == "no such jobs\n"
    assert json.loads(printed("list", "--status", "failed", "--json")) == []


def test_list_turns_the_page() -> None:
    """`--before` gives the jobs older than one; a full page says so, and the last one does not."""
    ids = [printed("enqueue", "noop").strip() for _ in range(3)][::-1]
    first = run("list", "--limit", "2")
    assert first.stderr == f"older ones: the same with --before {ids[1][:8]}\n"
    rest = run("list", "--limit", "1", "--before", ids[1][:8])
    assert rest.stdout.splitlines()[1].startswith(ids[2][:8])
    assert rest.stderr == ""
    pages = [json.loads(printed("list", "--json", "--before", job_id)) for job_id in ids]
    assert [[job["id"] for job in page] for page in pages] == [ids[1:], ids[2:], []]


def test_list_and_show_tell_how_far_a_job_has_come() -> None:
    """A job that runs stands there with its worker and the progress that it told last."""
    with closing(jobq.open_store("jobs.db")) as store:
        store.enqueue("noop", {})
        job = store.claim("w1")
        assert job is not None
        store.heartbeat(job, 30.0, jobq.Progress(3, 10, "reading\x1b[2J"))
    assert "noop: w1, 3 of 10 reading\\x1b[2J" in printed("list")
    assert "progress 3 of 10 reading\\x1b[2J\n" in printed("show", job.id)


def test_enqueue_holds_the_payload_against_its_kind() -> None:
    """Every fault of the payload is named, and no job is made."""
    result = run("enqueue", "sales_report", '{"year": "2026", "yeer": 2026}')
    assert result.exit_code == 2
    assert "year: Input should be a valid integer" in result.stderr
    assert "yeer: Extra inputs are not permitted" in result.stderr
    assert not Path("jobs.db").exists()


def test_enqueue_knows_the_kinds_of_a_module() -> None:
    """With `--import` a kind of one's own is known, and its payloads are checked too."""
    Path("tasks.py").write_text(
        "import jobq, pydantic\n"
        "class Letter(pydantic.BaseModel):\n"
        "    to: str\n"
        "@jobq.handler('letter', payload=Letter)\n"
        "def letter(payload, context): pass\n"
    )
    letter = ("enqueue", "letter", "--import", "tasks")
    assert run(*letter, "{}").stderr.endswith("to: Field required\n")
    assert len(printed(*letter, '{"to": "Ann"}').strip()) == 32


def test_a_folder_s_own_modules_are_found_when_asked_for_alone() -> None:
    """A file of the current folder takes no library's place in a command without `--import`."""
    Path("rich.py").write_text("raise SystemExit('the wrong one')")
    printed("enqueue", "noop")
    assert str(Path.cwd()) not in sys.path


def test_a_limit_of_sizes_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """JOBQ_MAX_PAYLOAD_BYTES bounds what is enqueued."""
    monkeypatch.setenv("JOBQ_MAX_PAYLOAD_BYTES", "100")
    result = run("enqueue", "noop", json.dumps({"text": "x" * 100}))
    assert result.exit_code == 2
    assert "over the limit of 100" in result.stderr


def test_list_of_an_empty_store_says_what_to_do() -> None:
    """Where no job was ever made the list names the command that makes one."""
    jobq.open_store("jobs.db").close()
    assert "jobq enqueue" in printed("list")


LOOKS = [
    *(["list"], ["show", "12345678"], ["stats"], ["watch"], ["watch", "12345678"]),
    *(["retry", "12345678"], ["retry", "--all"], ["cancel", "12345678"]),
    ["prune", "--older-than", "1d", "--yes"],
]


@pytest.mark.parametrize("words", LOOKS)
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
    ids = [f"{number:032x}" for number in (1, 2)]
    given = iter(ids)
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(given))
    printed("enqueue", "noop")
    printed("enqueue", "noop")
    several = run("show", "0000")
    assert several.exit_code == 2
    assert all(job_id in several.stderr for job_id in ids)
    assert run("show", "000").exit_code == 2
    assert run("show", "0001").exit_code == 1
    assert printed("show", ids[0]).startswith(f"job {ids[0]}")


# ── retry, cancel, prune, stats ──────────────────────────────────────────────────────────────────


def end(kind: str, how: str, *, ago: float = 0.0, key: str | None = None) -> str:
    """Make a job that came to such an end, so many seconds ago, and return its id."""
    with closing(jobq.open_store("jobs.db", clock=lambda: time.time() - ago)) as store:
        job = store.enqueue(kind, {}, key, priority=1_000).job
        claimed = store.claim("w1")
        assert claimed is not None
        assert claimed.id == job.id
        if how == "failed":
            store.fail(claimed, "no luck", final=True)
        elif how == "cancelled":
            store.cancel(job.id)
            store.confirm_cancel(claimed)
        elif how == "done":
            store.finish(claimed, {})
    return job.id


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_retry_queues_a_job_again(how: str) -> None:
    """A failed or cancelled job is queued, and its attempts start over."""
    job_id = end("noop", how)
    assert printed("retry", job_id[:6]) == f"job {job_id[:8]} is queued again\n"
    (job,) = json.loads(printed("list", "--json"))
    assert (job["status"], job["attempts"]) == ("queued", 0)


def test_retry_all_takes_those_that_are_asked_for() -> None:
    """Without more it is every failed job; `--status` and `--kind` choose others."""
    for kind, how in ("noop", "failed"), ("nap", "failed"), ("noop", "cancelled"), ("noop", "done"):
        end(kind, how)
    assert printed("retry", "--all", "--kind", "nap") == "1 job queued again\n"
    assert json.loads(printed("retry", "--all", "--json")) == {"retried": 1}
    assert printed("retry", "--all") == "0 jobs queued again\n"
    assert printed("retry", "--all", "--status", "cancelled") == "1 job queued again\n"
    assert len(json.loads(printed("list", "--status", "queued", "--json"))) == 3


def test_cancel_says_what_became_of_the_job() -> None:
    """A queued job is cancelled at once; of a running one the worker is told."""
    job_id = printed("enqueue", "noop").strip()
    assert printed("cancel", job_id[:4]) == f"job {job_id[:8]} is cancelled\n"
    running = end("noop", "running")
    told = json.loads(printed("cancel", running, "--json"))["job"]
    assert (told["status"], told["cancel_requested"]) == ("running", True)
    assert "the next heartbeat tells w1" in printed("cancel", running)
    assert "status   running, 1 of 3 attempts, to be cancelled" in printed("show", running)


@pytest.mark.parametrize(
    ("verb", "how", "rule"),
    [
        ("cancel", "done", "only a queued or running job can be cancelled"),
        ("cancel", "failed", "only a queued or running job can be cancelled"),
        ("retry", "done", "only a failed or cancelled job can be retried"),
        ("retry", "running", "only a failed or cancelled job can be retried"),
    ],
)
def test_what_the_status_does_not_allow_is_one_line(verb: str, how: str, rule: str) -> None:
    """Code 1, the status and the rule; nothing is changed."""
    job_id = end("noop", how)
    result = run(verb, job_id)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"jobq: job {job_id} is {how}: {rule}\n"


def test_prune_deletes_what_is_old_enough() -> None:
    """Jobs that ended longer ago go, those of another status and younger ones stay."""
    for how, ago in ("done", 7_200.0), ("failed", 7_200.0), ("done", 60.0):
        end("noop", how, ago=ago)
    waiting = printed("enqueue", "noop").strip()
    assert printed("prune", "--older-than", "2h", "--yes") == "2 jobs deleted\n"
    answer = printed("prune", "--older-than", "30s", "--status", "failed", "--yes", "--json")
    assert json.loads(answer) == {"deleted": 0}
    assert printed("prune", "--older-than", "30 s", "--yes") == "1 job deleted\n"
    assert [job["id"] for job in json.loads(printed("list", "--json"))] == [waiting]


def test_prune_keeps_a_key_as_long_as_was_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """JOBQ_KEEP_KEYS_SECONDS is the promise: so long a key gives its job, however old that is."""
    end("noop", "done", ago=3_600.0, key="k1")
    prune = ("prune", "--older-than", "30s", "--yes")
    assert printed(*prune) == "0 jobs deleted\n"
    monkeypatch.setenv("JOBQ_KEEP_KEYS_SECONDS", "60")
    assert printed(*prune) == "1 job deleted\n"


def test_prune_asks_first() -> None:
    """The question names the store and the jobs; without a yes nothing is deleted."""
    end("noop", "done", ago=60.0)
    prune = ("prune", "--older-than", "30s", "--status", "done")
    refused = run(*prune, answer="n\n")
    assert (refused.exit_code, refused.stdout) == (0, " n\n0 jobs deleted\n")
    assert refused.stderr == (
        "delete the done jobs in sqlite:///jobs.db that ended over 30s ago? [y/N]:"
    )
    unanswered = run(*prune, answer="")
    assert unanswered.exit_code == 1
    assert unanswered.stderr.endswith(
        "\njobq: nobody answers, so nothing was done; --yes says yes\n"
    )
    assert run(*prune, answer="y\n").stdout == " y\n1 job deleted\n"


def test_stats_counts_by_kind_and_status() -> None:
    """A line for each kind and one for all, in columns; a kind's name cannot spoil them."""
    for kind, how in ("noop", "failed"), ("noop", "done"), ("k" * 90, "cancelled"):
        end(kind, how)
    end("two\nlines\x1b[2J", "done", ago=3_600.0)
    printed("enqueue", "nap", '{"seconds": 1}')
    table, pace = printed("stats").rstrip().split("\n\n")
    assert [line.split() for line in table.splitlines()] == [
        ["KIND", "QUEUED", "RUNNING", "DONE", "FAILED", "CANCELLED"],
        ["k" * 28 + "…", "0", "0", "0", "0", "1"],
        ["nap", "1", "0", "0", "0", "0"],
        ["noop", "0", "0", "1", "1", "0"],
        ["two\\nlines\\x1b[2J", "0", "0", "1", "0", "0"],
        ["all", "1", "0", "2", "1", "1"],
    ]
    assert {len(line) for line in table.splitlines()} == {80}
    assert re.fullmatch(
        r"the oldest queued job is \d+ s old; 3 jobs ended in the last minute", pace
    )
    counted = json.loads(printed("stats", "--json"))
    assert counted["kinds"]["noop"]["failed"] == 1
    assert counted["finished_last_minute"] == 3


def test_stats_of_an_empty_store() -> None:
    """Where there are no jobs every number is nought."""
    jobq.open_store("jobs.db").close()
    assert "no job waits; 0 jobs ended in the last minute" in printed("stats")


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


def test_settings_tells_where_each_value_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each setting: its variable, the place and the value."""
    monkeypatch.setenv("LEASE_SECONDS", "2")
    Path(".env").write_text("JOBQ_HOST=127.0.0.2\nJOBQ_ISOLATE=yes\n")
    lines = [line.split(maxsplit=2) for line in printed("settings").splitlines()]
    assert lines[0] == ["VARIABLE", "FROM", "VALUE"]
    assert ["LEASE_SECONDS", "environment", "2"] in lines
    assert ["JOBQ_HOST", ".env", "127.0.0.2"] in lines
    assert ["JOBQ_ISOLATE", ".env", "true"] in lines
    assert ["JOBQ_HEARTBEAT_SECONDS", "default", "a third of the lease"] in lines
    assert len(lines) == len(Settings.model_fields) + 1


def test_settings_as_json_has_the_values_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script finds numbers as numbers, and what nobody gave as null."""
    monkeypatch.setenv("JOBQ_PORT", "8000")
    told = json.loads(printed("settings", "--json"))
    assert told["port"] == {"value": 8000, "source": "environment", "variable": "JOBQ_PORT"}
    assert told["heartbeat_seconds"]["value"] is None
    assert told.keys() == Settings.model_fields.keys()


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
    "serve --host 0.0.0.0": (2, "set JOBQ_TOKEN to at least 16"),
    "serve --host ::": (2, "set JOBQ_TOKEN to at least 16"),
    "serve --import bad.broken": (2, "SyntaxError"),
    "enqueue nap {}": (2, "seconds: Field required"),
    "enqueue noop --import no_such_module": (2, "ModuleNotFoundError"),
    "worker --isolate-kind fly": (2, "kind 'fly' is none of "),
    "worker --lease 1 --heartbeat 0.5": (2, "at least 3 heartbeats"),
    "retry": (2, "the ID of a job, or --all"),
    "retry 12345678 --all": (2, "the ID of a job, or --all"),
    "retry 12345678 --kind noop": (2, "leave out the ID"),
    "retry --all --status done": (2, "use failed, cancelled"),
    "prune": (2, "Missing option '--older-than'"),
    "prune --older-than 7": (2, "such as 30s or 7d"),
    "prune --older-than -7d --yes": (2, "such as 30s or 7d"),
    "prune --older-than 7d --status running": (2, "use done, failed, cancelled"),
    "watch 123": (2, "first 4 characters"),
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
    "show 12345678": (1, "no job has the id '12345678'"),
    "watch 12345678": (1, "no job has the id '12345678'"),
    "retry 12345678": (1, "no job has the id '12345678'"),
    "cancel 12345678": (1, "no job has the id '12345678'"),
    "list --before 12345678": (1, "no job has the id '12345678'"),
    "watch --url sqlite:///bad/foreign.db": (1, "is not a jobq store"),
    "enqueue noop --url sqlite:///none/jobs.db": (1, "the folder none does not exist"),
    "list --url sqlite:///bad": (1, "bad"),
    "list --url sqlite:///bad/notes.txt": (1, "is not a jobq store"),
    "list --url sqlite:///bad/foreign.db": (1, "is not a jobq store"),
    "worker --url sqlite:///bad/foreign.db": (1, "is not a jobq store"),
    "worker --url bad/newer.db": (1, "schema 99"),
    "serve --url sqlite:///bad/notes.txt --port PORT": (1, "is not a jobq store"),
    "serve --host no-such-host.invalid": (1, "cannot listen on no-such-host.invalid"),
    "serve --host 203.0.113.1": (2, "host 203.0.113.1 lets others reach the server"),
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


def test_an_address_of_another_machine_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a token the server would listen there, if it were this machine's."""
    monkeypatch.setenv("JOBQ_TOKEN", "correct-horse-battery")
    result = run("serve", "--host", "203.0.113.1")
    assert result.exit_code == 1
    assert "cannot listen on 203.0.113.1" in result.stderr


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


@pytest.mark.parametrize(
    ("options", "apart"),
    [
        (["--isolate"], {"one", "two"}),
        (["--isolate-kind", "two"], {"two"}),
    ],
)
def test_worker_isolates_what_it_is_told_to(
    process: Callable[..., subprocess.Popen[str]], options: list[str], apart: set[str]
) -> None:
    """`--isolate` gives each job a process of its own, `--isolate-kind` those of a kind."""
    Path("tasks.py").write_text(
        "import os, jobq\n"
        "@jobq.handler('one')\n"
        "@jobq.handler('two')\n"
        "def where(payload, context): return os.getpid()\n"
    )
    for kind in ("one", "two"):
        printed("enqueue", kind, "--import", "tasks")
    worker = process("worker", "--import", "tasks", "--until-idle", *options)
    assert worker.communicate(timeout=PATIENCE)[1] == ""
    jobs = json.loads(printed("list", "--json"))
    assert {job["status"] for job in jobs} == {"done"}
    assert {job["kind"] for job in jobs if job["result"] != worker.pid} == apart


def test_an_option_is_stronger_than_the_environment(
    process: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOBQ_ISOLATE is the default of `--isolate`, and `--no-isolate` overrules it."""
    monkeypatch.setenv("JOBQ_ISOLATE", "true")
    Path("tasks.py").write_text(
        "import os, jobq\n@jobq.handler('pid')\ndef pid(payload, context): return os.getpid()\n"
    )
    job_id = printed("enqueue", "pid", "--import", "tasks").strip()
    worker = process("worker", "--import", "tasks", "--until-idle", "--no-isolate")
    assert worker.communicate(timeout=PATIENCE)[1] == ""
    assert json.loads(printed("show", job_id, "--json"))["job"]["result"] == worker.pid


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


def ask(port: str, path: str, **request: Any) -> tuple[int, Any]:
    """Return the status and the JSON document of an answer."""
    address = f"http://127.0.0.1:{port}{path}"
    answer = httpx.request(request.pop("method", "GET"), address, timeout=PATIENCE, **request)
    return answer.status_code, answer.json()


def test_server_takes_jobs_of_a_module_s_kinds(
    process: Callable[..., subprocess.Popen[str]],
) -> None:
    """With `--import` its POST /jobs knows the module's kinds; without it refuses them."""
    Path("tasks.py").write_text(
        "import jobq\n@jobq.handler('greet')\ndef greet(payload, context): pass\n"
    )
    for options, status in (["--import", "tasks"], 202), ([], 422):
        port = free_port()
        server = process("serve", "--port", port, *options)
        hear(server, "startup complete", "stderr")
        job = {"kind": "greet", "payload": {}}
        assert ask(port, "/jobs", method="POST", json=job)[0] == status


def test_server_for_others_warns_and_wants_the_token_of_operators(
    process: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond loopback the server says who can reach it, and operators have to send the token."""
    monkeypatch.setenv("JOBQ_TOKEN", "correct-horse-battery")
    port = free_port()
    server = process("serve", "--host", "0.0.0.0", "--port", port)  # noqa: S104 - that is it
    assert "whoever can reach this port" in hear(server, "warning", "stderr")
    hear(server, "startup complete", "stderr")
    assert ask(port, "/stats")[0] == 401
    right = {"Authorization": "Bearer correct-horse-battery"}
    assert ask(port, "/stats", headers=right)[0] == 200


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


# ── a store on PostgreSQL ─────────────────────────────────────────────────────────────────────────


PASSWORD = "hunter2-of-the-commands"  # noqa: S105 - of a user that each test makes
EVERY = [["enqueue", "noop"], ["worker", "--until-idle"], *LOOKS, ["doctor"], ["settings"]]


@pytest.fixture
def guest(pg_server: "Server", monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Make a user with a schema, name their URL in JOBQ_URL, and return it."""
    name = f"guest_{os.getpid()}"
    with psycopg.connect(pg_server.url(), autocommit=True) as connection:

        def run_sql(*statements: str) -> None:
            for statement in statements:
                connection.execute(SQL(statement).format(Identifier(name), PASSWORD))

        run_sql("CREATE ROLE {} LOGIN PASSWORD {}", "CREATE SCHEMA {0} AUTHORIZATION {0}")
        place = urlsplit(pg_server.url())
        netloc = f"{name}:{PASSWORD}@{place.hostname}:{place.port}"
        url = place._replace(netloc=netloc, query=f"options=-csearch_path%3D{name}").geturl()
        monkeypatch.setenv("JOBQ_URL", url)
        monkeypatch.setenv("JOBQ_PORT", free_port())
        yield url
        run_sql("DROP OWNED BY {}", "DROP ROLE {}")


def lock_out(pg_server: "Server", url: str) -> None:
    """Break the connections of the user, and let it make no others."""
    name = urlsplit(url).username
    assert name is not None
    with psycopg.connect(pg_server.url(), autocommit=True) as connection:
        connection.execute(SQL("ALTER ROLE {} NOLOGIN").format(Identifier(name)))
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = %s",
            [name],
        )


def test_the_commands_work_on_every_engine(
    url: str, monkeypatch: pytest.MonkeyPatch, process: Callable[..., subprocess.Popen[str]]
) -> None:
    """JOBQ_URL is the only thing that changes."""
    monkeypatch.setenv("JOBQ_URL", url)
    monkeypatch.setenv("JOBQ_PORT", free_port())
    done, other = (printed("enqueue", "noop", "--key", key).strip() for key in ("k1", "k2"))
    assert printed("cancel", other[:6]) == f"job {other[:8]} is cancelled\n"
    server = process("serve")
    hear(server, "startup complete", "stderr")
    assert ask(os.environ["JOBQ_PORT"], f"/jobs/{done}")[1]["status"] == "queued"
    worker = process("worker", "--until-idle")
    assert worker.communicate(timeout=PATIENCE)[1] == ""
    assert "finished" in printed("show", done)
    assert "done" in printed("watch", done) + printed("list")
    assert json.loads(printed("stats", "--json"))["counts"]["cancelled"] == 1
    assert printed("retry", other[:6]) == f"job {other[:8]} is queued again\n"
    monkeypatch.setenv("JOBQ_KEEP_KEYS_SECONDS", "0")
    assert printed("prune", "--older-than", "0s", "--yes") == "1 job deleted\n"
    assert "no job is left alone" in " ".join(printed("doctor").split())


@pytest.mark.usefixtures("guest")
@pytest.mark.parametrize("words", LOOKS)
def test_looking_makes_no_store_on_a_server_either(words: list[str], guest: str) -> None:
    """Where the schema has no table there is none, and afterwards there is still none."""
    result = run(*words)
    assert result.exit_code == 1
    assert result.stderr.startswith("jobq: there is no store at postgresql://guest_")
    assert result.stderr.count("\n") == 1
    with psycopg.connect(guest) as connection:
        assert connection.execute("SELECT to_regclass('jobs')").fetchone() == (None,)


@pytest.mark.parametrize("words", [*EVERY[:-1], ["serve"]])
def test_a_server_that_lets_nobody_in_is_one_line(
    guest: str, pg_server: "Server", words: list[str]
) -> None:
    """Each command ends with code 1 and says why; no store, and no password, is in the line."""
    lock_out(pg_server, guest)
    result = run(*words)
    output = result.stdout + result.stderr
    assert result.exit_code == 1
    assert "is not permitted to log in" in " ".join(output.split())
    assert "Traceback" not in output
    assert words == ["doctor"] or result.stderr.splitlines()[-1:] == [result.stderr.rstrip("\n")]
    assert PASSWORD not in output


def test_the_question_of_prune_names_the_store_without_its_password(guest: str) -> None:
    """Whoever is asked knows which store is meant."""
    jobq.open_store(guest).close()
    asked = run("prune", "--older-than", "30s", answer="n\n").stderr
    assert "postgresql://guest_" in asked
    assert ":***@" in asked
    assert PASSWORD not in asked


@pytest.fixture
def keep_signals() -> Iterator[None]:
    """Give the signals back as they were: a worker's command, at its end, lets them pass."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("keep_signals")
@pytest.mark.parametrize("reachable", [True, False])
def test_no_command_tells_the_password(
    guest: str,
    pg_server: "Server",
    caplog: pytest.LogCaptureFixture,
    *,
    reachable: bool,
) -> None:
    """Not on a terminal, not in an error and its traceback, and not in a log."""
    with closing(jobq.open_store(guest)) as store:
        job = store.enqueue("noop", {}).job
    if not reachable:
        lock_out(pg_server, guest)
    caplog.set_level("DEBUG")
    said = []
    for words in EVERY:
        if words != ["watch"]:  # goes on for ever
            named = [job.id if word == "12345678" else word for word in words]
            for options in ([], ["--traceback"]):
                result = run(*options, *named)
                said += [result.output, str(result.exception)]
                while error := getattr(result, "exception", None):
                    result = error.__cause__ or error.__context__
                    said += [str(error), repr(error)]
    assert ":***@" in "".join(said)
    assert PASSWORD not in "".join(said) + caplog.text


@unix_only
def test_no_process_tells_the_password(
    guest: str, pg_server: "Server", process: Callable[..., subprocess.Popen[str]]
) -> None:
    """Not in what it prints, in its answers, or in the list of processes; nor does its child."""
    port = os.environ["JOBQ_PORT"]
    server, worker = process("serve"), process("worker", "--isolate")
    hear(server, "startup complete", "stderr")
    nap = printed("enqueue", "nap", '{"seconds": 60}').strip()
    said = [hear(worker, "took")]
    for started in (server, worker):
        family = psutil.Process(started.pid).children(recursive=True)
        said += [str((p.name(), p.cmdline())) for p in (psutil.Process(started.pid), *family)]
    said += [str(ask(port, path)) for path in ("/health", "/ready", "/openapi.json", "/stats")]
    lock_out(pg_server, guest)
    answers = {path: ask(port, path) for path in ("/health", "/ready", f"/jobs/{nap}", "/stats")}
    assert answers["/health"][0] == 200
    assert answers["/ready"][0] == 503
    for started in (server, worker):
        started.terminate()
    worker.terminate()  # gives the job back, or cannot
    said += [str(answers), *server.communicate(timeout=PATIENCE)]
    worker.kill()
    said += worker.communicate(timeout=PATIENCE)
    assert "is not permitted to log in" in "".join(said)
    assert PASSWORD not in "".join(said)
