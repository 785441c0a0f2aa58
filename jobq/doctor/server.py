"""The server: whether it is fit for a store, how safe it keeps what it is given, its clock."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jobq.doctor.finding import Finding, fail, ok, warn
from jobq.doctor.look import Look
from jobq.oneline import in_units
from jobq.store.addresses import shown

LATE_SECONDS = 1.0  # that two clocks may differ
LISTEN_SECONDS = 1.0  # for a notification to arrive
LOST = {  # what may be lost where a setting is off
    "fsync": "a crash of the machine may lose any job, and ruin the whole database",
    "full_page_writes": "a power cut may leave pages half written, and ruin the database",
    "synchronous_commit": "a crash of the server may lose what your own programs committed in the "
    "last second; jobq turns it on for itself, unless JOBQ_SYNCHRONOUS is NORMAL",
}


def fitness(url: str, look: Look) -> Iterator[Finding]:
    """Check the version, and that it takes writes and any text."""
    from jobq.store.postgres import OLDEST_SERVER  # noqa: PLC0415 - an extra, and slow to load

    about = look.row("server")
    yield ok(f"{shown(url)} answers: PostgreSQL {about['version']}")
    if about["number"] < OLDEST_SERVER * 10_000:
        yield fail(
            f"this is PostgreSQL {about['version']}", f"use a server of {OLDEST_SERVER} or newer"
        )
    if about["standby"]:
        yield fail("this server is a standby and takes no writes", "name the primary in the URL")
    elif about["read_only"]:
        yield fail(
            "default_transaction_read_only is on: nothing can be written",
            "set it to off, or leave it out of the URL",
        )
    if about["encoding"] != "UTF8":
        yield fail(
            f"the database's encoding is {about['encoding']}: it cannot hold every text",
            "make another with `createdb --encoding=UTF8 --template=template0`",
        )
    if about["pid"] != look.raw.info.backend_pid:
        yield ok("a proxy stands between, which gives each transaction a connection")


def durability(settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that what was committed outlives a crash."""
    for name, loss in LOST.items():
        if not settings[name]:
            mend = f"set {name} = on in postgresql.conf, unless this server is for tests"
            yield warn(f"{name} is off: {loss}", mend)
    if all(settings[name] for name in LOST):
        yield ok("what is committed outlives a crash (fsync, synchronous_commit)")


def clock(look: Look, now: Callable[[], float]) -> Finding:
    """Check the server's clock, which decides, against this machine's."""
    before = now()
    there = look.value("now")
    after = now()
    ahead = max(there - after, 0.0) or min(there - before, 0.0)  # 0 if it may be the same
    if abs(ahead) > LATE_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        return warn(
            f"the server's clock is {in_units(abs(ahead))} {way} this machine's",
            "set one by the other: the server's decides when a job is due, and times that are "
            "given to it go by yours",
        )
    return ok("the server's clock agrees with this machine's")


def listening(listener: Look, look: Look) -> Finding:
    """Check that a word said on one connection reaches another that waits for it."""
    word = uuid.uuid4().hex  # others may look at the same time
    listener.tell("listen")
    try:
        look.ask("notify", word=word)
        heard = any(
            notify.payload == word
            for notify in listener.raw.notifies(timeout=LISTEN_SECONDS, stop_after=1)
        )
    finally:
        listener.tell("unlisten")
    if heard:
        return ok("LISTEN works: workers are told of new jobs at once")
    return warn(
        "LISTEN does not work here, as behind a proxy that pools transactions: workers find new "
        "jobs by looking, once in JOBQ_POLL_SECONDS",
        "let the URL name the server itself, or a proxy that pools sessions, if that is too slow",
    )
