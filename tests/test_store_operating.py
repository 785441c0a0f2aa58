"""The contract of every store: cancel, retry and prune, releases, policies, and many jobs at once.

Each test runs on every engine.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from jobq import (
    EventName,
    IdempotencyConflict,
    InvalidInput,
    Job,
    LeaseLost,
    NotStrictJson,
    Outcome,
    RetryPolicy,
    Status,
    Store,
    UnknownJob,
    WrongStatus,
)
from jobq.job import Progress
from jobq.store import endings, operating
from jobq.store.engine import Transaction

if TYPE_CHECKING:
    from tests.conftest import Clock, Program

LEASE = 10.0  # seconds on the clock of the test
DAY = 86_400.0


def claimed(store: Store, **options: Any) -> Job:
    """Enqueue a job and claim it."""
    store.enqueue("nap", {}, **options)
    return take(store)


def take(store: Store, worker: str = "w1") -> Job:
    """Claim a job that has to be there."""
    job = store.claim(worker, LEASE)
    assert job is not None
    return job


def now(store: Store, job: Job) -> Job:
    """Return the job as it stands."""
    found = store.get(job.id)
    assert found is not None
    return found


def failed(store: Store, **options: Any) -> Job:
    """Return a job that is failed."""
    return store.fail(claimed(store, **options), "no", final=True)


def names(store: Store, job: Job) -> list[EventName]:
    """Return what happened to a job."""
    return [event.name for event in store.events(job.id)]


# ----------------------------------------------------------------------------------- cancel


def test_a_queued_job_is_cancelled_at_once(store: Store, clock: "Clock") -> None:
    """Also one whose time has not come; nobody gets it any more."""
    for job in (store.enqueue("nap", {}).job, store.enqueue("nap", {}, run_after=clock() + 5).job):
        cancelled = store.cancel(job.id)
        assert cancelled == now(store, job)
        assert (cancelled.status, cancelled.finished_at) == ("cancelled", clock.now)
        assert names(store, job) == ["enqueued", "cancelled"]
    clock.move(5)
    assert store.claim("w1", LEASE) is None


def test_a_running_job_is_told_with_the_heartbeat_and_ends_cancelled(store: Store) -> None:
    """The worker hears of it, stops, and says so: then the job is cancelled."""
    job = claimed(store)
    assert not store.heartbeat(job, LEASE).cancel_requested
    asked = store.cancel(job.id)
    assert (asked.status, asked.cancel_requested, asked.token) == ("running", True, job.token)
    assert store.heartbeat(job, LEASE).cancel_requested
    cancelled = store.confirm_cancel(job)
    assert (cancelled.status, cancelled.cancel_requested) == ("cancelled", False)
    assert [attempt.outcome for attempt in store.attempts(job.id)] == [Outcome.CANCELLED]
    assert names(store, job)[2:] == ["heartbeat", "cancel_requested", "heartbeat", "cancelled"]


@pytest.mark.parametrize("running", [True, False])
def test_to_cancel_twice_is_to_cancel_once(store: Store, *, running: bool) -> None:
    """The second call answers like the first and writes nothing."""
    job = claimed(store) if running else store.enqueue("nap", {}).job
    first = store.cancel(job.id)
    log = store.events()
    assert store.cancel(job.id) == first
    assert store.events() == log


ENDS: dict[str, Callable[[Store, Job], Job]] = {
    "finish": lambda store, job: store.finish(job, 1),
    "fail": lambda store, job: store.fail(job, "no"),
    "fail for good": lambda store, job: store.fail(job, "no", final=True),
    "crash": lambda store, job: store.fail(job, "no", crashed=True),
    "release": lambda store, job: store.release(job),
    "confirm": lambda store, job: store.confirm_cancel(job),
}


@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_attempt_at_a_job_to_be_cancelled_is_its_last(
    store: Store, clock: "Clock", end: Callable[[Store, Job], Job], max_attempts: int
) -> None:
    """If it succeeds all the same the job is done; however else it ends, the job is cancelled."""
    job = claimed(store, max_attempts=max_attempts)
    store.cancel(job.id)
    ended = end(store, job)
    assert ended.status == ("done" if end is ENDS["finish"] else "cancelled")
    assert (ended.finished_at, ended.cancel_requested) == (clock.now, False)
    clock.move(2 * LEASE)
    assert store.claim("w2", LEASE) is None


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_job_to_be_cancelled_whose_worker_died_is_cancelled_by_the_next_claim(
    store: Store, clock: "Clock", max_attempts: int
) -> None:
    """Nobody is there to confirm it, and nobody runs it again."""
    job = claimed(store, max_attempts=max_attempts)
    store.cancel(job.id)
    clock.move(LEASE + 1)
    assert store.claim("w2", LEASE) is None
    assert now(store, job).status == "cancelled"
    assert [attempt.outcome for attempt in store.attempts(job.id)] == [Outcome.CRASHED]


@pytest.mark.parametrize("end", ["finish", "fail for good"])
def test_a_job_that_is_done_or_failed_cannot_be_cancelled(store: Store, end: str) -> None:
    """The error says how it stands, and nothing changes."""
    job = ENDS[end](store, claimed(store))
    with pytest.raises(WrongStatus, match=f"is {job.status}: only a queued or running") as wrong:
        store.cancel(job.id)
    assert (wrong.value.job_id, wrong.value.status) == (job.id, job.status)
    assert now(store, job) == job


# ------------------------------------------------------------------------------------ retry


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_retried_job_begins_anew_under_a_new_token(store: Store, max_attempts: int) -> None:
    """Its attempts start over, its tokens go on, what it was stays."""
    job = claimed(store, max_attempts=max_attempts)
    store.heartbeat(job, LEASE, Progress(1, 2))
    store.fail(job, "no", final=True)
    again = store.retry(job.id)
    assert again == now(store, job)
    assert (again.status, again.attempts, again.token) == ("queued", 0, 1)
    assert (again.finished_at, again.run_after, again.error) == (None, 0, "no")
    assert again.progress == Progress(1, 2)
    running = take(store)
    assert (running.attempts, running.token) == (1, 2)
    assert names(store, job)[-2:] == ["retried", "claimed"]


def test_g4_a_retried_job_is_bounded_anew(store: Store, clock: "Clock") -> None:
    """It gets all its attempts once more, and not one beyond."""
    job = store.enqueue("nap", {}, max_attempts=2).job
    for _ in range(2):
        for _ in range(2):
            store.fail(take(store), "no")
            clock.move(60)
        assert store.claim("w1", LEASE) is None
        store.retry(job.id)


def test_g6_a_worker_from_before_the_retry_stays_refused(store: Store, clock: "Clock") -> None:
    """Its attempt has the number of the present one; its token has not."""
    old = claimed(store, max_attempts=1)
    clock.move(LEASE + 1)
    assert store.claim("w2", LEASE) is None
    store.retry(old.id)
    current = take(store, "w2")
    assert old.attempts == current.attempts
    for end in ENDS.values():
        with pytest.raises(LeaseLost, match="w2 runs the job now, with token 2"):
            end(store, old)
    assert now(store, current) == current


def test_a_cancelled_job_can_be_retried(store: Store) -> None:
    """It runs as if nobody had asked for its end."""
    waiting = store.enqueue("nap", {}).job
    store.cancel(waiting.id)
    assert store.retry(waiting.id).status == "queued"
    store.cancel(take(store).id)
    store.confirm_cancel(now(store, waiting))
    store.retry(waiting.id)
    running = take(store)
    assert not store.heartbeat(running, LEASE).cancel_requested
    assert store.finish(running, 1).status == "done"


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING, Status.DONE])
def test_a_job_that_is_neither_failed_nor_cancelled_cannot_be_retried(
    store: Store, status: Status
) -> None:
    """A done job stays done (G3); the error says how it stands."""
    job = store.enqueue("nap", {}).job
    if status != Status.QUEUED:
        job = take(store)
    if status == Status.DONE:
        job = store.finish(job, 1)
    with pytest.raises(WrongStatus, match=f"is {status}: only a failed or cancelled"):
        store.retry(job.id)
    assert now(store, job) == job


@pytest.mark.parametrize("job_id", ["", "no such", "0" * 32, "a\x00b", "\udcff"])
def test_an_operator_is_told_of_an_id_that_no_job_has(store: Store, job_id: str) -> None:
    """Whatever it holds: it comes from a URL or a command line."""
    for ask in (store.cancel, store.retry):
        with pytest.raises(UnknownJob, match="no job has the id"):
            ask(job_id)


def test_all_jobs_of_a_status_and_a_kind_are_retried(store: Store) -> None:
    """Those and no others; the answer is their number."""
    store.enqueue("report", {})
    reports = [store.fail(take(store), "no", final=True)]
    naps = [failed(store) for _ in range(3)]
    cancelled = store.cancel(store.enqueue("nap", {}).job.id)
    done = store.finish(claimed(store), 1)
    assert store.retry_all(kind="nap") == 3
    assert {now(store, job).status for job in naps} == {"queued"}
    assert [now(store, job).status for job in (reports[0], cancelled, done)] == [
        "failed",
        "cancelled",
        "done",
    ]
    assert store.retry_all(status=Status.CANCELLED) == 1
    assert store.retry_all() == 1
    assert store.retry_all() == 0


def test_a_retry_of_all_meets_each_job_once_while_workers_fail_them_again(
    store: Store, url: str, opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind that always fails does not keep the operator's command going for ever."""
    monkeypatch.setattr(operating, "BATCH", 10)
    jobs = [failed(store) for _ in range(35)]
    worker = opened(url)  # its clock goes by the real time, which is later
    write = store._engine.write

    @contextmanager
    def write_then_fail() -> Iterator[Transaction]:
        with write() as tx:
            yield tx
        while job := worker.claim("w2", LEASE):
            worker.fail(job, "no", final=True)

    monkeypatch.setattr(store._engine, "write", write_then_fail)
    assert store.retry_all() == 35
    assert all(names(store, job).count(EventName.RETRIED) == 1 for job in jobs)


