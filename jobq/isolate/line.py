"""The line between a worker and its child: a socket pair that carries pickled messages.

Both ends trust each other: the child runs what the worker itself would run without it.
"""

import pickle
import select
import socket
import struct
import threading
from typing import Any

from jobq.isolate.family import held_back
from jobq.signals import POKE

HEADER = struct.Struct(">I")  # the number of bytes that follow
CHUNK = 65_536


class Line:
    """The worker's end. It never waits for the child, which may be stuck in mid-message."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(0)
        self._end = end
        self._unsent = bytearray()
        self._received = bytearray()

    def say(self, message: Any) -> None:
        """Have a message sent, as far as it goes at once; `hear` sends the rest."""
        self._unsent += _framed(message)
        self._exchange(0)

    def hear(self, seconds: float | None) -> Any:
        """Return the next message, or None if there is none yet; wait for one for so long.

        May return early. Raises EOFError once the child has gone and all it said is heard.
        """
        message = self._next()
        if message is None:
            if self._exchange(seconds):
                self._receive()
            message = self._next()
        return message

    def close(self) -> None:
        """Close this end; the other one is told by that."""
        self._end.close()

    def _exchange(self, seconds: float | None) -> bool:
        """Wait until something can be sent or received; send, and return whether to receive."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        events = sum(event for _, event in poll.poll(None if seconds is None else seconds * 1_000))
        if self._unsent and events & select.POLLOUT:
            try:
                del self._unsent[: self._end.send(self._unsent)]
            except OSError:  # the child has gone; what it said before can still be heard
                self._unsent.clear()
        return bool(events & ~select.POLLOUT)

    def _receive(self) -> None:
        try:
            data = self._end.recv(CHUNK)
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        self._received += data

    def _next(self) -> Any:
        """Take a whole message out of what was received."""
        if len(self._received) < HEADER.size:
            return None
        end = HEADER.size + HEADER.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        message = bytes(self._received[HEADER.size : end])
        del self._received[:end]
        return pickle.loads(message)  # noqa: S301 - see above


class ChildLine(Line):
    """The child's end. Any thread may speak, and waits until the message is sent."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end)
        end.settimeout(None)
        self._speaking = threading.Lock()

    def say(self, message: Any) -> None:
        """Send a message, whole. Raises OSError if the worker has gone.

        An interruption waits: after half a message the worker would understand nothing more.
        """
        data = _framed(message)
        with held_back(POKE), self._speaking:
            self._end.sendall(data)


def _framed(message: Any) -> bytes:
    data = pickle.dumps(message)
    return HEADER.pack(len(data)) + data
