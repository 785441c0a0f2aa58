"""What a worker does: claim jobs, keep its leases, and record how the attempts ended."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jobq import strictjson
from jobq.checks import check_integer, check_seconds
from jobq.errors import InvalidInput, LeaseLost, StoreBusy, WriteFailed
from jobq.job import EventName, Job, Progress, Status
from jobq.retry import RetryPolicy
from jobq.store import endings, moves
from jobq.store.endings import Ending
from jobq.store.engine import Engine, Row, RowRefused, Transaction
from jobq.store.moves import Claimer, Lease
from jobq.store.operating import Operators
from jobq.store.reading import LONGEST_PAGE
from jobq.store.repeating import transact
from jobq.store.requests import progress_text
from jobq.store.rows import UnreadableJob, to_job

Decide = Callable[[Row, float], Ending]  # from the row under the lease, and the time
Take = Callable[[Transaction, Claimer, int], list[Job]]
Also = Callable[[Transaction], object]


class Workers(Operators):
    """Changes jobs as the worker that holds a lease on them."""

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], float] | None,
        *,
        policy: RetryPolicy,
        random: Callable[[], float],
        max_bytes: int,
    ) -> None:
        super().__init__(engine, clock)
        self._policy = policy
        self._random = random
        self._max_bytes = max_bytes

    def claim(self, worker: str, lease_seconds: float = 30.0) -> Job | None:
        """Take the most urgent, then oldest runnable job for this worker; None if there is none.

        Leases that ran out are closed first, as crashed attempts (G2, G4, G10); many of them in
        several transactions, so that a heartbeat need not wait for all. The claimed job is this
        worker's until its lease runs out; heartbeat extends it. Where writers work side by side
        (PostgreSQL), None may be outdated at once: `wait` returns then, and the next look tells.
        """
        jobs = self.claim_many(worker, 1, lease_seconds)
        return jobs[0] if jobs else None

    def claim_many(self, worker: str, limit: int, lease_seconds: float = 30.0) -> list[Job]:
        """Take up to `limit` runnable jobs at once, as `claim` does, each with a lease of its own.

        They are in the order in which they are to be run. All leases end at the same time, so a
        batch should be run, or kept alive by heartbeats, well within it.
        """
        strictjson.check_name(worker, "worker")
        check_integer(limit, "limit", 1, LONGEST_PAGE)
        check_seconds(lease_seconds, "lease_seconds", least=0.001)
        if self._engine.one_writer:  # whom an idle worker's look is not to keep waiting
            now, due = self._next_due()
            if due is None or due > now:
                return []
        try:
            return self._claim(moves.take, worker, limit, lease_seconds)
        except (RowRefused, UnreadableJob):  # one bad row stops no others
            return self._claim(moves.take_singly, worker, limit, lease_seconds)

    def heartbeat(
        self, job: Job, lease_seconds: float = 30.0, progress: Progress | None = None
    ) -> Job:
        """Extend the lease to `lease_seconds` from now and return the job as it is.

        The reply's `cancel_requested` says whether the work should stop. `progress` is kept with
        the job. Raises LeaseLost when the job is no longer this lease's.
        """
        check_seconds(lease_seconds, "lease_seconds", least=0.001)
        text = None if progress is None else progress_text(progress)

        def beat(tx: Transaction) -> Job:
            now = self._now(tx)
            row = tx.one(
                "heartbeat",
                id=job.id,
                token=job.token,
                progress=text,
                locked_until=now + lease_seconds,
            )
            if row is None:
                raise moves.lease_lost(tx, job)
            moves.log(tx, row, EventName.HEARTBEAT, now, worker=row["worker"], progress=text)
            return to_job(row)

        return transact(self._engine, beat)

    def finish(self, job: Job, result: Any, *, also: Also | None = None) -> Job:
        """Record the result of the attempt: the job is done.

        `also(transaction)` may write rows of the caller's own, which are committed together with
        the result or not at all. Raises LeaseLost, NotStrictJson for a result that JSON cannot
        carry, and WriteFailed for what `also` raises; each time nothing has changed, and after
        the last two the attempt can still be failed.
        """
        return self._end(job, self._success(result), also)

    def finish_many(self, results: Iterable[tuple[Job, Any]]) -> list[Job | LeaseLost]:
        """Record the results of several attempts in one transaction, in the same order.

        Each is held against its own lease: in the place of a job that was lost stands the
        LeaseLost that `finish` would have raised, and the others are done. Raises NotStrictJson,
        and InvalidInput for a job that is given twice; nothing has changed then.
        """
        ends = [(job, self._success(result)) for job, result in results]
        if len({job.id for job, _ in ends}) < len(ends):
            raise InvalidInput("a job is given twice: an attempt has one result")
        return transact(self._engine, self._ender(ends))

    def fail(
        self,
        job: Job,
        error: str,
        *,
        final: bool = False,
        after: float | None = None,
        crashed: bool = False,
        policy: RetryPolicy | None = None,
    ) -> Job:
        """Record why the attempt failed: the job is queued again, after a wait, or failed.

        The wait is `after` seconds, or what the job's own policy says, or else `policy`, or else
        the store's. `final` means that another attempt could not succeed, `crashed` that the
        attempt's process was seen to die. Raises LeaseLost; NotStrictJson for an error text that
        some database could not keep.
        """
        strictjson.check_text(error, "error")  # with a limit of its own: others may be too small
        chosen = job.retry or policy or self._policy
        if after is not None:
            check_seconds(after, "after", least=0)

        def delay(failures: int) -> float:
            return chosen.delay(failures, self._random) if after is None else after

        return self._end(
            job,
            lambda row, now: endings.after_failure(
                row, error, now, delay, final=final, crashed=crashed
            ),
        )

    def release(self, job: Job) -> Job:
        """Give the job back unharmed: runnable at once, the attempt not counted (G11).

        A job that was given back `endings.MAX_RELEASES` times is failed.
        """
        return self._end(job, endings.after_release)

    def confirm_cancel(self, job: Job) -> Job:
        """Record that the attempt was stopped because the job is to be cancelled: it is now."""
        return self._end(job, endings.after_cancel)

    def is_done(self, job: Job, key: str) -> bool:
        """Whether an attempt at the job has marked this key. Raises LeaseLost."""
        strictjson.check_name(key, "key")
        with self._engine.read() as tx:
            self._leased(tx, job)
            return tx.one("mark", job_id=job.id, key=key) is not None

    def mark_done(self, job: Job, key: str) -> None:
        """Mark the key as done, for this and every later attempt at the job. Raises LeaseLost."""
        strictjson.check_name(key, "key")

        def mark(tx: Transaction) -> None:
            self._leased(tx, job)
            tx.run("insert_mark", job_id=job.id, key=key, at=self._now(tx))

        transact(self._engine, mark)

    def _claim(self, take: Take, worker: str, limit: int, lease_seconds: float) -> list[Job]:
        def claim(tx: Transaction) -> list[Job] | None:
            now = self._now(tx)
            if not moves.make_ready(tx, now):
                return None
            test_now = None if self._clock is None else now
            return take(tx, Claimer(worker, lease_seconds, now, test_now), limit)

        while True:
            jobs = transact(self._engine, claim)
            if jobs is not None:
                return jobs

    def _success(self, result: Any) -> Decide:
        text = strictjson.encode(result, "result", max_bytes=self._max_bytes)
        return lambda row, now: endings.after_success(row, text, now)

    def _end(self, job: Job, decide: Decide, also: Also | None = None) -> Job:
        end_all = self._ender([(job, decide)], also)

        def end(tx: Transaction) -> Job:
            [ended] = end_all(tx)
            if isinstance(ended, LeaseLost):
                raise ended
            return ended

        return transact(self._engine, end)

    def _ender(
        self, ends: Sequence[tuple[Job, Decide]], also: Also | None = None
    ) -> Callable[[Transaction], list[Job | LeaseLost]]:
        """Return what ends the attempts in a transaction, which may be repeated."""
        written: dict[str, Ending] = {}  # by a try that may have taken effect

        def end(tx: Transaction) -> list[Job | LeaseLost]:
            rows = tx.each("leased", [{"id": job.id, "token": job.token} for job, _ in ends])
            now = self._now(tx)  # after a wait for the rows, so that a job's log goes forward
            held = {row["id"]: row for row in rows}
            chosen = [(job, decide) for job, decide in ends if _is_held(job, held)]
            decided = {job.id: decide(held[job.id], now) for job, decide in chosen}
            leases = [(Lease(j.id, j.token, j.worker), decided[j.id]) for j, _ in chosen]
            ended = moves.end(tx, leases, now)
            if also is not None and ended:
                _write(also, tx)
            given = [_outcome(tx, job, ended, written.get(job.id)) for job, _ in ends]
            written.update(decided)
            return given

        return end

    def _leased(self, tx: Transaction, job: Job) -> Row:
        """Return the row of a job that this lease still holds. Raises LeaseLost."""
        rows = tx.each("leased", [{"id": job.id, "token": job.token}])
        if not rows or job.status != Status.RUNNING:  # never claimed: nothing to be lost
            raise moves.lease_lost(tx, job)
        return rows[0]


def _write(also: Also, tx: Transaction) -> None:
    try:
        also(tx)
        tx.one("last_event")  # raises if some statement of theirs has undone the transaction
    except StoreBusy:  # may pass
        raise
    except Exception as error:
        raise WriteFailed(f"{type(error).__name__}: {error}") from error


def _is_held(job: Job, held: Mapping[str, Row]) -> bool:
    return job.id in held and job.status is Status.RUNNING  # else never claimed


def _outcome(
    tx: Transaction, job: Job, ended: Mapping[str, Row], written: Ending | None
) -> Job | LeaseLost:
    """Return the job as it is after its end, or why that was refused.

    `written` is what an earlier try wrote; only the answer to it was lost if it stands there.
    """
    if job.id in ended:
        return to_job(ended[job.id])
    if written is not None:
        attempt = tx.one("attempt", job_id=job.id, token=job.token)
        row = tx.one("job", id=job.id)
        if attempt and row and attempt["ended_at"] == written.ended_at:
            return to_job(row)
    return moves.lease_lost(tx, job)
