"""The sessions of a PostgreSQL server: who is connected, and who is in the way."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobq.doctor.finding import Finding, fail, ok, warn
from jobq.doctor.queue import Asked
from jobq.oneline import in_units, one_line

OPEN_SECONDS = 60.0  # that a transaction may be open
WAIT_SECONDS = 2.0  # that a session may wait for a lock
SCARCE = 0.8  # of the connections
NAMED = 3  # sessions that are told of, a line for each
WIDTH = 40  # characters of a session's name


def room(connections: Mapping[str, Any]) -> Finding:
    """Check that further workers will get a connection."""
    used, available = connections["used"], connections["available"]
    text = f"{used} of {available} connections are in use"
    mend = "close some, or raise max_connections (a restart), or let a proxy pool them"
    if used >= available:
        return fail(text, mend)
    return warn(text, mend) if used >= SCARCE * available else ok(text)


def users(sessions: Sequence[Mapping[str, Any]]) -> Finding:
    """Tell who else is connected to the database."""
    if not sessions:
        return ok("nobody else is connected to the database")
    names = ", ".join(f"{_name(row['name'])} ({row['connections']})" for row in sessions[:NAMED])
    more = ", …" if len(sessions) > NAMED else ""
    number = sum(row["connections"] for row in sessions)
    return ok(f"{number} other connection(s) to the database: {names}{more}")


def transactions(look: Asked) -> list[Finding]:
    """Check that no transaction is open for long: no dead row can be removed meanwhile."""
    return [
        warn(
            f"pid {row['pid']} ({_name(row['name'])}) has a transaction open for "
            f"{in_units(row['seconds'])}{', idle' if row['idle'] else ''}: its locks are kept, "
            "and vacuum removes no row that died since",
            f"let it end, or end it: SELECT pg_terminate_backend({row['pid']});",
        )
        for row in look.ask("open_transactions", seconds=OPEN_SECONDS)[:NAMED]
    ] or [ok("no transaction that you may see is open for long")]


def locks(look: Asked) -> list[Finding]:
    """Check that nobody keeps others waiting."""
    return [
        warn(
            f"pid {row['pid']} ({_name(row['name'])}) has waited {in_units(row['seconds'])} for a "
            f"lock that pid {row['holder']} ({_name(row['holder_name'])}) holds",
            f"let that end, or end it: SELECT pg_terminate_backend({row['holder']});",
        )
        for row in look.ask("lock_waits", seconds=WAIT_SECONDS)[:NAMED]
    ] or [ok("nobody keeps others waiting for a lock")]


def _name(name: str) -> str:
    """Return what a program calls itself, which may be anything."""
    line = one_line(name)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
