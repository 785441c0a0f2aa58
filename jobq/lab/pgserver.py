"""A PostgreSQL server of one's own: made in a folder, started, stopped, crashed.

It listens on this machine alone (127.0.0.1), and asks for a password that its folder keeps. It
goes on when the process that started it has ended, so that a terminal can be closed; who comes
later finds it by its folder. An owned server is another matter: it ends with its owner, however
that dies.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from jobq.errors import LabError
from jobq.lab.folders import fresh_folder
from jobq.lab.pgbinaries import Binaries, NoServer, find_binaries, last_words, owner
from jobq.lab.pgfolder import (
    DATABASE,
    STATE,
    USER,
    clear_reused_pid,
    create_data,
    free_port,
    is_free,
    locked,
    prepare,
    process_of,
    read_state,
    write_state,
)
from jobq.lab.pgguardian import Guardian
from jobq.lab.processes import ctrl_c_held

__all__ = ["NoServer", "Server", "find_server", "make_server", "temporary_server"]

Mode = Literal["smart", "fast", "immediate"]  # of a stop: see pg_ctl; immediate is a crash

LOG = "server.log"  # in the folder
START_SECONDS = STOP_SECONDS = 60
LEFTOVER_SECONDS = 10.0  # for the children of a killed server to be gone
# For a laptop that does other things too. What is not named is as PostgreSQL has it; so, above
# all, are fsync and synchronous_commit: what it acknowledged, it keeps.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "jit": "off",
    "logging_collector": "off",
}


class Server:
    """A server in a folder. `options` are settings of PostgreSQL, used at each start."""

    def __init__(
        self, folder: Path, options: Mapping[str, str] | None = None, *, owned: bool = False
    ) -> None:
        self.folder = folder.resolve()
        self._options = {**SETTINGS, **(options or {})}
        self._owned = owned
        self._guardian: Guardian | None = None

    def __repr__(self) -> str:
        return f"Server({str(self.folder)!r})"

    @property
    def port(self) -> int:
        """Where it listens. A start keeps it, unless somebody else listens there by then."""
        return int(read_state(self.folder)["port"])

    @property
    def data(self) -> Path:
        """The folder of the database's own files."""
        return self.folder / str(read_state(self.folder)["data"])

    @property
    def pid(self) -> int | None:
        """The process that runs the server, by whomever it was started; None if there is none."""
        process = process_of(self.data)
        return process.pid if process else None

    @property
    def log(self) -> str:
        """What the server has printed."""
        path = self.folder / LOG
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def url(self, database: str = DATABASE) -> str:
        """Return the address of a database on it, with the password."""
        state = read_state(self.folder)
        place = f"127.0.0.1:{state['port']}/{quote(database, safe='')}"
        return f"postgresql://{USER}:{state['password']}@{place}"

    def start(self) -> None:
        """Start the server, and return when it takes connections; one that runs is left alone.

        Raises LabError, with the server's last words, if it does not start within 60 s.
        """
        with locked(self.folder):
            prepare(self.folder, owned=self._owned)
            if self.pid:
                return
            version = self.data / "PG_VERSION"
            binaries = find_binaries(int(version.read_text()) if version.exists() else None)
            if not self.data.exists():
                password = str(read_state(self.folder)["password"])
                create_data(binaries, self.data, password, sync=self._options.get("fsync") != "off")
            self._dismiss_guardian()  # of a server that was killed
            if self._owned:
                self._guardian = Guardian(self.data)
            try:
                self._start(binaries)
            except BaseException:
                self._stop("immediate")
                raise

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server, and return when it is gone; without a server, do nothing.

        "smart" waits for clients to go, "fast" sends them away, "immediate" is like a crash: the
        next start recovers. Raises LabError if it is not gone within 60 s.
        """
        with locked(self.folder):
            self._stop(mode)

    def restart(self, mode: Mode = "fast") -> None:
        """Stop the server, and start it again."""
        self.stop(mode)
        self.start()

    def _start(self, binaries: Binaries) -> None:
        clear_reused_pid(self.data)
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while said := self._try(binaries):
            taken = "could not bind" in said  # somebody else was quicker
            held = "is still in use" in said  # the memory of a killed server, by its children
            if not (taken or held) or time.monotonic() > deadline:
                raise LabError(
                    f"PostgreSQL does not start in {self.folder} (its whole log is {LOG} there): "
                    f"{last_words(said)}"
                )
            if taken:
                self._change_port()
            time.sleep(0.1)

    def _try(self, binaries: Binaries) -> str:
        """Start once; return what was printed if that failed, and nothing if it went well."""
        if not is_free(self.port):
            self._change_port()
        settings = {**self._options, "port": str(self.port)}
        words = [word for name in settings for word in ("-c", f"{name}={settings[name]}")]
        joined = subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)
        # Ctrl-C waits until there is a server to be stopped, or none.
        with (self.folder / LOG).open("ab") as log, ctrl_c_held():
            begin = log.tell()
            limit = ("-w", "-t", str(START_SECONDS))
            if binaries.control("start", "-D", self.data, *limit, "-o", joined, output=log):
                return ""
        said = (self.folder / LOG).read_bytes()[begin:].decode("utf-8", "replace")
        return said or "it printed nothing"

    def _change_port(self) -> None:
        write_state(self.folder, {**read_state(self.folder), "port": free_port()})

    def _stop(self, mode: Mode) -> None:
        process = process_of(self.data)
        if process:
            binaries = find_binaries(int((self.data / "PG_VERSION").read_text()))
            with tempfile.TemporaryFile() as output:
                words = ("-D", self.data, "-m", mode, "-w", "-t", str(STOP_SECONDS))
                binaries.control("stop", *words, output=output)
                output.seek(0)
                said = last_words(output.read().decode("utf-8", "replace"))
            if process_of(self.data) == process:
                raise LabError(f"the server in {self.folder} (process {process.pid}) stays: {said}")
        self._dismiss_guardian()

    def _dismiss_guardian(self) -> None:
        if self._guardian:
            self._guardian.dismiss()
            self._guardian = None


def make_server(
    folder: Path, *, options: Mapping[str, str] | None = None, owned: bool = False
) -> Server:
    """Return a running server in a folder, with an empty database `jobq` if the folder is new.

    `options` are settings of PostgreSQL. An owned server ends with this process, also when that
    is killed (but on Windows). Raises NoServer where no PostgreSQL is installed, and LabError for
    a folder that cannot be used or holds something else.
    """
    server = Server(folder, options, owned=owned)
    server.start()
    return server


def find_server(folder: Path) -> Server | None:
    """Return the server of a folder, running or not; None if none was ever made there."""
    return Server(folder) if (folder / STATE).exists() else None


@contextmanager
def temporary_server(*, options: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run an owned server in a folder for temporary files, and remove both at the end."""
    folder = fresh_folder()
    if owner():
        folder.chmod(0o711)  # for the server's user to pass
    server = Server(folder, options, owned=True)
    try:
        server.start()
        yield server
    finally:
        if (folder / STATE).exists():
            server.stop("immediate")
            shutil.rmtree(server.data, ignore_errors=True)  # if it had to lie elsewhere
        shutil.rmtree(folder, ignore_errors=True)
