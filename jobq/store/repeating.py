"""Running a transaction again that the database could not carry through."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from jobq.store.engine import Engine, Severed, Transaction, Undone

T = TypeVar("T")

TRIES = 6
PAUSE_SECONDS = 0.01  # at most, after the first try; twice that after the second, and so on


def transact(
    engine: Engine, work: Callable[[Transaction], T], *, repeat_if_unsure: bool = True
) -> T:
    """Return what `work` returns, once its transaction is committed.

    It is run again if the database undid it because of another transaction, or if the connection
    broke. If that happened while it was being committed, nobody knows whether it was: then
    `work` has to bear being repeated after it took effect, or `repeat_if_unsure` is False.
    """
    for number in range(1, TRIES):
        try:
            with engine.write() as tx:
                return work(tx)
        except Undone:
            pass
        except Severed as error:
            if error.unsure and not repeat_if_unsure:
                raise
        # By chance, so that two who undid one another do not meet again.
        time.sleep(random.random() * PAUSE_SECONDS * number)  # noqa: S311 - no secret
    with engine.write() as tx:
        return work(tx)
