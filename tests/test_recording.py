"""jobq.recording: what was decided about an attempt is what the store has."""

import math
import time
from typing import Any

import pytest

from jobq import Job, Outcome, RetryPolicy, Status, Store, StoreError
from jobq.outcomes import ConfirmCancel, Decision, Fail, Finish, Release
from jobq.recording import Recorder


@pytest.fixture
def lines() -> list[str]:
    """Return what the recorder of this test said."""
    return []


@pytest.fixture
def recorder(store: Store, lines: list[str]) -> Recorder:
    """Return a recorder with time enough."""
    return Recorder(store, lines.append, lambda: math.inf)


@pytest.fixture
def job(store: Store) -> Job:
    """Return a job that a worker has just claimed."""
    store.enqueue("any", {})
    job = store.claim("worker-1")
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("decision", "line", "status", "outcome"),
    [
        (Finish(1), "finished {}", Status.DONE, Outcome.DONE),
        (Fail("no"), "failed {}: no", Status.QUEUED, Outcome.FAILED),
        (Fail("no", final=True), "failed {}: no", Status.FAILED, Outcome.FAILED),
        (Fail("SIGSEGV", crashed=True), "crashed {}: SIGSEGV", Status.QUEUED, Outcome.CRASHED),
        (Release(), "released {}", Status.QUEUED, Outcome.RELEASED),
        (ConfirmCancel(), "cancelled {}", Status.CANCELLED, Outcome.CANCELLED),
    ],
    ids=lambda value: repr(value) if not isinstance(value, str) else None,
)
def test_each_decision_is_recorded_and_said(
    store: Store,
    recorder: Recorder,
    job: Job,
    lines: list[str],
    decision: Decision,
    line: str,
    status: Status,
    outcome: Outcome,
) -> None:
    """The job as it is afterwards is returned, and the line names it."""
    after = recorder.record(job, decision)
    assert after == store.get(job.id)
    assert after.status is status
    assert [attempt.outcome for attempt in store.attempts(job.id)] == [outcome]
    assert lines == [line.format(job.id[:8])]


def test_the_handlers_wait_comes_before_the_kinds(store: Store, recorder: Recorder) -> None:
    """Retry(after=…), or else the policy of the kind."""
    waits = []
    for after in (7.0, None):
        store.enqueue("any", {})
        job = store.claim("worker-1")
        assert job is not None
        failed = recorder.record(job, Fail("no", after=after), RetryPolicy(base=100.0))
        waits.append(failed.run_after - store.now())
    assert waits == [7.0, 100.0]


def test_writes_are_committed_with_the_result(store: Store, recorder: Recorder, job: Job) -> None:
    """All of them, in the transaction that makes the job done."""

    def write(row: str) -> Any:
        return lambda tx: tx.execute("INSERT INTO orders VALUES (?)", (row,))

    with store.transaction() as tx:
        tx.execute("CREATE TABLE orders (name TEXT)")
    recorder.record(job, Finish(1, (write("first"), write("second"))))
    with store.transaction() as tx:
        assert [row["name"] for row in tx.execute("SELECT name FROM orders")] == ["first", "second"]


def test_a_write_that_raises_fails_the_attempt(store: Store, recorder: Recorder, job: Job) -> None:
    """Nothing of it is kept, and its error, whatever is in it, is the attempt's."""

    def write(tx: Any) -> None:
        tx.execute("CREATE TABLE orders (name TEXT)")
        raise RuntimeError("sold \x00 out \ud83d" + "!" * 5_000)

    after = recorder.record(job, Finish(1, (write,)))
    assert (after.status, after.result) == ("queued", None)
    assert str(after.error).startswith(r"RuntimeError: sold \x00 out \ud83d!!!")
    with store.transaction() as tx, pytest.raises(StoreError, match="orders"):
        tx.execute("SELECT name FROM orders")


def test_a_lost_job_gets_no_writes(
    store: Store, recorder: Recorder, job: Job, lines: list[str]
) -> None:
    """The fence comes first; the line says that the job is lost, and why."""
    written: list[Any] = []
    store.release(job)
    assert recorder.record(job, Finish(1, (written.append,))) is job
    assert written == []
    assert lines == [f"lost {job.id[:8]}: the job is queued"]


def test_trouble_is_said_once_until_the_store_works_again(
    recorder: Recorder, lines: list[str]
) -> None:
    """Each pause is longer than the one before, up to a second."""
    pauses = []
    for _ in range(3):
        began = time.monotonic()
        recorder.wait_out(OSError("disk full"))
        pauses.append(time.monotonic() - began)
    assert pauses == sorted(pauses)
    assert lines == ["cannot use the store: disk full; trying again"]
    recorder.all_is_well()
    recorder.complain(OSError("disk full"))
    assert len(lines) == 2
