"""The contract of every store: many jobs in one transaction. Each test runs on every engine."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from jobq import InvalidInput, Job, LeaseLost, NotStrictJson, Outcome, Status, Store

if TYPE_CHECKING:
    from tests.conftest import Clock

LEASE = 10.0  # seconds on the clock of the test


def enqueued(store: Store, count: int) -> list[str]:
    """Enqueue some jobs; return their ids in the order in which they are to run."""
    answers = store.enqueue_many({"kind": "nap", "payload": {"n": n}} for n in range(count))
    return [answer.job.id for answer in answers]


def test_g9_a_batch_is_the_first_jobs_in_their_order(store: Store) -> None:
    """The most urgent first, then the oldest, and no more than were asked for."""
    ids = enqueued(store, 5)
    urgent = store.enqueue("nap", {}, priority=1).job.id
    assert [job.id for job in store.claim_many("w1", 3, LEASE)] == [urgent, *ids[:2]]
    assert [job.id for job in store.claim_many("w2", 100, LEASE)] == ids[2:]
    assert store.claim_many("w1", 3, LEASE) == []


def test_g1_each_job_of_a_batch_has_a_lease_of_its_own(
    store: Store, clock: "Clock", assert_consistent: Callable[[Store], None]
) -> None:
    """It ends, is kept and is lost by itself."""
    enqueued(store, 3)
    kept, done, lost = store.claim_many("w1", 3, LEASE)
    store.finish(done, "first")
    clock.move(LEASE - 1)
    store.heartbeat(kept, LEASE)
    clock.move(2)
    [again] = store.claim_many("w2", 3, LEASE)
    assert (again.id, again.attempts, again.worker) == (lost.id, 2, "w2")
    assert store.finish(kept, "second").status is Status.DONE
    with pytest.raises(LeaseLost):
        store.finish(lost, "late")
    assert_consistent(store)


def test_a_row_that_cannot_be_claimed_stops_none_of_its_batch(
    store: Store, outside: Callable[[str], object]
) -> None:
    """oban#652: it is failed, and says why; the others are served, in their order."""
    ids = enqueued(store, 4)
    outside(f"UPDATE jobs SET payload = '[]' WHERE id = '{ids[1]}'")  # noqa: S608 - no input
    jobs = store.claim_many("w1", 3, LEASE)
    assert [job.id for job in jobs] == [ids[0], ids[2], ids[3]]
    [bad] = store.list(status=Status.FAILED)
    assert bad.id == ids[1]
    assert [len(store.attempts(job.id)) for job in jobs] == [1, 1, 1]


@pytest.mark.parametrize("limit", [0, -1, 1_001, 1.0, True, None])
def test_a_batch_has_a_bounded_size(store: Store, limit: Any) -> None:
    """From 1 to 1,000: more would keep others waiting."""
    enqueued(store, 1)
    with pytest.raises(InvalidInput, match="limit is "):
        store.claim_many("w1", limit, LEASE)
    assert store.stats().counts[Status.QUEUED] == 1


def test_results_are_recorded_together_and_answered_in_order(
    store: Store, assert_consistent: Callable[[Store], None]
) -> None:
    """Each job has its own result, attempt and event."""
    enqueued(store, 3)
    jobs = store.claim_many("w1", 3, LEASE)
    answers = store.finish_many([(job, job.payload["n"]) for job in reversed(jobs)])
    assert [as_job(answer).result for answer in answers] == [2, 1, 0]
    assert answers == [store.get(job.id) for job in reversed(jobs)]
    assert {a.outcome for job in jobs for a in store.attempts(job.id)} == {Outcome.DONE}
    assert_consistent(store)


def as_job(answer: Job | LeaseLost) -> Job:
    """Return an answer that is a job."""
    assert isinstance(answer, Job)
    return answer


def test_g6_a_lost_job_stands_among_those_that_are_done(
    store: Store, clock: "Clock", assert_consistent: Callable[[Store], None]
) -> None:
    """The late result changes nothing, and the others are recorded all the same."""
    enqueued(store, 2)
    kept, late = store.claim_many("w1", 2, LEASE)
    store.heartbeat(kept, 3 * LEASE)
    clock.move(LEASE + 1)
    current = store.claim("w2", LEASE)
    assert current is not None
    lost, done = store.finish_many([(late, "late"), (kept, "in time")])
    assert isinstance(lost, LeaseLost)
    assert (lost.job_id, lost.token, lost.why[:2]) == (late.id, late.token, "w2")
    assert as_job(done).result == "in time"
    assert store.get(late.id) == current
    assert_consistent(store)


def test_one_result_that_cannot_be_kept_leaves_all_jobs_running(store: Store) -> None:
    """Nothing was written before all results were looked at."""
    enqueued(store, 2)
    one, other = store.claim_many("w1", 2, LEASE)
    log = store.events()
    with pytest.raises(NotStrictJson, match="result is nan"):
        store.finish_many([(one, 1), (other, float("nan"))])
    with pytest.raises(InvalidInput, match="given twice"):
        store.finish_many([(one, 1), (one, 2)])
    assert store.events() == log
    assert store.finish_many([]) == []


def test_a_job_that_was_never_claimed_is_not_finished(store: Store) -> None:
    """Its lease cannot be lost, for there was none."""
    enqueued(store, 2)
    [claimed] = store.claim_many("w1", 1, LEASE)
    [waiting] = store.list(status=Status.QUEUED)
    done, refused = store.finish_many([(claimed, 1), (waiting, 2)])
    assert as_job(done).status is Status.DONE
    assert isinstance(refused, LeaseLost)
    assert store.get(waiting.id) == waiting


def test_a_thousand_and_one_jobs_are_recorded_in_their_order(store: Store) -> None:
    """Also where several statements record them."""
    ids = enqueued(store, 1_001)
    claimed = store.claim_many("w1", 1_000, LEASE) + store.claim_many("w1", 1_000, LEASE)
    assert [job.id for job in claimed] == ids
    assert [event.job_id for event in store.events(limit=1_001)] == ids


def test_g5_a_key_that_comes_twice_in_one_call_gives_one_job(store: Store) -> None:
    """The second is answered with the first."""
    job = {"kind": "nap", "payload": {}, "idempotency_key": "k"}
    first, second = store.enqueue_many([job, job])
    assert (first.created, second.created) == (True, False)
    assert first.job == second.job == store.get(first.job.id)


def test_a_store_says_whether_there_is_work(store: Store, clock: "Clock") -> None:
    """As long as a job is queued, delayed or running."""
    assert not store.unfinished()
    store.enqueue("nap", {}, run_after=clock.now + 5)
    assert store.unfinished()
    clock.move(5)
    [job] = store.claim_many("w1", 1, LEASE)
    assert store.unfinished()
    store.finish(job, {})
    assert not store.unfinished()
