"""What the store asks of a database engine, and how it finds its SQL."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any, Protocol

from jobq.errors import StoreBusy, StoreError, StoreUnreachable

Row = Mapping[str, Any]
Parameters = Mapping[str, Any] | Sequence[Any]


class RowRefused(StoreError):
    """A constraint of the schema refused a row; the statement changed nothing."""


class Undone(StoreBusy):
    """The database undid the transaction because of another one: the same may succeed next time."""


class Severed(StoreUnreachable):
    """The connection broke in the middle of a transaction.

    It is undone, unless the connection broke while it was being committed: then `unsure`.
    """

    def __init__(self, message: str, *, unsure: bool = False) -> None:
        super().__init__(message)
        self.unsure = unsure


class Transaction(Protocol):
    """Runs named statements; inside `Engine.write` they commit together or not at all."""

    def one(self, statement: str, **parameters: Any) -> Row | None:
        """Return the first row that the statement gives, if any."""

    def all(self, statement: str, **parameters: Any) -> list[Row]:
        """Return every row that the statement gives."""

    def each(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Run the statement for each of these rows of parameters; return the rows that it gives.

        They come in no order. An engine may run it for all of them at once.
        """

    def insert_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run an inserting statement for all these rows, of which none can be there already.

        They have the same columns in the same order.
        """

    def run(self, statement: str, **parameters: Any) -> int:
        """Return the number of rows that the statement changed."""

    def execute(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run a statement that is not the store's own, and return its rows."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what was done within if it raises; the transaction goes on."""

    def now(self) -> float:
        """Return the engine's time in seconds since 1970 (UTC)."""


class Engine(Protocol):
    """One database: transactions, and a sign that something has changed."""

    one_writer: bool  # at a time, so that events appear in the order of their numbers

    def write(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that may write; commit at its end, roll back if it raises."""

    def read(self) -> AbstractContextManager[Transaction]:
        """Give a transaction for reading; each statement sees its own snapshot."""

    def join(self, connection: Any) -> Transaction:
        """Return the transaction that a caller has open on a connection of its own.

        Raises InvalidInput if there is none, or the connection is to another database.
        """

    def settle(self, tx: Transaction, seconds: float) -> bool:
        """Wait until each transaction that now writes events has ended; False if one goes on.

        What it wrote is then to be seen, or never will be.
        """

    def change_mark(self) -> int:
        """Return a number that is another one soon after other connections have written."""

    def wait_for_change(self, mark: int, seconds: float, stop: Callable[[], bool]) -> None:
        """Return once the mark is another one, `stop()` is true, or the seconds are over."""

    def close(self) -> None:
        """Close every connection of this process."""


def named_statements(filename: str) -> dict[str, str]:
    """Return the SQL statements of a file of this folder by the names in its `-- name:` lines."""
    text = files(__package__).joinpath(filename).read_text(encoding="utf-8")
    blocks = text.split("-- name: ")[1:]
    return {name: body for name, _, body in (block.partition("\n") for block in blocks)}