@pytest.mark.parametrize("status", [Status.DONE, Status.RUNNING, Status.QUEUED, "lost"])
def test_only_failed_or_cancelled_jobs_can_be_retried_in_bulk(store: Store, status: Any) -> None:
    """The message names the two there are."""
    with pytest.raises(InvalidInput, match="use failed, cancelled"):
        store.retry_all(status=status)


# ------------------------------------------------------------------------------------ prune


def test_prune_deletes_what_has_long_been_final_with_all_that_belongs_to_it(
    store: Store, clock: "Clock"
) -> None:
    """Done, failed and cancelled jobs alike; younger ones stay, and so does what is under way."""
    done = claimed(store)
    store.mark_done(done, "mail-1")
    store.finish(done, 1)
    failed(store)
    store.cancel(store.enqueue("nap", {}).job.id)
    running = claimed(store)
    queued = store.enqueue("nap", {}, run_after=clock() + 100 * DAY).job
    clock.move(DAY)
    young = store.cancel(store.enqueue("nap", {}).job.id)
    clock.move(0.25)
    assert store.prune(DAY) == 3
    assert store.list() == [young, queued, running]
    assert {event.job_id for event in store.events()} == {young.id, queued.id, running.id}
    with store.transaction() as tx:
        assert [row["job_id"] for row in tx.execute("SELECT job_id FROM attempts")] == [running.id]
        assert tx.execute("SELECT * FROM marks") == []
    with pytest.raises(UnknownJob):
        store.attempts(done.id)
    with pytest.raises(LeaseLost, match="no such job"):
        store.finish(done, 2)


