"""The programs of a lab: a worker, an API, and the naive API that the course is warned by."""

import http.client
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from jobq.lab.processes import Process

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 1.0  # for the first answer of an API that listens already


class WorkerProcess(Process):
    """A worker of the lab. `worker` is the name that it goes by in the store."""

    def __init__(self, name: str, folder: Path, url: str, words: Sequence[str]) -> None:
        super().__init__(name, folder, ["jobq", "worker", "--owned", "--url", url, *words])
        self.worker = ""

    def wait_until_started(self) -> None:
        """Wait until the worker has said its name, which it does before its first claim."""
        self.wait_until_ready(lambda: self._own_name() is not None)
        self.worker = self._own_name() or ""

    def _own_name(self) -> str | None:
        line = re.search(r"^(\S+) started$", self.log, re.MULTILINE)
        return line[1] if line else None


class ApiProcess(Process):
    """An API of the lab, at the address `url`."""

    def __init__(self, name: str, folder: Path, words: Sequence[str]) -> None:
        self.port = _free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        super().__init__(name, folder, [*words, str(self.port)])

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


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
