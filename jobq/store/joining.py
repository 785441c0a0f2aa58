"""Enqueueing in a transaction that a program has open on a SQLite connection of its own."""

import sqlite3
from pathlib import Path
from typing import Any

from jobq.errors import InvalidInput
from jobq.store.connection import OpenTransaction, Statements
from jobq.store.engine import Parameters


class Joined(Statements):
    """Runs the store's statements on a caller's connection, and leaves that as it was."""

    def _run(self, sql: str, parameters: Parameters) -> tuple[list[Any], int]:
        theirs, self.raw.text_factory = self.raw.text_factory, str
        try:
            return super()._run(sql, parameters)
        finally:
            self.raw.text_factory = theirs


def join(path: Path, given: Any) -> Statements:
    """Return the transaction in which a job is to be recorded.

    Raises InvalidInput for what is no connection to this file with an open transaction, nor what
    a store on it gave.
    """
    if isinstance(given, OpenTransaction):
        _check_file(given.path, path)
        return given
    if not isinstance(given, sqlite3.Connection):
        raise InvalidInput(
            f"conn is a {type(given).__name__}: use a sqlite3.Connection, or what "
            "`with store.transaction() as …` gives"
        )
    _check_file(_file_of(given), path)
    if not given.in_transaction:
        raise InvalidInput(
            "conn has no transaction open, so the job would be recorded whatever becomes of your "
            "own rows: begin one (BEGIN IMMEDIATE), or write your row first"
        )
    return Joined(path, given)


def _file_of(raw: sqlite3.Connection) -> Path | None:
    """Return the file of a connection; None if it is in memory."""
    try:
        cursor = raw.cursor()
        cursor.row_factory = None  # whatever the connection's own is
        rows = cursor.execute("PRAGMA database_list").fetchall()
    except sqlite3.ProgrammingError as error:  # closed, or another thread's
        raise InvalidInput(f"conn cannot be used here: {error}") from error
    names = {_text(row[1]): _text(row[2]) for row in rows}
    return Path(names["main"]) if names["main"] else None


def _text(value: str | bytes) -> str:
    """Return the text, whatever the connection's text_factory made of it."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _check_file(theirs: Path | None, ours: Path) -> None:
    same = theirs is not None and theirs.exists() and ours.exists() and theirs.samefile(ours)
    if not same:
        raise InvalidInput(
            f"conn is connected to {theirs or 'a database in memory'}: "
            f"connect to the store's own file, {ours}"
        )