def test_prune_can_be_of_one_status(store: Store, clock: "Clock") -> None:
    """For instance to keep what failed until somebody has looked at it."""
    kept = failed(store)
    store.finish(claimed(store), 1)
    clock.move(1)
    assert store.prune(0, status=Status.DONE) == 1
    assert store.list() == [kept]


def test_g5_prune_keeps_a_key_as_long_as_promised(store: Store, clock: "Clock") -> None:
    """openlinker#2919: a redelivery within the promise meets its job; after it, a new one is made.

    The age is the key's, which was first used when the job was enqueued.
    """
    first = store.enqueue("nap", {}, "order-7").job
    clock.move(6 * DAY)
    store.finish(take(store), 1)
    clock.move(0.5 * DAY)
    assert store.prune(60) == 0
    assert store.enqueue("nap", {}, "order-7").job.id == first.id
    clock.move(0.75 * DAY)
    assert store.prune(60) == 1
    assert store.enqueue("nap", {}, "order-7").created


def test_prune_takes_a_promise_of_the_callers(store: Store, clock: "Clock") -> None:
    """Nought seconds forget the key with the job."""
    store.enqueue("nap", {}, "order-7")
    store.finish(take(store), 1)
    clock.move(1)
    assert store.prune(0, keys_kept_seconds=60) == 0
    assert store.prune(0, keys_kept_seconds=0) == 1


