"""Named statements on a connection, in whatever transaction is open there; for every engine."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jobq.store.engine import Parameters, Row


class Named:
    """Runs statements by their names. An engine says how one is run, and whether all is undone."""

    named: Mapping[str, str]  # the engine's statements

    def execute(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """Run one statement of SQL and return its rows, all of them: no snapshot stays open."""
        rows, _ = self._run(sql, parameters)
        return rows

    def one(self, statement: str, **parameters: Any) -> Row | None:
        """Return the first row that the statement gives, if any."""
        rows = self.all(statement, **parameters)
        return rows[0] if rows else None

    def all(self, statement: str, **parameters: Any) -> list[Row]:
        """Return every row that the statement gives."""
        rows, _ = self._run(self.named[statement], parameters)
        return rows

    def run(self, statement: str, **parameters: Any) -> int:
        """Return the number of rows that the statement changed."""
        _, changed = self._run(self.named[statement], parameters)
        return changed

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what was done within if it raises; the transaction goes on."""
        self._run("SAVEPOINT here", ())
        try:
            yield
        except BaseException:
            if self.in_transaction:  # some errors, such as a full disk, undo all of it
                self._run("ROLLBACK TO here", ())
            raise
        finally:
            if self.in_transaction:
                self._run("RELEASE here", ())

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        raise NotImplementedError

    def _run(self, sql: str, parameters: Parameters) -> tuple[list[Any], int]:
        """Return the rows that a statement gives, and how many it changed."""
        raise NotImplementedError
