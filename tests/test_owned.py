import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from tests.conftest import Program

# A program that has an owner, and answers SIGUSR1.
OWNED = """
import os, signal, sys, threading
from jobq.owned import die_with_parent
die_with_parent(sys.stdin)
signal.signal(signal.SIGINT, lambda *_: os._exit(3))
if hasattr(signal, "SIGUSR1"):
    signal.signal(signal.SIGUSR1, lambda *_: print("still here", flush=True))
print(os.getpid(), flush=True)
while True:
    threading.Event().wait(60)
"""

OWNER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE).wait()
"""


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended and was not collected yet does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_ends_with_its_standard_input(start: Callable[..., "Program"]) -> None:
    """A process exits, with code 0, when its owner closes the pipe."""
    program = start(OWNED)
    program.hear()
    assert program.process.stdin is not None
    program.process.stdin.close()
    assert program.process.wait(10) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGUSR1 there")
def test_leaves_ctrl_c_to_its_owner(start: Callable[..., "Program"]) -> None:
    """SIGINT does not reach the process, whatever handler it installs later."""
    program = start(OWNED)
    program.hear()
    program.process.send_signal(signal.SIGINT)
    program.process.send_signal(signal.SIGUSR1)
    assert program.hear() == "still here"


def test_does_not_outlive_a_killed_owner(start: Callable[..., "Program"]) -> None:
    """SIGKILL gives the owner no time for anything; the process ends all the same."""
    owner = start(OWNER, OWNED)
    owned = psutil.Process(int(owner.hear()))
    owner.process.kill()
    deadline = time.monotonic() + 10
    while alive(owned):
        assert time.monotonic() < deadline, "waited for the process to end with its owner"
