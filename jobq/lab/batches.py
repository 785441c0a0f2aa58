"""A worker that takes no-op jobs many at a time: two transactions for a whole batch.

`jobq worker` takes one job at a time, so that a crash costs one attempt and no job waits behind
another. Where jobs are small and many, a program of one's own may take batches, as this one does.

    JOBQ_URL=… python -m jobq.lab.batches --limit JOBS
"""

import argparse
import os
import signal
import sys
from contextlib import closing
from types import FrameType

from jobq.owned import die_with_parent
from jobq.store import Store, open_store

POLL_SECONDS = 1.0  # behind the store's own sign of a change


class Batches:
    """Takes up to `limit` jobs at once, and finishes them together, until it is stopped."""

    def __init__(self, store: Store, limit: int) -> None:
        self.name = f"batches-{os.getpid()}"
        self.stopping = False
        self._store = store
        self._limit = limit

    def stop(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Let the current batch end, then return from `run`; also a handler of signals."""
        self.stopping = True

    def run(self) -> None:
        """Take and finish batches, and print how many jobs were in each."""
        print(f"{self.name} started", flush=True)  # noqa: T201 - a program
        while not self.stopping:
            mark = self._store.change_mark()
            jobs = self._store.claim_many(self.name, self._limit)
            if jobs:
                self._store.finish_many([(job, {}) for job in jobs])
                print(f"{self.name} took {len(jobs)} jobs", flush=True)  # noqa: T201 - as above
            else:
                self._store.wait(mark, POLL_SECONDS, lambda: self.stopping)


def main() -> None:
    """Work as the command line says, until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m jobq.lab.batches", description=__doc__)
    parser.add_argument("--limit", type=int, required=True)
    words = parser.parse_args()
    with closing(open_store(os.environ["JOBQ_URL"])) as store:
        batches = Batches(store, words.limit)
        signal.signal(signal.SIGTERM, batches.stop)
        batches.run()


if __name__ == "__main__":
    die_with_parent(sys.stdin)
    main()
