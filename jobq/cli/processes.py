"""`jobq serve` and `jobq worker`: the processes of a queue."""

import importlib
import ipaddress
import logging
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path

import typer

from jobq.cli.options import Grace, Host, Imports, Lease, Owned, Poll, Port, UntilIdle, Url
from jobq.cli.stores import store_for
from jobq.errors import InvalidInput, JobqError
from jobq.owned import die_with_parent
from jobq.settings import load_settings
from jobq.worker import Worker


def serve(*, host: Host = None, port: Port = None, url: Url = None, owned: Owned = False) -> None:
    """Answer HTTP requests.

    POST /reports takes a job, GET /jobs/{id} tells how it stands. Ctrl-C stops it.
    """
    if owned:
        die_with_parent(sys.stdin)
    # The web server takes half a second to import, and only this command needs it.
    import uvicorn  # noqa: PLC0415 - see the line above

    from jobq.api import create_app  # noqa: PLC0415 - see above

    settings = load_settings(host=host, port=port, url=url)
    with _listen(settings.host, settings.port) as listener, closing(store_for(settings)) as store:
        _say_where(listener)
        logging.raiseExceptions = False  # a log whose reader has gone is no reason for a traceback
        # uvicorn shuts down on SIGTERM and raises it again, which would leave the store open.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        app = create_app(store, max_attempts=settings.max_attempts)
        uvicorn.Server(uvicorn.Config(app)).run(sockets=[listener])


def worker(
    *,
    url: Url = None,
    lease: Lease = None,
    grace: Grace = None,
    poll: Poll = None,
    imports: Imports = None,
    until_idle: UntilIdle = False,
    owned: Owned = False,
) -> None:
    """Run jobs, one at a time, until stopped.

    Ctrl-C or SIGTERM lets the current job end; a second one gives the job back.
    """
    if owned:
        die_with_parent(sys.stdin)
    settings = load_settings(url=url, lease_seconds=lease, grace_seconds=grace, poll_seconds=poll)
    for module in imports or []:
        _import(module)
    with closing(store_for(settings)) as store:
        worker = Worker(
            store,
            lease_seconds=settings.lease_seconds,
            grace_seconds=settings.grace_seconds,
            poll_seconds=settings.poll_seconds,
        )
        _let_stop_signals_pass()
        worker.run(until_idle=until_idle)


def _let_stop_signals_pass() -> None:
    """See to it that a second Ctrl-C, just after the worker stopped, does not spoil its end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as the shell sets it for `… &`
            signal.signal(number, lambda *_: None)


def _listen(host: str, port: int) -> socket.socket:
    """Return the listening socket: a port in use is known before anything else is done."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except OSError as error:
        raise JobqError(
            f"cannot listen on {host}, port {port}: {error.strerror}; "
            "stop what uses it, or choose another with --host and --port"
        ) from None


def _say_where(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    typer.echo(f"api listens on http://{address} (Ctrl-C stops it)", err=True)
    if not ipaddress.ip_address(host).is_loopback:
        typer.echo(
            "jobq: warning: whoever can reach this port can submit jobs and read them; "
            "--host 127.0.0.1 keeps it to this machine",
            err=True,
        )


def _import(module: str) -> None:
    """Import a module from the current folder or the environment, as `python -m` would."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever a user's module raises
        raise InvalidInput(
            f"--import {module}: {type(error).__name__}: {error}; name the module as Python does: "
            "tasks stands for tasks.py in this folder"
        ) from error
