"""A proxy that lends few sessions of the server to many clients, for one transaction each."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from jobq import Status, Store
from jobq.lab.waiting import wait_until
from jobq.store.pgpool import Connections

if TYPE_CHECKING:
    from jobq.lab.pgserver import Server

LEASE = 60.0
BOUNCER = """
[databases]
* = host=127.0.0.1 port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
"""


class Bouncer:
    """`pgbouncer` as a real process: two sessions of the server, lent for one transaction each."""

    def __init__(self, program: str, folder: Path, server: "Server") -> None:
        parts = urlsplit(server.url())
        self.port = free_port()
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            BOUNCER.format(
                port=server.port,
                user=parts.username,
                password=parts.password,
                own_port=self.port,
            )
        )
        words = [program, str(configuration)]
        if hasattr(os, "geteuid") and os.geteuid() == 0:  # it refuses to run as root
            words[1:1] = ["-u", "nobody"]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        wait_until(lambda: is_open(self.port), "pgbouncer to listen")

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    """Return the number of a port that is free at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_open(port: int) -> bool:
    """Whether somebody listens at a port."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def pooled(pg_server: "Server", tmp_path: Path) -> Iterator[str]:
    """Return the URL of a new database that is reached by way of a pooling proxy."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("there is no pgbouncer here: `apt-get install pgbouncer` brings it")
    with (
        closing(psycopg.connect(pg_server.url(), autocommit=True)) as control,
        closing(Bouncer(program, tmp_path, pg_server)) as bouncer,
    ):
        control.execute("CREATE DATABASE pooled")
        yield f"postgresql://anybody@127.0.0.1:{bouncer.port}/pooled"
    with closing(psycopg.connect(pg_server.url(), autocommit=True)) as control:
        control.execute("DROP DATABASE pooled WITH (FORCE)")


def test_the_whole_life_of_jobs_passes_through_a_pooling_proxy(
    pooled: str, opened: Callable[..., Store], assert_consistent: Callable[[Store], None]
) -> None:
    """Eight threads share two sessions: nothing that a session keeps is relied on."""
    store = opened(pooled)

    def live_through(number: int) -> None:
        for n in range(15):
            store.enqueue("nap", {"n": n}, f"{number}-{n}")
            assert not store.enqueue("nap", {"n": n}, f"{number}-{n}").created
            store.enqueue_many([{"kind": "nap", "payload": {}}] * 2)
            while jobs := store.claim_many(f"w{number}", 2, LEASE):
                store.heartbeat(jobs[0], LEASE)
                if n % 3 == 0:
                    store.release(jobs[0])
                    store.finish_many([(job, n) for job in jobs[1:]])
                    break
                store.finish_many([(job, n) for job in jobs])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(live_through, range(8)))
    while job := store.claim("last", LEASE):
        store.finish(job, 1)
    assert store.stats().counts[Status.DONE] == 8 * 15 * 3
    assert_consistent(store)


def test_statements_are_prepared_on_the_servers_own_connections_alone(
    pooled: str, pg_server: "Server"
) -> None:
    """A proxy would give a prepared statement's next run to a session that does not know it."""

    def prepares(url: str) -> bool:
        with closing(Connections(url, 5.0)) as connections, connections.lend() as raw:
            return raw.prepare_threshold is not None

    assert prepares(pg_server.url())
    assert not prepares(pooled)


def test_behind_a_pooling_proxy_that_hears_no_notification_polling_finds_the_jobs(
    pooled: str, opened: Callable[..., Store]
) -> None:
    """A listener needs a session of its own; without one it knows that it hears nothing."""
    waiting, other = opened(pooled), opened(pooled)
    with ThreadPoolExecutor(1) as thread:
        for _ in range(3):
            wait = thread.submit(waiting.wait, waiting.change_mark(), 30.0)
            other.enqueue("nap", {})
            wait.result(10.0)
            assert waiting.claim("w1", LEASE) is not None
    assert not waiting._engine._listening().trusted  # type: ignore[attr-defined]  # PostgreSQL's
