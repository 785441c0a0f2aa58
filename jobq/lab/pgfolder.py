"""The folder of a PostgreSQL server: what is in it, and the process that serves it."""

import errno
import json
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from jobq.errors import LabError
from jobq.lab.folders import fresh_folder
from jobq.lab.pgbinaries import Binaries, hand_over, owner, reaches, shelter
from jobq.store.fairlock import FairLock

USER = DATABASE = "jobq"
STATE, LOCK = "jobq-pg.json", "lock"  # in the folder
LOCK_SECONDS = 120.0  # for another start or stop on the folder to come to its end
NEW = ".new-"  # what the folders of data that are being made begin with
BUILT_IN_LOCALE = 17  # the first version that sorts without the machine's help


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time start or stop the server of a folder, which is made if need be.

    Raises LabError for a folder that cannot be used or holds something else, and for whatever the
    operating system refuses within.
    """
    try:
        _refuse_foreign(folder)
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o711 if owner() else 0o700)  # for the server's user to pass
        lock = FairLock(folder / LOCK)
        if not lock.acquire(LOCK_SECONDS):
            raise LabError(f"another process is at work in {folder}: try again when it has ended")
        try:
            yield
        finally:
            lock.release()
            lock.close()
    except OSError as error:
        raise LabError(_in_words(error, folder)) from error


def prepare(folder: Path, *, owned: bool) -> None:
    """Settle, at the first start, the port, the password and where the data lie."""
    _refuse_foreign(folder)
    if (folder / STATE).exists():
        return
    data = folder / "data"
    if not reaches(folder):  # as in root's home, or below a folder for temporary files of root's
        data = (fresh_folder() if owned else folder) / "data"
        if owned and owner():
            data.parent.chmod(0o711)
        if not reaches(data.parent):
            data = shelter("data") / secrets.token_hex(8)
    write_state(
        folder,
        {
            "port": free_port(),
            "password": secrets.token_urlsafe(24),
            "data": str(data.relative_to(folder) if data.is_relative_to(folder) else data),
        },
    )


def read_state(folder: Path) -> dict[str, Any]:
    """Return what is kept of a server: `port`, `password`, and `data`, the folder of its files.

    Raises LabError where there is no server, or what is kept is damaged.
    """
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return {"port": int(state["port"]), **{k: str(state[k]) for k in ("password", "data")}}
    except FileNotFoundError:
        raise LabError(f"there is no server in {folder}: `jobq pg start` makes one") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{folder / STATE} is damaged: move the folder away") from error


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Keep the state, whole: an interruption leaves the old one or the new one."""
    new = folder / f"{STATE}.new"
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)  # it holds the password
    new.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    new.replace(folder / STATE)


def create_data(binaries: Binaries, data: Path, password: str, *, sync: bool) -> None:
    """Make the files of an empty database, whole or not at all. Raises LabError.

    Without `sync` nothing waits for the disk: for data that need not survive a power cut.
    """
    for leftover in data.parent.glob(f"{NEW}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=NEW, dir=data.parent, ignore_cleanup_errors=True
    ) as name:
        new = Path(name)
        hand_over(new)
        secret = new / "password"
        secret.touch(mode=0o600)
        secret.write_text(password, encoding="utf-8")
        hand_over(secret)
        locale = ["--locale=C"]  # the same order on every machine
        if binaries.major >= BUILT_IN_LOCALE:
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        to = ("-D", new / "data")
        words = ["-U", USER, "-E", "UTF8", "-A", "scram-sha-256", *locale]
        words += [] if sync else ["--no-sync"]
        binaries.run("initdb", *to, "--pwfile", secret, *words)
        words = [] if sync else ["-F"]
        text = f"CREATE DATABASE {DATABASE}\n"
        binaries.run("postgres", "--single", *to, *words, "postgres", text=text)
        (new / "data").rename(data)


def process_of(data: Path) -> psutil.Process | None:
    """Return the process that serves a data folder, and no other that has its number by now."""
    pid = _noted_pid(data)
    try:
        process = psutil.Process(pid or 0)
        return process if pid and _serves(process, data) else None
    except psutil.NoSuchProcess:
        return None


def clear_reused_pid(data: Path) -> None:
    """Remove what a killed server has left, if its number is another program's by now.

    PostgreSQL sees to the rest; but it takes any process of this number, of its own user, for a
    server that runs.
    """
    pid = _noted_pid(data)
    if pid and psutil.pid_exists(pid) and process_of(data) is None:
        (data / "postmaster.pid").unlink(missing_ok=True)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether nobody listens on a port of this machine."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def _noted_pid(data: Path) -> int | None:
    """Return the number that the server's own file gives."""
    try:
        return int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def _serves(process: psutil.Process, data: Path) -> bool:
    """Whether a process is a PostgreSQL server with this data folder."""
    if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("postgres"):
        return False
    words = process.cmdline()
    folders = [after for word, after in pairwise(words) if word == "-D"]
    return any(Path(folder) == data for folder in folders)


def _refuse_foreign(folder: Path) -> None:
    """Raise LabError for what is no folder, or one with other things in it than a server."""
    if folder.exists() and not folder.is_dir():
        raise LabError(f"{folder} is a file: name a folder")
    if folder.is_dir() and not (folder / STATE).exists():
        others = {path.name for path in folder.iterdir()} - {LOCK, f"{STATE}.new"}
        if others:
            raise LabError(
                f"{folder} holds other things than a server of jobq ({min(others)}): "
                "name a new or an empty folder"
            )


def _in_words(error: OSError, folder: Path) -> str:
    what = f"{error.filename or folder}: {error.strerror or error}"
    if error.errno == errno.ENOSPC:
        return f"{what}; free some space on the disk, then start again"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"{what}; name a folder that you may write to"
    return what
