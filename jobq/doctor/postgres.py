"""A PostgreSQL store: the server, the schema, and those who use them."""

from collections.abc import Callable, Iterator

from jobq.doctor import queue, server, sessions, tables
from jobq.doctor.checking import tried
from jobq.doctor.finding import Finding, Grade, fail
from jobq.doctor.look import Look, looking
from jobq.store import refusals
from jobq.store.addresses import shown


def examine(url: str, now: Callable[[], float]) -> Iterator[Finding]:
    """Yield what there is to say about the store; `now` is this machine's clock."""
    try:
        import psycopg  # noqa: PLC0415 - an install for SQLite alone does not have it
    except ImportError as error:
        yield fail(f"psycopg cannot be loaded ({error})", "pip install 'jobq[postgres]'")
        return
    try:
        with looking(url) as look:
            yield from _examine_server(url, look, now)
            yield from _examine_sessions(url, look)
            yield from _examine_store(look)
    except psycopg.Error as error:
        why = refusals.reason(error)
        yield fail(f"no connection to {shown(url)} ({why})", refusals.mend(error))


def _examine_server(url: str, look: Look, now: Callable[[], float]) -> Iterator[Finding]:
    """Yield what there is to say about the server, whatever is in it."""
    yield from tried("the server", lambda: server.fitness(url, look))
    yield from tried("its durability", lambda: server.durability(look.row("durability")))
    yield from tried("its clock", lambda: server.clock(look, now))


def _examine_sessions(url: str, look: Look) -> Iterator[Finding]:
    """Yield what there is to say about those who are connected."""
    yield from tried("the connections", lambda: sessions.room(look.row("connections")))
    yield from tried("LISTEN", lambda: _listens(url, look))
    yield from tried("who is connected", lambda: sessions.users(look.ask("users")))
    yield from tried("the transactions", lambda: sessions.transactions(look))
    yield from tried("the locks", lambda: sessions.locks(look))


def _examine_store(look: Look) -> Iterator[Finding]:
    """Yield what there is to say about the store, if there is one."""
    yield from (place := tried("the schema", lambda: tables.place(look)))
    if place[0].grade is not Grade.OK:
        return
    yield from tried("the tables", lambda: tables.parts(look.ask("parts"), look.parts_of))
    yield from tried("the indexes", lambda: tables.indexes(look.ask("invalid_indexes")))
    yield from tried("the tables' size", lambda: tables.size(look.value("size")))
    yield from tried("the dead rows", lambda: tables.vacuum(look))
    yield from tried("the events", lambda: queue.times(look, look.value("now")))
    yield from tried("the jobs", lambda: queue.unattended(look, look.value("now")))


def _listens(url: str, look: Look) -> Finding:
    """Check that a word said on one connection reaches another that waits for it."""
    with looking(url) as listener:
        return server.listening(listener, look)
