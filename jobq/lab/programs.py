"""The programs of a lab: workers, an API or a naive one to be warned by, and a mail server."""

import http.client
import importlib.util
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from jobq.errors import LabError
from jobq.lab import mailbox
from jobq.lab.processes import Process

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 1.0  # for the first answer of an API that listens already


class WorkerProcess(Process):
    """A worker of the lab. `worker` is the name that it goes by in the store."""

    def __init__(self, name: str, folder: Path, url: str, words: Sequence[str]) -> None:
        super().__init__(name, folder, ["jobq", "worker", "--owned", *words], url)
        self.worker = ""

    def wait_until_started(self) -> None:
        """Wait until the worker has said its name, which it does before its first claim."""
        self.wait_until_ready(lambda: self._own_name() is not None)
        self.worker = self._own_name() or ""

    def _own_name(self) -> str | None:
        line = re.search(r"^(\S+) started$", self.log, re.MULTILINE)
        return line[1] if line else None


class BatchProcess(Process):
    """A worker that takes up to `limit` no-op jobs at once; see jobq.lab.batches."""

    def __init__(self, name: str, folder: Path, url: str, limit: int) -> None:
        super().__init__(name, folder, ["jobq.lab.batches", "--limit", str(limit)], url)

    def wait_until_started(self) -> None:
        """Wait until the worker has said its name, which it does before its first claim."""
        self.wait_until_ready(lambda: "started" in self.log)


class ApiProcess(Process):
    """An API of the lab, at the address `url`."""

    def __init__(self, name: str, folder: Path, words: Sequence[str], store: str) -> None:
        self.port = _free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        super().__init__(name, folder, [*words, str(self.port)], store)

    def wait_until_started(self) -> None:
        """Wait until the API answers."""
        self.wait_until_ready(self._answers)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("HEAD", "/")
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
        else:
            return True  # whatever the answer is
        finally:
            connection.close()


class MailServerProcess(Process):
    """A mail server of the lab, on `port`; jobq.lab.mail says what it does with what it is sent."""

    def __init__(self, name: str, folder: Path, port: int | None = None) -> None:
        if importlib.util.find_spec("aiosmtpd") is None:
            raise LabError("the mail server needs aiosmtpd: pip install 'jobq[course]'")
        self.port = _free_port() if port is None else port
        self._file = folder / f"mail-{self.port}.jsonl"
        words = ["jobq.lab.mail", "--file", str(self._file), "--port", str(self.port)]
        super().__init__(name, folder, words)

    def wait_until_started(self) -> None:
        """Wait until the server has said that it listens.

        An answer on its port could be that of another one, which has the port already.
        """
        self.wait_until_ready(lambda: "listens" in self.log)

    def accepted(self) -> list[str]:
        """Return the recipients of the mails that it took, in order."""
        return [mail.to for mail in mailbox.read(self._file) if not mail.dropped]

    def dropped(self) -> list[str]:
        """Return the recipients of the mails that it had taken before and so dropped, in order."""
        return [mail.to for mail in mailbox.read(self._file) if mail.dropped]

    def got_twice(self) -> list[str]:
        """Return the recipients who got the same mail more than once."""
        return mailbox.got_twice(mailbox.read(self._file))


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
