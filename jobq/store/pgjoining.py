"""Enqueueing in a transaction that a program has open on a psycopg connection of its own."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from jobq.errors import InvalidInput
from jobq.store.engine import Row
from jobq.store.pgconnection import (
    OpenTransaction,
    RawConnection,
    Statements,
    give_json_as_text,
    notify,
)


class Joined(Statements):
    """Runs the store's statements on a caller's connection."""

    def __init__(self, raw: RawConnection, shown: str, channel: str) -> None:
        super().__init__(raw, shown)
        self._channel = channel

    def each(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Run the statement for all rows; who listens is told when the caller commits."""
        given = super().each(statement, rows)
        if self.changed:
            notify(self, self._channel, self.changed)
            self.changed.clear()
        return given

    @cached_property
    def _cursor(self) -> psycopg.Cursor[Row]:
        cursor = super()._cursor
        give_json_as_text(cursor)  # and not the connection, which is the caller's
        return cursor


def join(given: Any, shown: str, store_id: str, channel: str) -> Statements:
    """Return the transaction in which a job is to be recorded.

    Raises InvalidInput for what is no connection to this store with an open transaction, nor what
    the store gave.
    """
    if isinstance(given, OpenTransaction):
        _check_store(given, shown, store_id)
        return given
    if not isinstance(given, psycopg.Connection):
        raise InvalidInput(
            f"conn is a {type(given).__name__}: use a psycopg.Connection, or what "
            "`with store.transaction() as …` gives"
        )
    if given.closed:
        raise InvalidInput("conn cannot be used here: it is closed")
    status = given.info.transaction_status
    begins = status == TransactionStatus.IDLE and not given.autocommit  # with the next statement
    if status != TransactionStatus.INTRANS and not begins:
        raise InvalidInput(
            "conn has no transaction open, so the job would be recorded whatever becomes of your "
            "own rows: begin one (with conn.transaction(): …), or write your row first"
        )
    joined = Joined(given, shown, channel)
    _check_store(joined, shown, store_id)
    return joined


def _check_store(tx: Statements, shown: str, store_id: str) -> None:
    """See whether the transaction is one on this store, whatever its database is called there."""
    [tables] = tx.ask("tables")
    rows = tx.ask("version") if tables["ours"] else []
    if [row["store_id"] for row in rows] != [store_id]:
        raise InvalidInput(
            f"conn is connected elsewhere: connect to the store's own database and schema, {shown}"
        )
