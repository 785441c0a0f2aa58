"""SIGTERM and SIGINT, as a worker takes them.

The first one asks for a clean stop: the current job is finished. A second one, or the end of the
grace time, interrupts the job's handler, so that the job can be given back unharmed (G11).

Python runs a signal's handler in the main thread, between two steps of whatever runs there, and
what it raises is raised there. In the middle of a claim or a finish that would lose a job, so
`Interrupted` is raised into a job's handler alone; all other code only finds a note.
"""

import math
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import NamedTuple, TypeVar

T = TypeVar("T")

LAST_SECOND = 1.0  # for an interrupted handler to end

# The poke is the signal that this process sends itself to wake a handler up. It must be one that
# nobody else sends: two signals that arrive together may be delivered as one.
if sys.platform == "win32":
    STOP_SIGNALS = (signal.SIGINT, signal.SIGBREAK)
    POKE = signal.SIGTERM  # no other process can send it there
else:
    STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
    POKE = signal.SIGURG  # ignored by default, so that a stray one does no harm


class Interrupted(KeyboardInterrupt):
    """Raised into a handler that has to end now.

    A KeyboardInterrupt, because that is what libraries let through: asyncio, for one, keeps any
    other exception to itself.
    """


class _Hold(NamedTuple):
    """What belongs to the signals while they are taken over."""

    undo: ExitStack  # gives them back
    bell: socket.socket  # Python writes the number of each one to its other end
    thread: int  # the main thread


class Signals:
    """What has been asked of a worker, by signal or by `stop`, and the way to interrupt it."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._hold: _Hold | None = None
        self._exposed = False  # a job's handler runs: Interrupted may be raised
        self._cut = False  # interrupt() was called for that handler
        self._forget()

    def _forget(self) -> None:
        self.stopping = False  # take no further job
        self.deadline = math.inf  # of the current handler, in the monotonic clock's time
        self.interrupted = False  # the last handler that `call` ran was
        self._handled = 0  # stop signals seen by Python's handler
        self._rung = 0  # stop signals seen on the bell
        self._last: int | None = None

    @contextmanager
    def watched(self, *, pass_on: bool = False) -> Iterator[None]:
        """Take the signals over, and give them back at the end with all requests forgotten.

        Python leaves signals to the main thread; in another one this takes over none. With
        `pass_on` a signal that came meanwhile is sent again at the end, to whom it was meant for.
        """
        try:
            with ExitStack() as undo:
                if threading.current_thread() is threading.main_thread():
                    self._take_over(undo)
                yield
        finally:
            last = self._last
            self._forget()
            if pass_on and last is not None:
                signal.raise_signal(last)

    def call(self, function: Callable[[], T]) -> T:
        """Run a job's handler; the only place where Interrupted is raised.

        A signal strikes in one of three places, and loses nothing in any. Before `_exposed` is
        set, in the claim, it moves the deadline, which is looked at before the handler begins.
        Then it raises, if the deadline has come. After `_exposed` is taken back it moves the
        deadline in vain: the handler has ended, and how it ended is recorded whatever comes.
        """
        self._cut = self.interrupted = False
        self._exposed = True
        try:
            self._interrupt_if_due()
            return function()
        finally:
            self._exposed = False

    def interrupt(self) -> None:
        """Raise Interrupted in the handler that the main thread runs; for another thread.

        To be called again until the handler has ended: a signal that arrives just before a
        blocking call, such as a sleep, does not end it, and Python comes to it only afterwards.
        """
        self._cut = True
        if self._hold is None or not self._exposed:
            return
        if sys.platform == "win32":
            signal.raise_signal(POKE)
        else:
            signal.pthread_kill(self._hold.thread, POKE)

    @contextmanager
    def sheltered(self) -> Iterator[None]:
        """Let no signal raise in what a handler has the worker do, such as a write to the store.

        What came meanwhile raises at the end.
        """
        if self._hold is None or self._hold.thread != threading.get_ident():
            yield  # signals raise in the main thread alone
            return
        exposed, self._exposed = self._exposed, False
        try:
            yield
        finally:
            self._exposed = exposed
            self._interrupt_if_due()

    def listen(self) -> None:
        """Take note of signals that the main thread has not come to; for another thread.

        Python's handlers wait until the main thread returns from C code. The bell does not.
        """
        if self._hold is not None:
            with suppress(BlockingIOError):  # it has not rung
                rung = self._hold.bell.recv(4096)
                self._rung += sum(number in STOP_SIGNALS for number in rung)
                self._take_note()

    def leave_to_parent(self) -> None:
        """Give the signals back in a forked child: there SIGTERM has its ordinary meaning."""
        if self._hold is not None:
            self._hold.undo.close()

    def _take_over(self, undo: ExitStack) -> None:
        bell, button = map(undo.enter_context, socket.socketpair())
        bell.settimeout(0)
        button.settimeout(0)
        previous = signal.set_wakeup_fd(button.fileno(), warn_on_full_buffer=False)
        undo.callback(signal.set_wakeup_fd, previous)
        undo.callback(signal.signal, POKE, signal.signal(POKE, self._on_poke))
        for number in STOP_SIGNALS:
            # Ignored at the start means ignored for good: so a shell starts `… &` in a script.
            if signal.getsignal(number) != signal.SIG_IGN:
                undo.callback(signal.signal, number, signal.signal(number, self._on_signal))
        self._hold = _Hold(undo, bell, threading.get_ident())
        undo.callback(setattr, self, "_hold", None)
        _watching.add(self)
        undo.callback(_watching.discard, self)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._handled += 1
        self._last = number
        self._take_note()
        self._interrupt_if_due()

    def _on_poke(self, _number: int, _: FrameType | None) -> None:
        self._interrupt_if_due()

    def _take_note(self) -> None:
        """Draw the conclusions; doing so again changes nothing."""
        # A handler may take the bell for itself (asyncio does), and Python may run our handler
        # once for two signals: whichever count is the higher is right.
        count = max(self._handled, self._rung)
        if count:
            self.stopping = True
            left = self._grace_seconds if count == 1 else 0.0
            self.deadline = min(self.deadline, time.monotonic() + left)

    def _interrupt_if_due(self) -> None:
        if self._exposed and (self._cut or time.monotonic() >= self.deadline):
            self._exposed = False  # once per handler: its cleaning up is not disturbed
            self.interrupted = True
            raise Interrupted


_watching: weakref.WeakSet[Signals] = weakref.WeakSet()


def _after_fork() -> None:
    for signals in list(_watching):
        signals.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
