"""Statements on one connection to PostgreSQL, and what its errors mean."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.abc import AdaptContext, PQGen
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import RowFactory, dict_row
from psycopg.types.string import TextLoader

from jobq.errors import InvalidInput, StoreBusy, StoreError, StoreUnreachable
from jobq.store.engine import Parameters, Row, RowRefused, Severed, Undone, named_statements
from jobq.store.guard import Guard, check_sql
from jobq.store.placeholders import for_psycopg, is_one_statement
from jobq.store.statements import Named

STATEMENTS = named_statements("postgres.sql")
SESSION = named_statements("postgres_session.sql")
TABLES = {"insert_job": "jobs", "insert_event": "events"}  # that they insert into
FEWEST_COPIED = 50  # rows for which COPY is worth its further round trip
MOST_IDS = 200  # in one notification, whose payload has less than 8,000 bytes

RawConnection = psycopg.Connection[Any]


def give_json_as_text(reader: AdaptContext) -> None:
    """Let JSON come as it is written: the store's own reader takes it apart, exactly."""
    reader.adapters.register_loader("json", TextLoader)


class Patient(psycopg.Connection[Row]):
    """A connection that does not wait for ever.

    A server bounds its statements, but when the network swallows what it says nobody hears it.
    """

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[Any] = dict_row) -> None:
        super().__init__(pgconn, row_factory)
        self.patience: float | None = None  # seconds that one statement may take
        give_json_as_text(self)

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        """Run a generator of psycopg's to its end."""
        return super().wait(gen, interval, self.patience if timeout is None else timeout)


class Statements(Named):
    """Runs SQL on a connection, in whatever transaction is open there."""

    named = STATEMENTS

    def __init__(self, raw: RawConnection, shown: str) -> None:
        self.raw = raw
        self.shown = shown  # the URL, for messages
        self.changed: list[str] = []  # ids of the jobs of which an event was written

    def each(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Run the statement for all these rows of parameters at once; return the rows it gives."""
        if not rows:
            return []
        if statement == "insert_event":
            self.changed += [row["job_id"] for row in rows]
        return self.all(statement, rows=json.dumps(rows))

    def insert_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert all these rows, of which none can be there already: many of them by COPY.

        They are made while they are copied, so that this process and the server work side by side.
        """
        rest = iter(rows)
        first = list(islice(rest, FEWEST_COPIED))
        if len(first) < FEWEST_COPIED:
            self.each(statement, first)
            return
        copy = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(TABLES[statement]), sql.SQL(", ").join(map(sql.Identifier, first[0]))
        )
        with explained(self.shown), self._cursor.copy(copy) as copying:
            for row in chain(first, rest):
                copying.write_row(tuple(row.values()))
                if statement == "insert_event":
                    self.changed.append(row["job_id"])

    def ask(self, statement: str, **parameters: Any) -> list[Row]:
        """Return the rows that a statement of the engine's own gives."""
        rows, _ = self._run(SESSION[statement], parameters)
        return rows

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, be it one that can only be undone."""
        status = self.raw.info.transaction_status
        return status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}

    def now(self) -> float:
        """Return the server's time: all machines that use it share it."""
        [row] = self.ask("now")
        return float(row["now"])

    @cached_property
    def _cursor(self) -> psycopg.Cursor[Row]:
        return self.raw.cursor(row_factory=dict_row)

    def _run(self, statement: str, parameters: Parameters) -> tuple[list[Any], int]:
        """Return the rows that a statement gives, and how many it changed."""
        with explained(self.shown):
            cursor = self._cursor
            text = for_psycopg(statement, marks=not isinstance(parameters, Mapping))
            cursor.execute(text, parameters)
            gives_rows = cursor.pgresult is not None and cursor.pgresult.nfields > 0
            return cursor.fetchall() if gives_rows else [], cursor.rowcount


