"""A process with all that it has started: how it is ended, whoever dies first."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

TERM_SECONDS = 0.5  # for a process to end after SIGTERM
SHELL = "/bin/sh"

# A shell that waits for the end of its input. It then leaves the leader half a second to end its
# family by itself, which finds also those who left the group, and kills the group. It ignores what
# a service manager sends to all processes of a service in order to stop it.
GUARDIAN = """trap '' HUP INT TERM; read -r _; sleep 0.5; kill -s KILL -- "-$1" """


class Guardian:
    """Kills a process group when this process has died, whatever the group is doing then.

    This process alone holds the other end of the guardian's input, which the system closes
    however it dies.
    """

    def __init__(self, leader: int) -> None:
        self._shell = subprocess.Popen(
            [SHELL, "-c", GUARDIAN, "jobq-guardian", str(leader)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def watches(self) -> bool:
        """Whether it is there: somebody may have killed it."""
        return self._shell.poll() is None

    def dismiss(self) -> None:
        """End it. To be done before the leader is reaped, which frees the group's number."""
        self._shell.kill()
        self._shell.wait()
        self.leave_to_parent()

    def leave_to_parent(self) -> None:
        """Let go of the guardian's input, in a forked process: it must not hold it open."""
        if self._shell.stdin is not None:
            self._shell.stdin.close()


@contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Keep signals from this thread, and what it starts from them, until it lets them through."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def descendants(leader: int) -> list[psutil.Process]:
    """Return what the leader has started, and what that has, as long as the line is unbroken."""
    try:
        return psutil.Process(leader).children(recursive=True)
    except psutil.Error:
        return []


def terminate(leader: int) -> None:
    """Send SIGTERM to everybody, and give the leader's descendants a moment to end."""
    others = descendants(leader)
    _send(leader, others, signal.SIGTERM)
    psutil.wait_procs(others, timeout=TERM_SECONDS)


def kill(leader: int) -> None:
    """Send SIGKILL to everybody. The leader has to exist, if only as a zombie."""
    _send(leader, descendants(leader), signal.SIGKILL)


def kill_descendants(leader: int) -> None:
    """Send SIGKILL to what the leader has started. What it has lost is left to others."""
    for process in descendants(leader):
        with suppress(psutil.Error):
            process.kill()


def _send(leader: int, others: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to the group, and to each of the others that left it: once to everybody."""
    for process in others:
        with suppress(OSError, psutil.Error):
            if os.getpgid(process.pid) != leader:
                process.send_signal(number)
    with suppress(OSError):  # the group may have ended; macOS forbids it for one of zombies
        os.killpg(leader, number)
