"""What an operator may do: cancel a job, retry one or many, and delete old ones."""

import math
from contextlib import suppress
from functools import partial

from jobq.checks import check_seconds
from jobq.errors import WrongStatus
from jobq.job import EventName, Job, Status
from jobq.store import moves
from jobq.store.engine import Row, RowRefused, Transaction
from jobq.store.reading import FIRST_PAGE, Reader, check_status, existing
from jobq.store.repeating import transact
from jobq.store.rows import to_job
from jobq.strictjson import check_name

RETRIABLE = (Status.FAILED, Status.CANCELLED)
PARTS = ("delete_attempts", "delete_events", "delete_marks")
FINAL = tuple(status for status in Status if status.final)
BATCH, ROWS = 500, 5_000  # jobs and rows that one transaction changes, so that workers get on
KEYS_KEPT_SECONDS = 7 * 86_400.0  # at the least, an idempotency key is remembered so long (G5)


class Operators(Reader):
    """Changes jobs as their operator, whoever holds a lease on them."""

    def cancel(self, job_id: str) -> Job:
        """Cancel the job: at once if it is queued.

        If it is running, its worker is told with the next heartbeat, and no other attempt follows
        the present one; should that one succeed all the same, the job is done. A job that is
        cancelled already is returned as it is. Raises UnknownJob, and WrongStatus for one that
        is done or failed.
        """

        def cancel(tx: Transaction) -> Job:
            row, now = existing(tx, job_id, "job_to_change"), self._now(tx)
            status = Status(row["status"])
            if status is Status.QUEUED:
                [row] = tx.all("cancel_queued", id=job_id, now=now)
                moves.log(tx, row, EventName.CANCELLED, now, worker=None)
            elif status is Status.RUNNING and not row["cancel_requested"]:
                [row] = tx.all("request_cancel", id=job_id)
                moves.log(tx, row, EventName.CANCEL_REQUESTED, now, worker=row["worker"])
            elif status in {Status.DONE, Status.FAILED}:
                raise WrongStatus(job_id, status, "only a queued or running job can be cancelled")
            return to_job(row)

        return transact(self._engine, cancel)

    def retry(self, job_id: str) -> Job:
        """Queue a failed or cancelled job again: its attempts start over, its token goes on.

        Raises UnknownJob, and WrongStatus for a job of another status.
        """

        def retry(tx: Transaction) -> Job:
            row = existing(tx, job_id, "job_to_change")
            retried = self._retry_in(tx, row)
            if retried is None:
                rule = "only a failed or cancelled job can be retried"
                raise WrongStatus(job_id, row["status"], rule)
            return to_job(retried)

        # Repeated after it took effect, it would say that the job is queued: true, and misleading.
        return transact(self._engine, retry, repeat_if_unsure=False)

    def retry_all(self, *, status: Status = Status.FAILED, kind: str | None = None) -> int:
        """Queue all jobs again that now have this status, and this kind if given; return how many.

        In several transactions, newest jobs first; each job at most once, even if it fails again
        meanwhile. Raises InvalidInput for a status other than failed and cancelled.
        """
        check_status(status, RETRIABLE)
        if kind is not None:
            check_name(kind, "kind")
        wanted = {"status": status} if kind is None else {"kind": kind, "status": status}
        statement = "places_with_status" if kind is None else "places_of_kind_with_status"
        before, retried = FIRST_PAGE, 0

        def retry_page(tx: Transaction) -> tuple[list[Row], int]:
            rows, count = tx.all(statement, **wanted, before=before, limit=BATCH), 0
            for row in rows:
                with suppress(RowRefused), tx.savepoint():  # one bad row stops no others
                    count += self._retry_in(tx, row) is not None
            return rows, count

        while True:
            rows, count = transact(self._engine, retry_page)
            retried += count
            if len(rows) < BATCH:
                return retried
            before = rows[-1]["seq"]

    def prune(
        self,
        older_than_seconds: float,
        *,
        status: Status | None = None,
        keys_kept_seconds: float = KEYS_KEPT_SECONDS,
    ) -> int:
        """Delete the jobs that became final longer ago than that; return how many.

        Their attempts and events go with them. A job with an idempotency key stays until it is
        `keys_kept_seconds` old: so long the key is sure to give the same job (G5). Raises
        InvalidInput for a status that is not final.
        """
        check_seconds(older_than_seconds, "older_than_seconds", least=0)
        check_seconds(keys_kept_seconds, "keys_kept_seconds", least=0)
        if status is not None:
            check_status(status, FINAL)
        now = self.now()
        limits = {"before": now - older_than_seconds, "key_before": now - keys_kept_seconds}
        place: Row | None = {"finished_at": -math.inf, "seq": 0}
        deleted = 0
        while place is not None:
            delete = partial(_delete_some, place=place, status=status, limits=limits)
            place, jobs = transact(self._engine, delete)
            deleted += jobs
        return deleted

    def _retry_in(self, tx: Transaction, job: Row) -> Row | None:
        now = self._now(tx)
        row = tx.one("retry", seq=job["seq"])
        if row is not None:
            moves.log(tx, row, EventName.RETRIED, now, worker=None)
        return row


def _delete_some(
    tx: Transaction, place: Row, status: Status | None, limits: dict[str, float]
) -> tuple[Row | None, int]:
    """Delete those of the next jobs after a place that may go.

    Returns the place that was come to, None at the end, and the number of jobs.
    """
    rows = tx.all(
        "final_before",
        before=limits["before"],
        after_time=place["finished_at"],
        after_seq=place["seq"],
        limit=BATCH,
    )
    jobs = parts = 0
    for row in rows:
        with suppress(RowRefused), tx.savepoint():  # one bad row stops no others
            if tx.run("delete_job", seq=row["seq"], status=status, **limits):
                parts += sum(tx.run(statement, job_id=row["id"]) for statement in PARTS)
                jobs += 1
        if parts >= ROWS:
            return row, jobs
    return (rows[-1] if len(rows) == BATCH else None), jobs
