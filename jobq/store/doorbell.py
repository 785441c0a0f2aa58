"""Sleep until somebody has written to the store.

Whoever commits rings: it writes a byte to the lock's file, and on Linux the kernel (inotify)
wakes those who listen. Elsewhere, or when the system has no bell left to give, a listener looks
for itself every few milliseconds, which costs an idle worker some percent of a core.
"""

import ctypes
import os
import select
import sys
import time
from pathlib import Path

IN_MODIFY = 0x2  # from <sys/inotify.h>
ENOUGH = 65_536  # bytes of events that were not read yet
GLANCE_SECONDS = 0.05  # the longest sleep with a bell: other programs that write do not ring
LOOK_SECONDS = 0.005  # the longest sleep without one


class Doorbell:
    """Hears writes to one file."""

    def __init__(self, path: Path) -> None:
        self._events = _listen(path) if sys.platform == "linux" else None

    def wait(self, seconds: float) -> bool:
        """Sleep until it rings, for `seconds` at the most, or for less; return whether it rang.

        Whoever is not sure that nothing has changed looks, and waits again.
        """
        if self._events is None:
            time.sleep(min(LOOK_SECONDS, seconds))
            return False
        rang = bool(select.select([self._events], [], [], min(GLANCE_SECONDS, seconds))[0])
        if rang:
            os.read(self._events, ENOUGH)
        return rang

    def close(self) -> None:
        """Give the bell back to the system."""
        events, self._events = self._events, None  # two may come at once: see FairLock.close
        if events is not None:
            os.close(events)


def _listen(path: Path) -> int | None:
    """Return a descriptor that can be read when the file was written to; None if none is to be had.

    A system has a limited number of them (fs.inotify.max_user_instances).
    """
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))
    except OSError:
        return None
    libc = ctypes.CDLL(None)
    events: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if events < 0:
        return None
    if libc.inotify_add_watch(events, os.fsencode(path), IN_MODIFY) < 0:
        os.close(events)
        return None
    return events
