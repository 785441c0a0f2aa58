"""Processes that belong to another process, such as the workers of a lab, end when it does."""

import os
import signal
import threading
from typing import IO

PIPE_CHUNK = 4096


def die_with_parent(stdin: IO[str] | IO[bytes]) -> None:
    """Leave Ctrl-C to the parent, and exit at once when `stdin` ends.

    The parent keeps the other end of the pipe open. However it dies, the system closes that end,
    so no child outlives it. Call this in the main thread, before others are started.
    """
    if hasattr(signal, "pthread_sigmask"):  # holds whatever handlers are installed later
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_at_end, args=(stdin,), daemon=True).start()


def _exit_at_end(stdin: IO[str] | IO[bytes]) -> None:
    # From the descriptor: a thread that waits in a buffered read holds the file object's lock,
    # and an interpreter that shuts down in the ordinary way would abort on it.
    while os.read(stdin.fileno(), PIPE_CHUNK):
        pass
    os._exit(0)
