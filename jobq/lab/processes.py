"""Real processes that belong to a lab: started, killed, paused, and never left behind.

A process here calls `jobq.owned.die_with_parent`: it reads its standard input, of which this
process holds the other end, and exits when that ends. So it cannot outlive its owner, however the
owner dies. It stays in the owner's process group, because the end of a Jupyter kernel kills that
group.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from jobq.errors import LabError
from jobq.lab.waiting import wait_until

GONE_SECONDS = 10.0  # for a process to be gone after SIGKILL, or to stand still after SIGSTOP
LOG_TAIL = 12  # lines that an error shows


class Process:
    """A Python program of the lab, `python -m …`; what it prints goes to a file of the folder.

    `url` is the store that it works on. It goes by the environment: a command line, which can hold
    a password then, may be read by everybody on the machine.
    """

    def __init__(
        self, name: str, folder: Path, words: Sequence[str], url: str | None = None
    ) -> None:
        self.name = name
        logs = len(list(folder.glob("*.log")))
        self._log = folder / f"{logs}-{name}.log"  # not over that of an earlier one of its name
        with self._log.open("wb") as output, ctrl_c_held():
            self._child = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=folder,  # where an experiment puts modules and files of its own
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment() | ({} if url is None else {"JOBQ_URL": url}),
            )

    def __repr__(self) -> str:
        return self.name

    @property
    def pid(self) -> int:
        """The number that the operating system knows the process by."""
        return self._child.pid

    @property
    def log(self) -> str:
        """What the process has printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def tail(self) -> str:
        """The last lines of the log, under a heading."""
        lines = self.log.splitlines()[-LOG_TAIL:] or ["(nothing)"]
        return "\n".join([f"{self.name} ({self.ending or 'running'}) printed last:", *lines])

    @property
    def ending(self) -> str | None:
        """How the process ended: `SIGKILL`, `exit code 0`; None while there is one."""
        code = self._child.poll()
        if code is None:
            return None
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def kill(self) -> None:
        """End the process as `kill -9` does, and wait until it is gone."""
        self._child.kill()
        self._child.wait(GONE_SECONDS)
        self._close_pipe()

    def pause(self) -> None:
        """Stop the process in its tracks (SIGSTOP), and wait until it stands still."""
        process = self._running()
        process.suspend()
        wait_until(lambda: _stands_still(process), f"{self.name} to stand still", GONE_SECONDS)

    def resume(self) -> None:
        """Let a paused process go on where it was (SIGCONT)."""
        self._running().resume()

    def stop(self, seconds: float = 30.0) -> None:
        """Ask the process to end (SIGTERM), and wait until it has.

        Raises WaitTimedOut, after killing the process, if it takes longer than `seconds`.
        """
        self._running().terminate()
        try:
            self.wait_for_exit(seconds)
        except BaseException:
            self.kill()
            raise

    def wait_for_exit(self, seconds: float = 30.0) -> None:
        """Wait until the process has ended by itself. Raises WaitTimedOut."""
        wait_until(lambda: self.ending, f"{self.name} to exit", seconds, clues=lambda: self.tail)
        self._close_pipe()

    def wait_until_ready(self, ready: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until `ready()` is true. Raises LabError if the process ends before that."""
        wait_until(
            lambda: self.ending or ready(),
            f"{self.name} to be ready",
            seconds,
            clues=lambda: self.tail,
        )
        if self.ending:
            raise LabError(f"{self.name} ended at once ({self.ending}), saying: {self.log.strip()}")

    def _running(self) -> psutil.Process:
        if self.ending:
            raise LabError(f"{self.name} is not running any more ({self.ending}): start another")
        return psutil.Process(self.pid)

    def _close_pipe(self) -> None:
        if self._child.stdin:
            self._child.stdin.close()


def _stands_still(child: psutil.Process) -> bool:
    """Whether every thread of a child has stopped.

    The state that `ps` shows is the main thread's, and another one may be about to take a lock.
    The kernel tells the parent when the last one has stopped.
    """
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return bool(child.status() == psutil.STATUS_STOPPED)
    return os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG) is not None


@contextmanager
def ctrl_c_held() -> Iterator[None]:
    """Hold SIGINT back until the end, and from the children that are started within.

    A terminal, and a notebook's stop button, signal the whole process group. `die_with_parent`
    blocks the signal too, but a child calls it only some hundred milliseconds after its start.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _environment() -> dict[str, str]:
    """Return this process's environment without settings of jobq: the experiment's hold alone."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("JOBQ_") and name != "LEASE_SECONDS"
    }
