"""A lock between processes that is granted in turn.

SQLite waits for its write lock by sleeping and looking again, so a writer that comes back at once
wins nearly every time: of two busy workers one got everything, and a heartbeat could wait for
seconds. `flock` sleeps in the kernel's queue instead, and the kernel drops the lock of a process
that dies. Where there is no `flock` (Windows), SQLite's own waiting has to do.
"""

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class FairLock:
    """A lock on a file. An instance serves one thread at a time; each has its own open file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, seconds: float) -> bool:
        """Take the lock; False if that took longer than `seconds`."""
        if sys.platform == "win32":
            return True
        if self._file is None:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._acquire_in_turn(self._file, seconds)
        return True

    def release(self) -> None:
        """Give the lock to whoever waits first."""
        if sys.platform != "win32" and self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def ring(self) -> None:
        """Tell those who listen to the file, while holding the lock, that something was written.

        What was written is committed: a bell that cannot be rung costs a glance, and no error.
        """
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, b"!", 0)

    def close(self) -> None:
        """Close the file, and with it the lock if it is held."""
        # Two may come at once, `Sqlite.close` and the end of the thread that had the connection;
        # the number of a file that was closed twice may be somebody else's by then.
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _acquire_in_turn(self, file: int, seconds: float) -> bool:
        """Wait in the kernel's queue. `flock` knows no timeout, so a thread waits in our place."""
        turn = _Turn(file)
        try:
            turn.granted.wait(seconds)
        finally:  # also when a signal handler raises: the lock must not be granted to nobody
            granted = turn.keep()
            if not granted:
                self._file = None  # now the turn's, which closes it when it comes
        return granted


class _Turn:
    """A thread that waits for the lock; `keep` says, once, whether it came in time."""

    def __init__(self, file: int) -> None:
        self.granted = threading.Event()
        self._file = file
        self._given_up = False
        self._deciding = threading.Lock()
        threading.Thread(target=self._wait, daemon=True, name="jobq-write-lock").start()

    def keep(self) -> bool:
        with self._deciding:
            self._given_up = not self.granted.is_set()
            return not self._given_up

    def _wait(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._deciding:
            if self._given_up:
                fcntl.flock(self._file, fcntl.LOCK_UN)  # closing does not, if a child has a copy
                os.close(self._file)
            else:
                self.granted.set()
