"""`jobq pg`: a PostgreSQL server of one's own, for a machine that has none to use."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from jobq.cli.options import ServerFolder
from jobq.errors import LabError

if TYPE_CHECKING:
    from jobq.lab.pgserver import Server

# The lab loads what experiments need, and no other command waits for that: imported when called.


def start(*, folder: ServerFolder = None) -> None:
    """Start the server, and print the line to paste.

    With that line, it is the store of your commands. The first start makes an empty database. The
    server listens on this machine alone, and goes on when the terminal is closed: `jobq pg stop`
    ends it.
    """
    from jobq.lab.pgserver import make_server  # noqa: PLC0415 - see above

    server = make_server(folder or _usual_folder())
    typer.echo(f"a server runs in {server.folder}; your commands use it after this line:", err=True)
    # PowerShell's form, and that of the shells everywhere else.
    form = "$env:JOBQ_URL = '{}'" if sys.platform == "win32" else "export JOBQ_URL='{}'"
    typer.echo(form.format(server.url()))


def stop(*, folder: ServerFolder = None) -> None:
    """Stop the server; what is in it is kept."""
    server = _running(folder)
    if server is None:
        typer.echo(f"no server runs in {folder or _usual_folder()}: nothing to stop")
        return
    server.stop()
    typer.echo(f"stopped, and all is kept: `{_start_line(folder)}` starts it again")


def url(*, folder: ServerFolder = None) -> None:
    """Print its URL and nothing else.

    As for JOBQ_URL=$(jobq pg url). The exit code is 1 if it does not run.
    """
    server = _running(folder)
    if server is None:
        raise LabError(
            f"no server runs in {folder or _usual_folder()}: `{_start_line(folder)}` starts one"
        )
    typer.echo(server.url())


def _running(folder: Path | None) -> "Server | None":
    from jobq.lab.pgserver import find_server  # noqa: PLC0415 - see above

    server = find_server(folder or _usual_folder())
    return server if server and server.pid else None


def _start_line(folder: Path | None) -> str:
    words = ["jobq", "pg", "start", *(["--folder", str(folder)] if folder else [])]
    return shlex.join(words)


def _usual_folder() -> Path:
    """Return where the user's programs keep their data, so that every terminal finds the server."""
    home = Path("~").expanduser()
    if sys.platform == "win32":
        data = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        data = home / "Library" / "Application Support"
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return data / "jobq" / "pg"
