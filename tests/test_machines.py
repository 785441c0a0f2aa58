"""Workers on several machines: network namespaces, each with an address and a cable of its own.

What they share with the server's machine is the kernel and the clock; the network is between
them. Where this process may not make namespaces (it takes Linux and the rights of root), the
tests are skipped: the others, with processes on one machine, hold for all but the network.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from jobq import Event, EventName, Status, Store, open_store
from jobq.lab.pgserver import NoServer, Server, temporary_server
from jobq.lab.throughput import seconds_of
from jobq.lab.waiting import wait_until

IP = shutil.which("ip") or "ip"
COUNT = 3
LEASE = 1.5  # seconds


class Machine:
    """A namespace, joined to the server's machine by a cable that can be pulled."""

    def __init__(self, number: int) -> None:
        self.name = f"jobq-{os.getpid()}-{number}"
        self._cable = f"jq{os.getpid()}-{number}"
        # RFC 2544 sets these addresses apart for measurements: they lead nowhere else.
        net = f"198.18.{os.getpid() % 256}"
        self.server_address = f"{net}.{4 * number + 1}"
        self.address = f"{net}.{4 * number + 2}"

    def set_up(self) -> None:
        """Make the namespace and the cable."""
        ip("netns", "add", self.name)
        there = ("peer", "name", "eth0", "netns", self.name)
        ip("link", "add", self._cable, "type", "veth", *there)
        ip("address", "add", f"{self.server_address}/30", "dev", self._cable)
        ip("-n", self.name, "address", "add", f"{self.address}/30", "dev", "eth0")
        ip("-n", self.name, "link", "set", "eth0", "up")
        self.plug_in()

    def remove(self) -> None:
        """Take the namespace away, and the cable with it."""
        subprocess.run([IP, "netns", "delete", self.name], check=False, capture_output=True)

    def plug_in(self) -> None:
        """Join the machine to the server's."""
        ip("link", "set", self._cable, "up")

    def unplug(self) -> None:
        """Pull the cable: from now on packets are lost, and nobody is told."""
        ip("link", "set", self._cable, "down")


class RemoteWorker:
    """`jobq worker` on a machine."""

    def __init__(self, machine: Machine, url: str, folder: Path) -> None:
        self.machine = machine
        self._log = folder / f"{machine.name}.log"
        words = [sys.executable, "-m", "jobq", "worker", "--owned", "--lease", str(LEASE)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [IP, "netns", "exec", machine.name, *words, "--url", url],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(encoding="utf-8")

    @property
    def name(self) -> str:
        """Its name in the store, once it has started."""
        return self.log.partition(" started\n")[0]

    def wait_until_started(self) -> None:
        """Wait until it has said its name, which it does before its first claim."""
        wait_until(lambda: self.name or self.process.poll() is not None, "the worker to start")
        assert self.process.poll() is None, self.log

    def end(self) -> None:
        """Kill it, if it still runs."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def ip(*words: str) -> None:
    """Run `ip`, which changes the network of this machine."""
    subprocess.run([IP, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Machine]]:
    """Return machines that are joined to this one."""
    if sys.platform != "linux" or shutil.which(IP) is None:
        pytest.skip("needs Linux's network namespaces, and `ip`")
    with ExitStack() as end:
        made = [Machine(number) for number in range(COUNT)]
        for machine in made:
            end.callback(machine.remove)
            try:
                machine.set_up()
            except subprocess.CalledProcessError as error:
                pytest.skip(f"may not make network namespaces: {error.stderr.decode().strip()}")
        yield made


@pytest.fixture(scope="module")
def server(machines: list[Machine]) -> Iterator[Server]:
    """Return a server that the machines can reach."""
    addresses = ["127.0.0.1", *(machine.server_address for machine in machines)]
    options = {"listen_addresses": ",".join(addresses), "fsync": "off"}
    with ExitStack() as end:
        try:
            server = end.enter_context(temporary_server(options=options))
        except NoServer as error:
            pytest.skip(str(error))
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.writelines(f"host all all {m.address}/32 scram-sha-256\n" for m in machines)
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    """Return an empty store on the server, as its own machine sees it."""
    with closing(open_store(server.url())) as store:
        yield store
        with store.transaction() as tx:
            tx.execute("TRUNCATE jobs, attempts, events, marks")


@pytest.fixture
def workers(
    store: Store, server: Server, machines: list[Machine], tmp_path: Path
) -> Iterator[list[RemoteWorker]]:
    """Return a worker on each machine, ready to claim."""
    assert store.last_event() == 0
    with ExitStack() as end:
        started = []
        for machine in machines:
            end.callback(machine.plug_in)
            place = f"{machine.server_address}:{urlsplit(server.url()).port}"
            url = server.url().replace(f"127.0.0.1:{urlsplit(server.url()).port}", place)
            started.append(RemoteWorker(machine, url, tmp_path))
            end.callback(started[-1].end)
        for worker in started:
            worker.wait_until_started()
        yield started


def named(store: Store, name: EventName) -> list[Event]:
    """Return the events of that name."""
    return [event for event in store.events(limit=100_000) if event.name is name]


def test_workers_on_several_machines_share_the_jobs(
    store: Store, server: Server, machines: list[Machine], workers: list[RemoteWorker]
) -> None:
    """Each reaches the server over its own cable and does a part; every job runs once."""
    wanted = [{"kind": "nap", "payload": {"seconds": 0.02}}] * 150
    ids = [entry.job.id for entry in store.enqueue_many(wanted)]
    wait_until(lambda: store.stats().counts[Status.DONE] == len(ids), "the jobs to be done")
    with psycopg.connect(server.url()) as admin:
        rows = admin.execute("SELECT DISTINCT host(client_addr) FROM pg_stat_activity").fetchall()
    took = [worker.log.count(" took ") for worker in workers]
    assert seconds_of(store.events(limit=100_000), ids, took) > 0
    assert min(took) > 0
    assert {machine.address for machine in machines} <= {row[0] for row in rows}


def test_a_machine_that_is_cut_off_loses_its_job_to_another(
    store: Store, workers: list[RemoteWorker]
) -> None:
    """Its lease runs out and another machine runs the job; back again, it changes nothing."""
    job = store.enqueue("nap", {"seconds": 2.5 * LEASE}).job
    wait_until(lambda: named(store, EventName.CLAIMED), "the claim")
    [claim] = named(store, EventName.CLAIMED)
    [cut_off] = [worker for worker in workers if worker.name == claim.worker]
    cut_off.machine.unplug()
    wait_until(lambda: named(store, EventName.DONE), "another machine to finish it")
    done = store.get(job.id)
    cut_off.machine.plug_in()
    wait_until(lambda: f"lost {job.id[:8]}" in cut_off.log, "it to learn that it lost the job", 60)
    assert store.get(job.id) == done
    [first, second] = named(store, EventName.CLAIMED)
    [end] = named(store, EventName.DONE)
    assert first.worker == cut_off.name != second.worker == end.worker
    assert cut_off.process.poll() is None
