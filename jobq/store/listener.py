"""Hears when somebody has written to a PostgreSQL store.

A thread listens on a connection of its own. Such a connection can be dead for long without a sign
of it, and a proxy may hand it to others; so the listener tells itself something now and then, and
trusts its ears only while it hears that. When it does not, those who wait are sent to look for
themselves every second.
"""

import logging
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg
from psycopg import sql

from jobq.errors import StoreError
from jobq.store.pgconnection import Patient

log = logging.getLogger(__name__)

PROOF = "proof "  # so begins what a listener tells itself
PROOF_SECONDS = 5.0  # between two things that it tells itself
ANSWER_SECONDS = 2.0  # within which it hears them
POLL_SECONDS = 1.0  # between two looks without trust
TICK_SECONDS = 0.05  # between two looks at whether to stop, which cannot wake a waiter
READY_SECONDS = 2.0  # that the first one who asks waits for the listener


class Listener:
    """Counts the changes of one store.

    `connect` gives a connection of its own; `tell` notifies by way of another one. What it told
    itself on its own it would hear even where a proxy lets nobody listen.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Patient]],
        tell: Callable[[str], None],
        channel: str,
    ) -> None:
        self._connect = connect
        self._tell = tell
        self._channel = channel
        self._changed = threading.Condition()
        self._count = 0
        self._trusted = False
        self._closing = threading.Event()
        self._end, self._woken = socket.socketpair()  # what wakes the thread to let it end
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="jobq-listener")
        self._thread.start()
        self._ready.wait(READY_SECONDS)

    @property
    def mark(self) -> int:
        """The number of changes so far."""
        return self._count

    @property
    def trusted(self) -> bool:
        """Whether it hears what is said."""
        return self._trusted

    def wait(self, mark: int, seconds: float, stop: Callable[[], bool]) -> None:
        """Return once the mark is another one, `stop()` is true, or the seconds are over."""
        begin = time.monotonic()
        with self._changed:
            while self._count == mark and not stop():
                now = time.monotonic()
                if now >= begin + seconds:
                    return
                if not self._trusted and now >= begin + POLL_SECONDS:
                    return
                self._changed.wait(min(TICK_SECONDS, begin + seconds - now))

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._end.close()
        self._thread.join()
        self._woken.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with self._connect() as raw:
                    self._listen(raw)
            except (StoreError, psycopg.Error, OSError) as error:
                log.debug("the listener lost its connection: %s", error)
            self._trust(heard=False)
            self._closing.wait(POLL_SECONDS)

    def _listen(self, raw: Patient) -> None:
        """Count what is heard, for as long as the connection proves to be alive."""
        raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        heard = True
        while heard and not self._closing.is_set():
            proof = PROOF + uuid.uuid4().hex
            self._tell(proof)
            heard = self._hear(raw, ANSWER_SECONDS, proof)
            self._trust(heard=heard)
            if heard:
                self._hear(raw, PROOF_SECONDS)

    def _hear(self, raw: Patient, seconds: float, proof: str | None = None) -> bool:
        """Count notifications for some time, or until the proof comes; return whether it did."""
        deadline = time.monotonic() + seconds
        heard = False
        with selectors.DefaultSelector() as either:
            either.register(raw.fileno(), selectors.EVENT_READ)
            either.register(self._woken, selectors.EVENT_READ)
            while not (heard or self._closing.is_set()):
                for said in raw.notifies(timeout=0):  # all there are, whatever is among them
                    heard = heard or said.payload == proof
                    if not said.payload.startswith(PROOF):
                        self._count_one()
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                if not heard:
                    either.select(left)
        return heard

    def _count_one(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def _trust(self, *, heard: bool) -> None:
        """Take note of whether it hears; whatever happened before it did may have been missed."""
        if heard != self._trusted:
            self._trusted = heard
            self._count_one()
        self._ready.set()
