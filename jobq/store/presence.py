"""Whether there is a store, found out without making one."""

from pathlib import Path

from jobq.store.addresses import engine_of, shown
from jobq.store.sqlitefile import path_of

PATIENCE_SECONDS = 5.0


def is_there(url: str | Path) -> bool:
    """Whether something is there that `open_store` would open, or would say is wrong.

    Raises InvalidInput for a URL of no engine, and StoreError for a server that gives no answer.
    """
    if engine_of(url) == "sqlite":
        return path_of(url).exists()
    try:
        from jobq.store.pgconnection import Statements  # noqa: PLC0415 - an extra, slow to load
        from jobq.store.pgpool import Connections  # noqa: PLC0415 - see the line above
    except ImportError:
        return True  # open_store says what is missing
    with Connections(str(url), PATIENCE_SECONDS).one() as raw:
        look = Statements(raw, shown(url))
        [schema] = look.ask("schema_name")
        [tables] = look.ask("tables")
    return schema["name"] is None or tables["ours"] or tables["jobs"]
