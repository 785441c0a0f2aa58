"""Whether there is a store, found out without making one."""

from contextlib import closing
from pathlib import Path

from jobq.store.addresses import engine_of, shown
from jobq.store.sqlitefile import path_of

CONNECT_SECONDS = 5


def is_there(url: str | Path) -> bool:
    """Whether something is there that `open_store` would open, or would say is wrong.

    Raises InvalidInput for a URL of no engine, and StoreError for a server that gives no answer.
    """
    if engine_of(url) == "sqlite":
        return path_of(url).exists()
    try:
        import psycopg  # noqa: PLC0415 - an extra, and slow to load

        from jobq.store.pgconnection import Statements, explained  # noqa: PLC0415
    except ImportError:
        return True
    with explained(shown(url)):
        raw = psycopg.connect(
            str(url), autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS
        )
    with closing(raw):
        look = Statements(raw, shown(url))
        [schema] = look.ask("schema_name")
        [tables] = look.ask("tables")
    return schema["name"] is None or tables["ours"] or tables["jobs"]
