"""Requests that are repeated until they are answered, as long as that is safe."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from jobq.errors import ClientError, InvalidInput, ServerRefused, ServerUnreachable
from jobq.retry import RetryPolicy

BACKOFF = RetryPolicy(base=0.2, factor=2, cap=2, jitter="full")
TRY_SECONDS = 10.0  # that a server may take for an answer, besides what it was asked to wait
LEAST_SECONDS = 1.0  # for the last try, however near the deadline is
LONGEST_ANSWER = 200_000_000  # bytes
LONGEST_TEXT = 500  # characters of an error that is no problem document
PASSING = {429, 502, 503, 504}  # status codes of what may be otherwise soon

# An idle connection is given up before uvicorn does so, after 5 s: a request could meet that.
LIMITS = httpx.Limits(keepalive_expiry=2.0)
# The request cannot have arrived.
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

T = TypeVar("T")


class Lost(Exception):
    """There was no answer, or none that lasts, and there may be one after `pause` seconds."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered, all of it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body's value. Raises ClientError if it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise self.strange() from None

    def member(self, name: str, kind: type[T]) -> T:
        """Return a member of the body, which is an object. Raises ClientError."""
        value = self.json()
        if not isinstance(value, dict) or name not in value or not isinstance(value[name], kind):
            raise self.strange()
        found: T = value[name]
        return found

    def strange(self) -> ClientError:
        """Return the error for an answer that no jobq server gives."""
        return ClientError(
            f"{self.url} answered {self.status} with {self.body[:60]!r}, as no jobq server does: "
            "is it another program's address?"
        )

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait before asking again, by the server's own clock if it is a date."""
        text = self.headers.get("Retry-After", "")
        if re.fullmatch("[0-9]{1,9}", text):
            return float(text)
        try:
            wait = parsedate_to_datetime(text) - parsedate_to_datetime(self.headers["Date"])
        except (ValueError, KeyError, TypeError, OverflowError):
            return None
        return max(0.0, wait.total_seconds())


class Requests:
    """Sends requests to one server."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        transport: httpx.BaseTransport | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        random: Callable[[], float],
    ) -> None:
        self.url = _checked_url(url)
        self.clock = clock
        self._sleep = sleep
        self._random = random
        self._http = httpx.Client(
            base_url=self.url,
            headers={} if token is None else {"Authorization": f"Bearer {_checked_token(token)}"},
            transport=transport,
            limits=LIMITS,
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        deadline: float,
        *,
        query: Mapping[str, Any] | None = None,
        body: str | None = None,
        key: str | None = None,
        wait: int = 0,
        etag: str | None = None,
    ) -> Answer:
        """Return the answer; ask again until `deadline` for one that did not come.

        What is not a GET and has no `key` is sent again only if it cannot have arrived. The server
        may `wait` so many seconds, or answer that what has the `etag` is unchanged.
        """
        headers = {
            "Content-Type": "application/json" if body else None,
            "Idempotency-Key": key,
            "Prefer": f"wait={wait}" if wait else None,
            "If-None-Match": etag,
        }
        request = self._http.build_request(
            method, path, params=_given(query or {}), content=body, headers=_given(headers)
        )
        harmless = method == "GET" or key is not None
        return accepted(method, self._answered(request, deadline, wait, harmless=harmless))

    @contextmanager
    def stream(
        self, path: str, headers: Mapping[str, str], silence: float
    ) -> Iterator[httpx.Response]:
        """Give the answer to a GET, to be read as it comes; `silence` bounds the waits in it.

        Raises Lost if there is none, and ServerRefused.
        """
        timeout = httpx.Timeout(TRY_SECONDS, read=silence)
        request = self._http.build_request("GET", path, headers=headers, timeout=timeout)
        try:
            response = self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise Lost(_in_words(error)) from None
        try:
            if response.status_code >= 300:  # noqa: PLR2004 - RFC 9110, section 15
                answer = self._whole(response, self.clock() + TRY_SECONDS)
                if answer.status in PASSING:
                    raise Lost(f"it answers {answer.status}", answer.retry_after or 0.0)
                accepted("GET", answer)
            yield response
        finally:
            response.close()

    def back_off(self, failures: int, deadline: float, lost: Lost) -> None:
        """Sleep until the next try. Raises ServerUnreachable if that would be too late."""
        left = deadline - self.clock()
        if left <= 0:
            raise ServerUnreachable(self.url, str(lost))
        if lost.pause > left:
            raise ServerUnreachable(self.url, f"{lost}, and asks to wait {lost.pause:g} s")
        self._sleep(min(left, max(lost.pause, BACKOFF.delay(failures, self._random))))

    def _answered(
        self, request: httpx.Request, deadline: float, wait: int, *, harmless: bool
    ) -> Answer:
        """Send the request, if it is harmless again and again, and return the answer."""
        failures = 0
        while True:
            try:
                answer = self._once(request, deadline, wait)
                if answer.status not in PASSING or not harmless:
                    return answer
                lost = Lost(f"it answers {answer.status}", answer.retry_after or 0.0)
            except httpx.TransportError as error:
                lost = Lost(_in_words(error))
                if not harmless and not isinstance(error, UNSENT):
                    why = f"{lost}; it may have done what it was asked for"
                    raise ServerUnreachable(self.url, why) from None
            failures += 1
            self.back_off(failures, deadline, lost)

    def _once(self, request: httpx.Request, deadline: float, wait: int) -> Answer:
        """Send the request and read the answer, with the deadline in sight."""
        seconds = max(LEAST_SECONDS, min(wait + TRY_SECONDS, deadline - self.clock()))
        request.extensions["timeout"] = httpx.Timeout(seconds).as_dict()
        end = self.clock() + seconds
        response = self._http.send(request, stream=True)
        try:
            return self._whole(response, end)
        finally:
            response.close()

    def _whole(self, response: httpx.Response, end: float) -> Answer:
        body = bytearray()
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if self.clock() > end:  # each piece in time, and yet no end of it
                    raise httpx.ReadTimeout("its answer has no end")
                if len(body) > LONGEST_ANSWER:
                    raise ClientError(f"{response.url} answers with over {LONGEST_ANSWER:,} bytes")
        except httpx.DecodingError as error:
            raise ClientError(f"{response.url} answers with a damaged body: {error}") from None
        return Answer(str(response.url), response.status_code, response.headers, bytes(body))


def accepted(method: str, answer: Answer) -> Answer:
    """Return the answer if it is what was asked for. Raises ServerRefused for all others."""
    if answer.status < 300 or answer.status == 304:  # noqa: PLR2004 - RFC 9110, section 15
        return answer
    try:
        problem = json.loads(answer.body)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict):
        text = answer.body[:LONGEST_TEXT].decode("utf-8", "replace")
        problem = {"detail": answer.headers.get("Location") or text}
    raise ServerRefused(f"{method} {answer.url}", answer.status, problem)


def _given(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _in_words(error: httpx.TransportError) -> str:
    """Return what happened; httpx's own words are none for a timeout of some systems."""
    return str(error).strip() or type(error).__name__


def _checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise InvalidInput(f"url is {url!r}: {error}; use http://127.0.0.1:8718") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise InvalidInput(f"url is {url!r}: use one such as http://127.0.0.1:8718")
    return str(url)


def _checked_token(token: str) -> str:
    if not token or not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidInput("token cannot travel in a header: use printable ASCII without blanks")
    return token
