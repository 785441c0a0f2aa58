"""Server-Sent Events, followed over as many connections as it takes.

The protocol is in the HTML standard, section 9.2: html.spec.whatwg.org/#server-sent-events.
"""

import codecs
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import httpx

from jobq.client.remote import RemoteEvent
from jobq.client.requests import Lost, Requests
from jobq.errors import ClientError

SILENCE = 60.0  # seconds without a byte until a stream, kept alive every 15, counts as lost
LASTING = 5.0  # seconds; what lasted so long was a stream, though nothing happened
LONGEST_MESSAGE = 10_000_000  # characters
NUMBER = re.compile("[0-9]{1,9}")
NO_CONTENT = 204


class _NoMore(Exception):
    """The server says that there will be no more events."""


def follow(
    requests: Requests, path: str, after: int | None, patience: float, *, forever: bool
) -> Iterator[RemoteEvent]:
    """Yield the events behind `after`; those of one job until it is final, unless `forever`.

    Raises ServerUnreachable once there was no stream for `patience` seconds, and what other
    requests raise.
    """
    stream = _Stream(requests, path, after)
    heard, failures, final = requests.clock(), 0, False
    while True:
        began, seen, lost = requests.clock(), stream.last, Lost("its streams end at once")
        try:
            for event in stream.connection():
                final = event.status.final
                yield event
            if final and not forever:  # a final event with others behind it was an earlier end
                return
        except _NoMore:
            return
        except Lost as error:
            lost = error
        now = requests.clock()
        if stream.last != seen or now - began > LASTING:
            heard, failures = now, 0
        failures += 1
        lost.pause = max(lost.pause, stream.pause)
        requests.back_off(failures, heard + patience, lost)


class _Stream:
    """The events of one path, over one connection after the other."""

    def __init__(self, requests: Requests, path: str, last: int | None) -> None:
        self.last = last  # event that was seen
        self.pause = 0.0  # in seconds, that the server wants before each further connection
        self._requests = requests
        self._path = path

    def connection(self) -> Iterator[RemoteEvent]:
        """Yield the events of one connection. Raises _NoMore, and Lost when it breaks."""
        headers = {"Accept": "text/event-stream"}
        headers |= {} if self.last is None else {"Last-Event-ID": str(self.last)}
        with self._requests.stream(self._path, headers, SILENCE) as answer:
            if answer.status_code == NO_CONTENT:
                raise _NoMore
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                raise ClientError(f"{answer.url} is no stream of events: is it another program's?")
            for name, value in fields(_chunks(answer)):
                if name == "retry" and NUMBER.fullmatch(value):
                    self.pause = int(value) / 1000
                if name == "data":
                    event = RemoteEvent.of(_value(value))
                    if self.last is None or event.seq > self.last:
                        self.last = event.seq
                        yield event


def fields(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each field, but `data` whole, once its message is complete."""
    data: list[str] = []
    for line in _lines(chunks):
        name, _, value = line.partition(":")  # nothing before it: a comment, to keep alive
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name:
            yield name, value
        elif not line and data:
            yield "data", "\n".join(data)
            data = []


def _chunks(answer: httpx.Response) -> Iterator[bytes]:
    # Errors are caught here and no further out: what the user of the events raises is not ours.
    try:
        yield from answer.iter_bytes()
    except httpx.TransportError as error:
        raise Lost(f"{error}" or type(error).__name__) from None


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield the complete lines. They end with CR, LF or both, and with nothing else."""
    text = codecs.getincrementaldecoder("utf-8")("replace")
    decoder = io.IncrementalNewlineDecoder(text, translate=True)
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from lines
        if len(rest) > LONGEST_MESSAGE:
            raise ClientError(f"a line of the stream has over {LONGEST_MESSAGE:,} characters")


def _value(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ClientError(f"an event of the stream is no JSON: {data:.200}") from None
