"""What may be done with a transaction that a program is given."""

import re
import threading

from jobq.errors import InvalidInput

# After blanks and comments, the words by which SQL begins and ends transactions.
ENDS_TRANSACTION = re.compile(
    r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
    r"(BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE|PREPARE\s+TRANSACTION)\b",
    re.IGNORECASE | re.DOTALL,
)


class Guard:
    """Lets a transaction be used in its thread and until its end, and says so otherwise."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._ended = False

    def end(self) -> None:
        """Let nothing more be done."""
        self._ended = True

    def check(self, *, undone: bool) -> None:
        """Raise InvalidInput if the transaction cannot be used, or not from this thread."""
        if self._ended or undone:
            raise InvalidInput(
                "this transaction has ended: begin another, or work within its block"
            )
        if self._thread != threading.get_ident():
            raise InvalidInput("this transaction is another thread's: let that thread do the work")


def check_sql(sql: str) -> None:
    """Raise InvalidInput for SQL that would begin or end a transaction."""
    if found := ENDS_TRANSACTION.match(sql):
        raise InvalidInput(
            f"{found[1].upper()} is the store's to say: what runs here is committed together, "
            "or undone by raising; a part can be undone by `with tx.savepoint(): …`"
        )