def test_the_log_goes_on_after_a_prune(store: Store, clock: "Clock") -> None:
    """No number of an event is given out again: a reader that has seen it misses nothing."""
    store.finish(claimed(store), 1)
    seen = store.last_event()
    clock.move(1)
    store.prune(0)
    store.enqueue("nap", {})
    assert [event.name for event in store.events(after=seen)] == [EventName.ENQUEUED]


@pytest.mark.parametrize("limit", ["BATCH", "ROWS"])
def test_prune_goes_by_small_steps_and_meets_every_job(
    store: Store, clock: "Clock", monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Jobs that may not go, and jobs of the same moment, hide none of those behind them."""
    monkeypatch.setattr(operating, limit, 3)
    for n in range(20):
        store.enqueue("nap", {}, f"key {n}" if n % 3 else None)
        store.finish(take(store), 1)
        clock.move(n % 2)
    clock.move(1)
    assert store.prune(0) == 7
    assert store.prune(0, keys_kept_seconds=0) == 13


def test_a_worker_claims_between_the_steps_of_a_prune(
    store: Store, url: str, opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step holds the store for longer than its few jobs take."""
    monkeypatch.setattr(operating, "BATCH", 5)
    for _ in range(50):
        store.finish(claimed(store), 1)
    operator = opened(url)  # its clock goes by the real time, which is later
    write, taken = operator._engine.write, []

    @contextmanager
    def write_then_claim() -> Iterator[Transaction]:
        with write() as tx:
            yield tx
        taken.append(claimed(store).id)

    with monkeypatch.context() as patch:
        patch.setattr(operator._engine, "write", write_then_claim)
        assert operator.prune(0) == 50
    assert len(taken) == 11  # ten steps, and a look at the end
    assert {job.id for job in store.list()} == set(taken)


PRUNE_BADLY: dict[str, tuple[Callable[[Any], object], str]] = {
    "negative": (lambda store: store.prune(-1), "older_than_seconds is -1"),
    "NaN": (lambda store: store.prune(math.nan), "older_than_seconds is nan"),
    "no number": (lambda store: store.prune(None), "older_than_seconds is None"),
    "queued jobs": (lambda store: store.prune(0, status=Status.QUEUED), "done, failed, cancelled"),
    "negative promise": (lambda store: store.prune(0, keys_kept_seconds=-1), "keys_kept_seconds"),
    "no kind": (lambda store: store.retry_all(kind=""), "kind is ''"),
    "kind that is no text": (lambda store: store.retry_all(kind="\udcff"), "kind holds half"),
}


@pytest.mark.parametrize(("misuse", "complaint"), PRUNE_BADLY.values(), ids=PRUNE_BADLY)
def test_careless_operators_are_told(
    store: Store, misuse: Callable[[Store], object], complaint: str
) -> None:
    """And nothing is deleted."""
    job = failed(store)
    with pytest.raises(InvalidInput, match=complaint):
        misuse(store)
    assert store.list() == [job]


# --------------------------------------------------------------------- releases and policies


def test_a_job_that_is_given_back_without_end_is_failed(store: Store) -> None:
    """Releases do not count as attempts, so they have a limit of their own (G4)."""
    job = store.enqueue("nap", {}).job
    for _ in range(endings.MAX_RELEASES - 1):
        assert store.release(take(store)).status == "queued"
    last = store.release(take(store))
    assert (last.status, last.attempts) == ("failed", 0)
    assert last.error == "given back 100 times and never brought to an end"
    store.retry(job.id)
    assert store.release(take(store)).status == "queued"


def test_releases_count_across_attempts_that_failed(
    store: Store, clock: "Clock", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a failure nor a crash in between lets them begin anew."""
    monkeypatch.setattr(endings, "MAX_RELEASES", 3)
    store.enqueue("nap", {}, max_attempts=9)
    store.release(take(store))
    store.fail(take(store), "no", after=0)
    store.release(take(store))
    take(store)
    clock.move(LEASE + 1)
    assert store.release(take(store)).status == "failed"


OWN, KINDS = RetryPolicy(base=7.0), RetryPolicy(base=3.0)


@pytest.mark.parametrize(
    ("own", "how", "wait"),
    [
        (None, {}, 0.5),
        (None, {"policy": KINDS}, 3.0),
        (OWN, {"policy": KINDS}, 7.0),
        (OWN, {}, 7.0),
        (OWN, {"policy": KINDS, "after": 1.5}, 1.5),
        (None, {"after": 0}, 0.0),
        (OWN, {"crashed": True}, 7.0),
        (None, {"crashed": True}, 0.5),
    ],
)
def test_the_wait_is_the_handlers_or_the_jobs_or_the_kinds_or_the_stores(
    store: Store, clock: "Clock", own: RetryPolicy | None, how: dict[str, Any], wait: float
) -> None:
    """In this order; and it is waited for."""
    job = store.fail(claimed(store, retry=own), "no", **how)
    assert (job.status, job.run_after) == ("queued", clock.now + wait)
    if wait:
        clock.move(wait - 0.25)
        assert store.claim("w1", LEASE) is None
        clock.move(0.25)
    assert take(store).attempts == 2


def test_a_job_keeps_its_own_policy(store: Store, url: str, opened: Callable[..., Store]) -> None:
    """To the bit, and for whoever reads it."""
    policy = RetryPolicy(base=0.1, factor=1.1, cap=1e300, jitter="full")
    job = store.enqueue("nap", {}, retry=policy).job
    other = opened(url).get(job.id)
    assert other is not None
    assert job.retry == other.retry == policy


def test_a_crash_that_is_seen_at_once_is_counted_and_backed_off(
    store: Store, clock: "Clock"
) -> None:
    """dramatiq#213: a job that kills its process is not run again without a pause, nor for ever."""
    job = claimed(store, max_attempts=2)
    waiting = store.fail(job, "killed by SIGSEGV", crashed=True)
    assert (waiting.attempts, waiting.error) == (1, "killed by SIGSEGV")
    assert store.claim("w1", LEASE) is None
    clock.move(0.5)
    last = store.fail(take(store), "killed by SIGSEGV", crashed=True)
    assert (last.status, last.attempts) == ("failed", 2)
    assert [a.outcome for a in store.attempts(job.id)] == [Outcome.CRASHED] * 2
    assert names(store, job)[2::2] == ["crashed", "crashed"]


@pytest.mark.parametrize("attempts", [1, 2, 1_000, 1_000_000])
def test_g8_no_number_of_attempts_makes_a_wait_without_end(
    store: Store, clock: "Clock", attempts: int
) -> None:
    """procrastinate#1462: whatever the factor, the wait stays within the cap."""
    policy = RetryPolicy(base=1.0, factor=1e300, cap=60.0)
    store.enqueue("nap", {}, max_attempts=1_000_000, retry=policy)
    job = take(store)
    with store.transaction() as tx:
        tx.execute("UPDATE jobs SET attempts = :n", {"n": attempts})
    ended = store.fail(job, "no")
    if attempts < 1_000_000:
        assert 1.0 <= ended.run_after - clock.now <= 60.0
    else:
        assert ended.status == "failed"


AFTERS: list[Any] = [-1, math.nan, math.inf, "soon", True, 10**400]


@pytest.mark.parametrize("after", AFTERS)
def test_a_wait_that_is_no_number_of_seconds_is_refused(store: Store, after: Any) -> None:
    """And the attempt can still be failed."""
    job = claimed(store)
    with pytest.raises(InvalidInput, match="after is "):
        store.fail(job, "no", after=after)
    assert now(store, job) == job


def test_g9_ageing_bounds_the_wait_of_the_least_urgent(store: Store, clock: "Clock") -> None:
    """Between the extremes lie 2,000 minutes: after these a new urgent job no longer overtakes."""
    least = store.enqueue("nap", {}, priority=-1_000).job
    clock.move(2_000 * 60 - 1)
    assert claimed(store, priority=1_000).id != least.id
    clock.move(1.25)
    store.enqueue("nap", {}, priority=1_000)
    assert take(store).id == least.id


# ----------------------------------------------------------------------------- many at once


def test_many_jobs_are_enqueued_in_one_transaction_and_in_order(store: Store) -> None:
    """Each mapping is the arguments of enqueue; the answers come in the same order."""
    policy = RetryPolicy(base=7.0)
    answers = store.enqueue_many(
        {"kind": "nap", "payload": {"n": n}, "priority": 1, "max_attempts": 2, "retry": policy}
        for n in range(5)
    )
    assert [answer.job.payload["n"] for answer in answers] == [0, 1, 2, 3, 4]
    assert all(answer.created for answer in answers)
    jobs = [answer.job for answer in answers]
    assert store.list() == jobs[::-1]
    assert {(job.priority, job.max_attempts, job.retry) for job in jobs} == {(1, 2, policy)}
    assert [event.job_id for event in store.events()] == [job.id for job in jobs]
    assert store.enqueue_many([]) == []


NAP = {"kind": "nap", "payload": {}}
BAD_JOBS: dict[str, tuple[Any, type[InvalidInput], str]] = {
    "no mapping": (5, InvalidInput, r"jobs\[1\]: it is a int: use a mapping"),
    "text": ("nap", InvalidInput, r"jobs\[1\]: it is a str"),
    "unknown argument": (NAP | {"key": "k"}, InvalidInput, r"jobs\[1\]: it has 'key': use kind"),
    "connection": (NAP | {"conn": None}, InvalidInput, r"jobs\[1\]: it has 'conn'"),
    "limit": (NAP | {"max_bytes": 10**9}, InvalidInput, r"jobs\[1\]: it has 'max_bytes'"),
    "number": (NAP | {5: 5}, InvalidInput, r"jobs\[1\]: it has 5"),
    "no kind": ({"payload": {}}, InvalidInput, r"jobs\[1\]: it has no kind"),
    "no payload": ({"kind": "nap"}, InvalidInput, r"jobs\[1\]: it has no payload"),
    "NaN": (NAP | {"payload": {"n": math.nan}}, NotStrictJson, r"jobs\[1\]: payload\.n is nan"),
    "no attempts": (NAP | {"max_attempts": 0}, InvalidInput, r"jobs\[1\]: max_attempts is 0"),
    "no policy": (NAP | {"retry": 5}, InvalidInput, r"jobs\[1\]: retry is 5: use a RetryPolicy"),
}


@pytest.mark.parametrize(("bad", "error", "complaint"), BAD_JOBS.values(), ids=BAD_JOBS)
def test_one_bad_job_of_many_is_named_and_none_is_enqueued(
    store: Store, bad: Any, error: type[InvalidInput], complaint: str
) -> None:
    """All or none, with the place of the bad one and the rule that it breaks."""
    with pytest.raises(error, match=complaint):
        store.enqueue_many([NAP, bad, NAP])
    assert store.list() == []
    assert store.events() == ()


def test_g5_a_key_that_comes_twice_in_one_call_gives_one_job(store: Store) -> None:
    """As if the calls had come one after the other."""
    keyed = NAP | {"idempotency_key": "order-7"}
    first, other, second = store.enqueue_many([keyed, NAP, keyed])
    assert (first.created, other.created, second.created) == (True, True, False)
    assert first.job == second.job
    assert len(store.list()) == 2


def test_g5_a_conflict_among_many_undoes_all_of_them(store: Store) -> None:
    """With a key from before, or within the call."""
    kept = store.enqueue("nap", {}, "order-7").job
    conflict = {"kind": "rest", "payload": {}, "idempotency_key": "order-7"}
    fresh = NAP | {"idempotency_key": "order-8"}
    for jobs in ([NAP, conflict], [fresh, conflict | {"idempotency_key": "order-8"}]):
        with pytest.raises(IdempotencyConflict, match="kind"):
            store.enqueue_many(jobs)
    assert store.list() == [kept]


def test_ten_thousand_jobs_are_one_call(store: Store) -> None:
    """No limit of the database's on parameters is met."""
    answers = store.enqueue_many(NAP for _ in range(10_000))
    assert len({answer.job.id for answer in answers}) == 10_000
    assert store.stats().counts[Status.QUEUED] == 10_000


ENQUEUE_MANY_AND_DIE = """
import os, sys
from jobq import open_store
from jobq.store import moves
store, event, calls = open_store(sys.argv[1]), moves.event, []
def die_at_the_third(*arguments, **options):
    calls.append(event(*arguments, **options))
    if len(calls) == 3:
        os.kill(os.getpid(), 9)
    return calls[-1]
moves.event = die_at_the_third
store.enqueue_many({"kind": "nap", "payload": {}} for _ in range(5))
"""


def test_many_jobs_of_a_process_killed_in_the_middle_are_none(
    start: Callable[..., "Program"], store: Store, url: str
) -> None:
    """SIGKILL between two rows leaves nothing."""
    assert store.list() == []
    assert start(ENQUEUE_MANY_AND_DIE, url).process.wait() != 0
    assert store.list() == []
    assert store.enqueue("nap", {}).created
