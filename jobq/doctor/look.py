"""A connection to a PostgreSQL server, to look and change nothing."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from jobq.store.engine import named_statements
from jobq.store.placeholders import for_psycopg

if TYPE_CHECKING:
    import psycopg

STATEMENTS = named_statements("postgres_doctor.sql")
NAME = "jobq doctor"  # of its connections, for others who look
CONNECT_SECONDS = 5  # for each address of the host
LIMITS = {"statement_timeout": "5s", "lock_timeout": "1s"}  # for a question; then it is given up


class Look:
    """A connection for looking: each question is a transaction of its own that cannot write."""

    def __init__(self, raw: "psycopg.Connection[dict[str, Any]]") -> None:
        self.raw = raw

    def ask(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return every row. Raises psycopg.Error, for what takes too long as well."""
        with self.raw.transaction():
            self._run("limits", **LIMITS)
            return self._run(statement, **parameters).fetchall()

    def row(self, statement: str) -> Mapping[str, Any]:
        """Return the one row that the statement gives."""
        return self.ask(statement)[0]

    def value(self, statement: str) -> Any:
        """Return the one value that the statement gives."""
        return next(iter(self.row(statement).values()))

    def tell(self, statement: str) -> None:
        """Run a statement that gives no rows."""
        with self.raw.transaction():
            self._run(statement)

    def parts_of(self, schema: str) -> list[dict[str, Any]]:
        """Return the parts that a schema would have, made for a moment and undone."""
        self.raw.read_only = False
        try:
            with self.raw.transaction(force_rollback=True):
                self._run("limits", **LIMITS)
                self._run("apart")
                self.raw.execute(schema)  # several statements, and so without parameters
                return self._run("parts").fetchall()
        finally:
            if not self.raw.broken:
                self.raw.read_only = True

    def _run(self, statement: str, **parameters: Any) -> "psycopg.Cursor[dict[str, Any]]":
        return self.raw.execute(for_psycopg(STATEMENTS[statement], marks=False), parameters)


@contextmanager
def looking(url: str) -> Iterator[Look]:
    """Connect to a server. Raises psycopg.Error.

    Nothing is set for the session: behind a proxy it may be somebody else's next.
    """
    import psycopg  # noqa: PLC0415 - an install for SQLite alone does not have it
    from psycopg.rows import dict_row  # noqa: PLC0415 - see the line above

    with closing(
        psycopg.connect(
            url,
            row_factory=dict_row,
            autocommit=True,  # `transaction` says where one begins
            prepare_threshold=None,
            connect_timeout=CONNECT_SECONDS,
            application_name=NAME,
        )
    ) as raw:
        raw.read_only = True
        yield Look(raw)
