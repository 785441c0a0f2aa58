"""Is this machine ready for the course? One line for each thing that it needs."""

import socket
import sqlite3
import sys
from importlib.util import find_spec

from jobq import sales
from jobq.errors import JobqError
from jobq.store.sqlite import OLDEST_SQLITE

OLDEST_PYTHON = (3, 11)


def check_setup() -> None:
    """Print each need and whether it is met, and how to mend it if not."""
    needs = (
        ("Python 3.11 or newer", sys.version_info >= OLDEST_PYTHON, "install a newer Python"),
        (
            "SQLite 3.37 or newer",
            sqlite3.sqlite_version_info >= OLDEST_SQLITE,
            "install a Python that brings a newer SQLite",
        ),
        ("matplotlib", find_spec("matplotlib") is not None, "pip install 'jobq[course]'"),
        ("a free port on loopback", _port_is_free(), "allow this Python to listen on 127.0.0.1"),
        ("the sales data", _has_sales(), "get data/sales.csv from the project again"),
    )
    for need, met, mend in needs:
        print(f"{need}: {'yes' if met else f'NO; {mend}'}")


def _port_is_free() -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", 0))
        except OSError:
            return False
    return True


def _has_sales() -> bool:
    try:
        return bool(sales.report(2024)["orders"])
    except JobqError:
        return False
