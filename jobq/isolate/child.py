"""The child of a worker, as the worker sees it."""

import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from contextlib import ExitStack, suppress

import psutil

from jobq.isolate import family
from jobq.isolate.line import Line
from jobq.signals import STOP_SIGNALS

DEATH_SECONDS = 1.0  # for a process to end that has closed its line
REAP_SECONDS = 5.0  # for a killed process to be gone, which the kernel can delay
STEP_SECONDS = 0.01  # between two looks whether it has

# `-c` and not `-m`: jobq has to be found as the worker found it. Unbuffered, so that what a handler
# printed before it crashed can be read; with a fault handler, so that one can read where.
OPTIONS = ("-u", "-X", "faulthandler", "-c")
CODE = "import sys; sys.path[:] = {path}; from jobq.isolate.inside import serve; serve({end})"


class Child:
    """A Python process that leads a session of its own, and the guardian of its group.

    Not made by multiprocessing, which would run the worker's main program in it once more, start
    it in the worker's process group, and forbid handlers to make processes in their turn.
    """

    def __init__(self) -> None:
        with ExitStack() as undo:
            ours, theirs = map(undo.enter_context, socket.socketpair())
            self._process = _start(theirs.fileno())
            undo.callback(self._kill)
            # Should the worker die here, the child is idle, and ends because its line does.
            self._guardian = family.Guardian(self._process.pid)
            undo.pop_all()
        theirs.close()
        self.line = Line(ours)
        self._seen = psutil.Process(self._process.pid)
        self._terminated = False
        self._left = False
        _children.add(self)

    @property
    def sound(self) -> bool:
        """Whether it can be given a job."""
        return not self._left and not self.ended and self._guardian.watches

    @property
    def ended(self) -> bool:
        """Whether the process has ended; it is not reaped by that, so that its number stays."""
        try:
            return self._seen.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def ends(self) -> bool:
        """Wait a moment for it to end by itself; return whether it did."""
        deadline = time.monotonic() + DEATH_SECONDS
        while not self.ended and time.monotonic() < deadline:
            threading.Event().wait(STEP_SECONDS)
        return self.ended

    def terminate(self) -> None:
        """Ask its family to end, and give it a moment to do so. The child itself stays."""
        self._terminated = True
        family.terminate(self._process.pid)

    def end(self) -> int | None:
        """End it and what it has started; return its exit code, or -N if signal N killed it.

        None means that it is still not gone, or that somebody else has reaped it.
        """
        if self._process.returncode is None and not self._left:
            if not self._terminated and not self.ended:
                self.terminate()
            self._guardian.dismiss()
            self._kill()
            self.line.close()
        return self._process.returncode

    def leave_to_parent(self) -> None:
        """Let go of it, in a forked process: it is the worker's to end."""
        self._left = True
        self.line.close()
        self._guardian.leave_to_parent()

    def _kill(self) -> None:
        family.kill(self._process.pid)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_SECONDS)


def _start(end: int) -> subprocess.Popen[bytes]:
    code = CODE.format(path=[str(p) for p in sys.path], end=end)
    with family.held_back(*STOP_SIGNALS):  # until it can tell that they are not for it
        return subprocess.Popen(
            [sys.executable, *OPTIONS, code],
            stdin=subprocess.DEVNULL,
            pass_fds=[end],
            start_new_session=True,
        )


_children: weakref.WeakSet[Child] = weakref.WeakSet()
_left: list[Child] = []  # kept, because subprocess complains of processes that nobody waits for


def _after_fork() -> None:
    for child in list(_children):
        child.leave_to_parent()
        _left.append(child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
