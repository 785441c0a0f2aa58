"""What anyone may look at: jobs, attempts, the event log, counts, and the sign of a change."""

import re
from collections.abc import Callable, Collection, Sequence

from jobq.checks import check_integer, check_seconds
from jobq.errors import InvalidInput, UnknownJob
from jobq.job import Attempt, Event, Job, Stats, Status
from jobq.store.engine import Engine, Row, Transaction
from jobq.store.rows import readable, to_attempt, to_event, to_job, to_listed_job
from jobq.strictjson import check_name

Jobs = list[Job]  # Reader.list shadows the built-in name inside the class

FIRST_PAGE = 2**62
LARGEST_SEQ = 2**63 - 1
HEX = re.compile("[0-9a-f]+")
LONGEST_PAGE, LONGEST_LOG = 1_000, 1_000_000  # rows of one answer
RECENT_JOBS = 10  # whose run time is taken for typical
MINUTE = 60.0
SETTLE_SECONDS = 0.5  # the longest wait for transactions that write events: most take some ms


class Reader:
    """Looks into a store and changes nothing."""

    def __init__(self, engine: Engine, clock: Callable[[], float] | None) -> None:
        self._engine = engine
        self._clock = clock

    def now(self) -> float:
        """Return the time by which this store judges leases and waits (seconds since 1970)."""
        with self._engine.read() as tx:
            return self._now(tx)

    def get(self, job_id: str) -> Job | None:
        """Return the job, or None if there is none with this id."""
        with self._engine.read() as tx:
            row = _row(tx, job_id)
        return None if row is None else to_job(row)

    def find(self, start: str, *, limit: int = 2) -> Jobs:
        """Return jobs whose id begins so, in the order of their ids; as `list` does."""
        check_integer(limit, "limit", 1, LONGEST_PAGE)
        if not HEX.fullmatch(start):
            return []
        with self._engine.read() as tx:
            rows = tx.all("jobs_whose_id_begins", start=start, limit=limit)
        return [to_listed_job(row) for row in rows]

    def list(
        self,
        *,
        status: Status | None = None,
        kind: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Jobs:
        """Return jobs, newest first; `before` is the id of the last job of the page before.

        A row that another program spoilt is given as far as it can be read; its error says what is
        wrong. Raises UnknownJob if the job `before` has been deleted meanwhile.
        """
        check_integer(limit, "limit", 1, LONGEST_PAGE)
        if status is not None:
            check_status(status, tuple(Status))
        if kind is not None:
            check_name(kind, "kind")
        given = {"kind": kind, "status": status}
        wanted = {name: value for name, value in given.items() if value is not None}
        with self._engine.read() as tx:
            seq = FIRST_PAGE if before is None else existing(tx, before)["seq"]
            rows = tx.all(LISTS[tuple(wanted)], **wanted, before=seq, limit=limit)
        return [to_listed_job(row) for row in rows]

    def attempts(self, job_id: str) -> tuple[Attempt, ...]:
        """Return the job's attempts, first one first. Raises UnknownJob."""
        with self._engine.read() as tx:
            existing(tx, job_id)
            return tuple(to_attempt(row) for row in tx.all("attempts", job_id=job_id))

    def events(
        self, job_id: str | None = None, *, after: int = 0, limit: int = 10_000
    ) -> tuple[Event, ...]:
        """Return the log of one job, or of all, in the order of `seq`.

        `after` is the `seq` of the last event already seen: whoever goes on from there sees every
        event once. One behind an open transaction comes when that has ended. Raises UnknownJob.
        """
        check_integer(limit, "limit", 1, LONGEST_LOG)
        check_integer(after, "after", 0, LARGEST_SEQ)
        with self._engine.read() as tx:
            if job_id is not None:
                existing(tx, job_id)
            while True:
                if job_id is None:
                    rows = self._newer(tx, after, limit)
                else:  # one after the other: each of them had the job to itself
                    rows = tx.all("events_of_job", job_id=job_id, after=after, limit=limit)
                events = tuple(event for row in rows if (event := to_event(row)) is not None)
                if events or not rows:  # an empty answer means that there is nothing more
                    return events
                after = rows[-1]["seq"]

    def last_event(self) -> int:
        """Return the `seq` of the newest event; 0 without one."""
        with self._engine.read() as tx:
            [row] = tx.all("last_event")
            self._engine.settle(tx, SETTLE_SECONDS)  # a lower one may yet appear
        return int(row["seq"])

    def unfinished(self) -> bool:
        """Whether any job is queued or running."""
        with self._engine.read() as tx:
            [row] = tx.all("unfinished")
        return bool(row["found"])

    def stats(self) -> Stats:
        """Return how many jobs stand where, how long the oldest has waited, and how many end."""
        with self._engine.read() as tx:
            rows = tx.all("counts")
            oldest = tx.one("oldest_waiting")
            now = self._now(tx)
            [finished] = tx.all("finished_since", since=now - MINUTE)
        kinds = _counts(rows)
        return Stats(
            counts={status: sum(of[status] for of in kinds.values()) for status in Status},
            oldest_waiting_seconds=max(0.0, now - oldest["created_at"]) if oldest else None,
            kinds=kinds,
            finished_last_minute=finished["jobs"],
        )

    def typical_seconds(self, kind: str) -> float | None:
        """Return the mean run time of the kind's newest jobs that are done; None without one."""
        check_name(kind, "kind")
        with self._engine.read() as tx:
            [row] = tx.all("run_times", kind=kind, limit=RECENT_JOBS)
        return None if row["seconds"] is None else max(0.0, float(row["seconds"]))

    def change_mark(self) -> int:
        """Return a number to pass to `wait`; take it before the claim that finds nothing."""
        return self._engine.change_mark()

    def wait(self, mark: int, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until something is due or has changed since `mark`, but at most `seconds`."""
        check_seconds(seconds, "seconds", least=0)
        now, due = self._next_due()
        if due is not None:
            seconds = min(seconds, max(0.0, due - now))
        self._engine.wait_for_change(mark, seconds, stop)

    def wait_for_change(
        self, mark: int, seconds: float, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until another connection has changed something since `mark`; at most `seconds`."""
        check_seconds(seconds, "seconds", least=0)
        self._engine.wait_for_change(mark, seconds, stop)

    def close(self) -> None:
        """Close every connection of this process."""
        self._engine.close()

    def _now(self, tx: Transaction) -> float:
        return tx.now() if self._clock is None else float(self._clock())

    def _newer(self, tx: Transaction, after: int, limit: int) -> Sequence[Row]:
        """Return the events after one, without those that an unseen one may yet come before.

        Where transactions commit side by side, a number may be drawn first and appear last. A
        reader that went on past it would never see it. So a gap is waited for; it stays where a
        transaction was undone, or events were deleted.
        """
        rows = tx.all("events", after=after, limit=limit)
        if self._engine.one_writer or _gapless(rows, after) == len(rows):
            return rows
        settled, last = self._engine.settle(tx, SETTLE_SECONDS), rows[-1]["seq"]
        rows = [r for r in tx.all("events", after=after, limit=limit) if r["seq"] <= last]
        return rows if settled else rows[: _gapless(rows, after)]

    def _next_due(self) -> tuple[float, float | None]:
        """Return the time, and the time at which a claim may first find something."""
        with self._engine.read() as tx:
            now = self._now(tx)
            [row] = tx.all("next_due", now=now)
        return now, row["due"]


def _gapless(rows: Sequence[Row], after: int) -> int:
    """Return how many of the rows follow one another without a gap, beginning after a number."""
    return next((n for n, row in enumerate(rows) if row["seq"] != after + n + 1), len(rows))


# The statement that gives a page of jobs, by what is asked for.
LISTS = {
    (): "jobs",
    ("status",): "jobs_with_status",
    ("kind",): "jobs_of_kind",
    ("kind", "status"): "jobs_of_kind_with_status",
}


def check_status(status: Status, allowed: Collection[Status]) -> Status:
    """Return the status if it is one of those allowed; raise InvalidInput otherwise."""
    if status not in allowed:
        raise InvalidInput(f"status is {str(status)!r}: use {', '.join(allowed)}")
    return Status(status)


def existing(tx: Transaction, job_id: str, statement: str = "job") -> Row:
    """Return the job's row, as a statement gives it. Raises UnknownJob."""
    row = _row(tx, job_id, statement)
    if row is None:
        raise UnknownJob(job_id)
    return row


def _row(tx: Transaction, job_id: str, statement: str = "job") -> Row | None:
    # An id comes from a URL or a command line, and may hold what a database refuses to look for.
    return tx.one(statement, id=job_id) if HEX.fullmatch(job_id) else None


def _counts(rows: Sequence[Row]) -> dict[str, dict[Status, int]]:
    """Return the number of jobs by kind and status; one without a status counts as failed."""
    kinds: dict[str, dict[Status, int]] = {}
    for row in rows:
        of_kind = kinds.setdefault(readable(row["kind"]), dict.fromkeys(Status, 0))
        known = row["status"] in set(Status)
        of_kind[Status(row["status"]) if known else Status.FAILED] += row["jobs"]
    return kinds
