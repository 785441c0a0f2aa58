"""`jobq serve` and `jobq worker`: the processes of a queue."""

import ipaddress
import logging
import signal
import socket
import sys
from contextlib import closing

import typer

from jobq.cli.modules import check_known, import_modules
from jobq.cli.options import (
    Grace,
    Heartbeat,
    Host,
    Imports,
    Isolate,
    IsolatedKinds,
    Lease,
    Owned,
    Poll,
    Port,
    UntilIdle,
    Url,
)
from jobq.cli.stores import store_for
from jobq.errors import JobqError, SettingsInvalid
from jobq.owned import die_with_parent
from jobq.settings import Settings, load_settings
from jobq.worker import Worker

STOP_SECONDS = 3  # that requests have to end; a client that reads no more would take for ever
RULE_OF_TOKEN = Settings.model_fields["token"].description


def serve(
    *,
    host: Host = None,
    port: Port = None,
    url: Url = None,
    imports: Imports = None,
    owned: Owned = False,
) -> None:
    """Answer HTTP requests.

    POST /reports and POST /jobs take a job, GET /jobs/{id} tells how it stands, and /docs
    describes the rest. Ctrl-C stops it. Where others can reach it, it wants a JOBQ_TOKEN, which
    operators have to send.
    """
    if owned:
        die_with_parent(sys.stdin)
    # The web server takes half a second to import, and only this command needs it.
    import uvicorn  # noqa: PLC0415 - see the line above

    from jobq.api import app_for  # noqa: PLC0415 - see above

    settings = load_settings(host=host, port=port, url=url)
    import_modules(imports or [])
    with _listen(settings) as listener, closing(store_for(settings)) as store:
        _say_where(listener)
        logging.raiseExceptions = False  # a log whose reader has gone is no reason for a traceback
        # uvicorn shuts down on SIGTERM and raises it again, which would leave the store open.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        app = app_for(settings, store)
        config = uvicorn.Config(app, timeout_graceful_shutdown=STOP_SECONDS)
        uvicorn.Server(config).run(sockets=[listener])


def worker(  # noqa: PLR0913 - each is an option of the command
    *,
    url: Url = None,
    lease: Lease = None,
    grace: Grace = None,
    heartbeat: Heartbeat = None,
    poll: Poll = None,
    isolate: Isolate = None,
    isolate_kinds: IsolatedKinds = None,
    imports: Imports = None,
    until_idle: UntilIdle = False,
    owned: Owned = False,
) -> None:
    """Run jobs, one at a time, until stopped.

    Ctrl-C or SIGTERM lets the current job end; a second one gives the job back.
    """
    if owned:
        die_with_parent(sys.stdin)
    seconds = {"lease": lease, "heartbeat": heartbeat, "grace": grace, "poll": poll}
    chosen = {f"{name}_seconds": value for name, value in seconds.items()}
    settings = load_settings(url=url, isolate=isolate, **chosen)
    import_modules(imports or [])
    isolated = frozenset(isolate_kinds or [])
    check_known(isolated, "name one that this worker knows, or its module with --import")
    with closing(store_for(settings)) as store:
        worker = Worker(
            store,
            lease_seconds=settings.lease_seconds,
            grace_seconds=settings.grace_seconds,
            poll_seconds=settings.poll_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
            isolate=settings.isolate or isolated,
        )
        _let_stop_signals_pass()
        worker.run(until_idle=until_idle)


def _let_stop_signals_pass() -> None:
    """See to it that a second Ctrl-C, just after the worker stopped, does not spoil its end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as the shell sets it for `… &`
            signal.signal(number, lambda *_: None)


def _listen(settings: Settings) -> socket.socket:
    """Return the listening socket: a port in use is known before anything else is done.

    Raises SettingsInvalid if others could reach it and no token is set.
    """
    host, port = settings.host, settings.port
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if settings.token is None and not _is_loopback(str(address[0])):
            raise SettingsInvalid(
                f"host {host} lets others reach the server, and no token is set: set JOBQ_TOKEN to "
                f"{RULE_OF_TOKEN}, or keep to this machine with --host 127.0.0.1"
            )
        listener = socket.create_server((str(address[0]), port), family=family)
    except OSError as error:
        raise JobqError(
            f"cannot listen on {host}, port {port}: {error.strerror}; "
            "stop what uses it, or choose another with --host and --port"
        ) from None
    # asyncio does this for sockets of its own making; without it an answer waits up to 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _say_where(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    typer.echo(f"api listens on http://{address} (Ctrl-C stops it)", err=True)
    if not _is_loopback(host):
        typer.echo(
            "jobq: warning: whoever can reach this port can submit jobs and poll for them, and "
            "the token goes over it unencrypted; --host 127.0.0.1 keeps it to this machine",
            err=True,
        )
