"""The machine: Python, SQLite, Jupyter, the port, and what earlier labs left behind."""

import errno
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from jobq.doctor.finding import Finding, fail, ok, warn
from jobq.doctor.holders import command

OLDEST_PYTHON = (3, 11)
KERNEL = "python3"  # the one that the notebooks name
# Words for "the Python that runs Jupyter": see KernelManager.format_kernel_cmd of jupyter_client.
OWN_PYTHON = {"python", "python3", f"python3.{sys.version_info.minor}"}
LAST_PORT = 65_535
NAMED = 3  # folders that a line names


def python(version: tuple[int, ...]) -> Finding:
    """Check the version of Python."""
    shown = ".".join(map(str, version[:3]))
    if version < OLDEST_PYTHON:
        return fail(f"this is Python {shown}", "install Python 3.11 or newer")
    return ok(f"Python {shown}")


def sqlite(version: tuple[int, ...], oldest: tuple[int, ...]) -> Finding:
    """Check the version of SQLite that this Python brings."""
    shown = ".".join(map(str, version))
    if version < oldest:
        needed = ".".join(map(str, oldest[:2]))
        return fail(f"this is SQLite {shown}", f"install a Python with SQLite {needed} or newer")
    return ok(f"SQLite {shown}")


def kernel(executable: str) -> Finding:
    """Check that notebooks are run by this Python, and not by one without jobq."""
    try:
        # Takes a third of a second to import, and a plain install does not have it.
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel  # noqa: PLC0415
    except ImportError:
        return ok("Jupyter is not installed here: the notebooks need `jobq[course]`")
    mend = f"`{executable} -m ipykernel install --sys-prefix` makes it this Python's"
    try:
        spec = KernelSpecManager().get_kernel_spec(KERNEL)
    except NoSuchKernel:
        return warn(f"Jupyter has no kernel {KERNEL}", mend)
    program = spec.argv[0]
    # Compared by folder: each environment's python may be a link to the same file.
    if program in OWN_PYTHON or Path(program).parent.resolve() == Path(executable).parent.resolve():
        return ok("notebooks are run by this Python")
    return warn(f"notebooks are run by another Python, {program} ({spec.resource_dir})", mend)


def port(host: str, number: int) -> Finding:
    """Check that a server could listen, or that one of jobq's does."""
    try:
        family, *_, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        socket.create_server((str(address[0]), number), family=family).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            mend = "name an address of this machine and a port above 1023 (JOBQ_HOST, JOBQ_PORT)"
            return warn(f"nobody can listen on {host}, port {number} ({error.strerror})", mend)
    else:
        return ok(f"port {number} is free")
    user = _who_listens(number)
    name = "a process of another user" if user is None else f"pid {user.pid} ({command(user)})"
    if user is not None and any("jobq" in word for word in user.cmdline()):
        return ok(f"port {number} is served by {name}")
    other = number + 1 if number < LAST_PORT else number - 1
    mend = f"end that, or choose another port: `jobq serve --port {other}`"
    return warn(f"port {number} is used by {name}", mend)


def leftovers(folders: Sequence[Path]) -> Finding:
    """Check that no lab, killed with its kernel, has left its folder."""
    if not folders:
        return ok("no leftovers of an earlier lab")
    names = " ".join(map(str, folders[:NAMED])) + (" …" if len(folders) > NAMED else "")
    return warn(
        f"{len(folders)} folder(s) left by earlier labs",
        f"the next lab removes them, or you: rm -r {names}",
    )


def _who_listens(number: int) -> psutil.Process | None:
    """Return who listens on the port, if the system tells this user."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (number,)
            if listens and connection.pid:
                return psutil.Process(connection.pid)
    return None