class OpenTransaction(Statements):
    """What runs in one transaction, in the thread that began it and until its end."""

    def __init__(self, raw: RawConnection, shown: str, begin: sql.Composed) -> None:
        super().__init__(raw, shown)
        self._guard = Guard()
        self.end = self._guard.end
        with explained(shown):
            answer = raw.execute(begin)
            answer.nextset()  # the first is that of BEGIN
            [began] = answer.fetchall()
        self._began: float | None = began["now"]  # as long as nothing was waited for since

    def now(self) -> float:
        """Return the server's time."""
        return super().now() if self._began is None else self._began

    def execute(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """Run a statement of SQL, but none that would begin or end a transaction.

        One that fails is undone alone, as on every other engine; PostgreSQL by itself would let
        nothing follow.
        """
        check_sql(sql)
        if not is_one_statement(sql):  # the second could be a COMMIT
            raise InvalidInput("there are two statements in it: execute one at a time")
        with self.savepoint():
            return super().execute(sql, parameters)

    def commit(self) -> None:
        """Make everything true at once."""
        if self.raw.info.transaction_status == TransactionStatus.INERROR:
            raise InvalidInput(FAILED)  # a COMMIT would undo it without a word
        try:
            self._run("COMMIT", ())
        except Severed as error:
            raise Severed(
                f"{error}; whether the change was made is not known", unsure=True
            ) from error

    def _run(self, statement: str, parameters: Parameters) -> tuple[list[Any], int]:
        self._guard.check(undone=not self.in_transaction)
        self._began = None
        return super()._run(statement, parameters)


def notify(tx: Statements, channel: str, job_ids: Sequence[str]) -> None:
    """Tell those who listen which jobs have changed: their ids and no more; of many, none."""
    payload = " ".join(dict.fromkeys(job_ids)) if len(job_ids) <= MOST_IDS else ""
    tx.ask("notify", channel=channel, payload=payload)


FAILED = (
    "a statement failed, and PostgreSQL lets nothing follow in its transaction: put what may fail "
    "into a block of its own, `with tx.savepoint(): …`"
)


@contextmanager
def explained(shown: str) -> Iterator[None]:
    """Turn PostgreSQL's errors into ours, with the mend."""
    try:
        yield
    except (errors.SerializationFailure, errors.DeadlockDetected) as error:
        raise Undone(f"{shown}: {_primary(error)}; try again") from error
    except errors.InFailedSqlTransaction as error:
        raise InvalidInput(FAILED) from error
    except (psycopg.IntegrityError, psycopg.DataError, UnicodeEncodeError) as error:
        raise RowRefused(f"{shown} refused a row: {_primary(error)}") from error
    except psycopg.Error as error:
        kind, mend = _MENDS.get(error.sqlstate or "", (None, ""))
        if kind is None:
            lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            kind, mend = (Severed, "see whether the server runs") if lost else _NO_MEND
        raise kind(f"{shown}: {_primary(error)}; {mend}") from error


def _primary(error: Exception) -> str:
    """Return the error's own words, in one line and without the statement."""
    words = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((words or str(error) or type(error).__name__).split())


_STOPPED = (Severed, "the server is stopping, or somebody ended the connection")
_IN_THE_WAY = (
    StoreBusy,
    "another transaction is in the way: end it (pg_stat_activity names it), or try again",
)
_MENDS: dict[str, tuple[type[StoreError], str]] = {
    "55P03": _IN_THE_WAY,  # lock_not_available
    "57014": _IN_THE_WAY,  # query_canceled: by statement_timeout
    "57P01": _STOPPED,  # admin_shutdown
    "57P02": _STOPPED,  # crash_shutdown
    "57P05": _STOPPED,  # idle_session_timeout
    "25P03": _STOPPED,  # idle_in_transaction_session_timeout
    "57P03": (StoreUnreachable, "the server starts or stops: try again"),  # cannot_connect_now
    "53300": (StoreUnreachable, "the server has no connection left: end some, or let it have more"),
    "53100": (StoreError, "nothing was changed: free some space on the server"),  # disk_full
    "25006": (StoreError, "this server takes no writes: name the primary one"),
    "42501": (StoreError, "the role may not do that: ask for the right (GRANT)"),
    "42P01": (StoreError, "a table is missing: `jobq doctor` tells which"),
}
_NO_MEND = (StoreError, "nothing was changed")
