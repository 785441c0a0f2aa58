"""How the end of an attempt gets into the store, also when that is in trouble."""

import threading
import time
from collections.abc import Callable
from typing import Any

from jobq.context import Write
from jobq.errors import LeaseLost, NotStrictJson, StoreError, WriteFailed
from jobq.job import Job
from jobq.outcomes import ConfirmCancel, Decision, Fail, Finish, Release, error_text
from jobq.retry import RetryPolicy
from jobq.store import Store

TROUBLE = (StoreError, OSError)  # of the store's; may pass
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two tries


class Recorder:
    """Writes what was decided about an attempt, and tells of it.

    `lease_end` says when the present lease runs out, in the monotonic clock's time.
    """

    def __init__(
        self, store: Store, tell: Callable[[str], None], lease_end: Callable[[], float]
    ) -> None:
        self._store = store
        self._tell = tell
        self._lease_end = lease_end
        self.pause = 0.0  # until the next try, while the store is in trouble

    def record(self, job: Job, decision: Decision, policy: RetryPolicy | None = None) -> Job:
        """Write how the attempt ended, again and again until the lease runs out.

        Return the job as it is then, or as it was when that was not to be. `policy` is the
        kind's.
        """
        while True:
            try:
                after, said = self._write(job, decision, policy)
            except LeaseLost as error:
                self._tell(f"lost {job.id[:8]}: {error.why}")
                return job
            except (NotStrictJson, WriteFailed) as error:
                if not isinstance(decision, Finish):
                    raise
                decision = Fail(error_text(error))
            except TROUBLE as error:
                if time.monotonic() >= self._lease_end():
                    self._tell(f"lost {job.id[:8]}: its lease ran out, and still {error}")
                    return job
                self.wait_out(error)
            else:
                self._tell(said)
                self.all_is_well()
                return after

    def _write(self, job: Job, decision: Decision, policy: RetryPolicy | None) -> tuple[Job, str]:
        """Return the job as it is afterwards, and the line to say."""
        match decision:
            case Finish(result, writes):
                after = self._store.finish(job, result, also=_together(writes))
                return after, f"finished {job.id[:8]}"
            case Fail(error, final, crashed, wait):
                after = self._store.fail(
                    job, error, final=final, after=wait, crashed=crashed, policy=policy
                )
                return after, f"{'crashed' if crashed else 'failed'} {job.id[:8]}: {error}"
            case Release():
                return self._store.release(job), f"released {job.id[:8]}"
            case ConfirmCancel():
                return self._store.confirm_cancel(job), f"cancelled {job.id[:8]}"

    def all_is_well(self) -> None:
        """Take note that the store can be used."""
        self.pause = 0.0

    def wait_out(self, error: Exception) -> None:
        """Wait a while, the longer the longer the trouble lasts."""
        self.complain(error)
        threading.Event().wait(self.pause)
        self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def complain(self, error: Exception) -> None:
        """Say that the store is in trouble, once until it works again."""
        if not self.pause:
            self.pause = FIRST_PAUSE
            self._tell(f"cannot use the store: {error}; trying again")


def _together(writes: tuple[Write, ...]) -> Callable[[Any], None] | None:
    """Return the writes as one; None if there are none."""

    def write(transaction: Any) -> None:
        for each in writes:
            each(transaction)

    return write if writes else None
