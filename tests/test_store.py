"""The contract of every store: what the lesson's verbs promise, and the guarantees G1 to G11.

Each test runs on every engine. What only one engine promises has a file of its own.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from jobq import (
    Attempt,
    Event,
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
)

if TYPE_CHECKING:
    from tests.conftest import Clock, Program

LEASE = 10.0  # seconds on the clock of the test
PROMPT = 10.0  # seconds within which a waiter that is woken comes back, on a very busy machine

WRITES: dict[str, Callable[[Store, Job], Job]] = {
    "finish": lambda store, job: store.finish(job, "late"),
    "fail": lambda store, job: store.fail(job, "late"),
    "fail for good": lambda store, job: store.fail(job, "late", final=True),
    "release": lambda store, job: store.release(job),
    "heartbeat": lambda store, job: store.heartbeat(job, LEASE),
}
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


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


def everything(store: Store) -> tuple[list[Job], list[tuple[Attempt, ...]], tuple[Event, ...]]:
    """Return all that the store holds, to see that nothing has changed."""
    jobs = store.list(limit=1_000)
    return jobs, [store.attempts(job.id) for job in jobs], store.events()


def go(programs: Iterable["Program"]) -> None:
    """Let programs that have said they are ready go on together."""
    programs = list(programs)
    assert {program.hear() for program in programs} == {"ready"}
    for program in programs:
        program.tell()


# ------------------------------------------------------------------------ enqueue and read


def test_a_job_begins_queued(store: Store, clock: "Clock") -> None:
    """What enqueue answers is what every later reader sees."""
    job, created = store.enqueue("nap", {"seconds": 1}, "key", max_attempts=5, priority=2)
    assert created
    assert (job.status, job.attempts, job.token, job.run_after) == (Status.QUEUED, 0, 0, 0)
    assert (job.kind, job.payload, job.idempotency_key) == ("nap", {"seconds": 1}, "key")
    assert (job.max_attempts, job.priority, job.created_at) == (5, 2, clock.now)
    assert (job.worker, job.locked_until, job.result, job.error) == (None, None, None, None)
    assert store.get(job.id) == job
    assert store.list() == [job]


def test_a_job_goes_from_queued_through_running_to_done(store: Store, clock: "Clock") -> None:
    """The lesson's path: the claim counts the attempt, the finish keeps its result."""
    job = store.enqueue("nap", {}).job
    running = take(store)
    assert (running.id, running.status, running.attempts) == (job.id, Status.RUNNING, 1)
    assert (running.worker, running.locked_until) == ("w1", clock.now + LEASE)
    clock.move(1)
    done = store.finish(running, {"total_cents": 5})
    assert (done.status, done.result, done.finished_at) == ("done", {"total_cents": 5}, clock.now)
    assert (done.worker, done.locked_until) == (None, None)


def test_every_answer_is_the_job_as_a_reader_sees_it(store: Store) -> None:
    """Each verb answers with the same values, of the same types, as get."""
    job = store.enqueue("nap", {}, run_after=5).job
    assert repr(job) == repr(now(store, job))
    job = take(store)
    for write in (store.heartbeat, store.release):
        assert repr(job) == repr(now(store, job))
        job = write(job)
    for ended in (store.fail(take(store), "no", final=True), store.finish(claimed(store), 1)):
        assert repr(ended) == repr(now(store, ended))


def test_the_error_of_the_last_failure_stays_when_a_later_attempt_succeeds(
    store: Store, clock: "Clock"
) -> None:
    """As in the lesson: it tells why the job took more than one attempt."""
    store.fail(claimed(store), "upstream timeout")
    clock.move(60)
    done = store.finish(take(store), 1)
    assert (done.status, done.attempts, done.error) == ("done", 2, "upstream timeout")


def test_a_crash_is_an_error_of_the_attempt_and_not_of_a_job_that_recovers(
    store: Store, clock: "Clock"
) -> None:
    """As in the lesson, whose recovered job is done with no error."""
    claimed(store)
    clock.move(LEASE + 1)
    done = store.finish(take(store), 1)
    assert (done.attempts, done.error) == (2, None)
    assert "the lease of w1 ran out" in str(store.attempts(done.id)[0].error)


def test_the_log_says_what_each_change_made_true(store: Store, clock: "Clock") -> None:
    """Each event carries the state after it: lease while there is one, wait while queued."""
    job = store.enqueue("nap", {}).job
    store.fail(store.heartbeat(take(store), 2 * LEASE), "no")
    told = [
        (e.name, e.status, e.attempt, e.token, e.worker, e.locked_until, e.run_after, e.error)
        for e in store.events(job.id)
    ]
    lease, wait = clock.now + LEASE, clock.now + 0.5
    assert told == [
        ("enqueued", "queued", 0, 0, None, None, 0, None),
        ("claimed", "running", 1, 1, "w1", lease, None, None),
        ("heartbeat", "running", 1, 1, "w1", lease + LEASE, None, None),
        ("failed", "queued", 1, 1, "w1", None, wait, "no"),
    ]


def test_the_attempts_of_a_job_are_kept_first_one_first(store: Store, clock: "Clock") -> None:
    """Who tried, from when to when, and how it ended."""
    start = clock.now
    job = claimed(store)
    clock.move(1)
    store.fail(job, "no")
    clock.move(1)
    take(store, "w2")
    assert store.attempts(job.id) == (
        Attempt(job.id, 1, 1, "w1", start, start + 1, Outcome.FAILED, "no"),
        Attempt(job.id, 2, 2, "w2", start + 2, None, None, None),
    )


@pytest.mark.parametrize("status", [None, Status.QUEUED])
def test_pages_of_jobs_neither_skip_nor_repeat_while_others_arrive(
    store: Store, status: Status | None
) -> None:
    """Newest first; the page after a job begins with the next older one, whatever came since."""
    ids = [store.enqueue("nap", {}).job.id for _ in range(5)]
    first = store.list(status=status, limit=2)
    store.enqueue("nap", {})
    second = store.list(status=status, limit=9, before=first[-1].id)
    assert [job.id for job in first + second] == ids[::-1]


def test_a_list_can_be_of_one_status_and_one_kind(store: Store) -> None:
    """Both narrow the list, alone and together."""
    nap, report = store.enqueue("nap", {}).job, store.enqueue("report", {}).job
    running = take(store)
    assert running.id == nap.id
    assert store.list(status=Status.QUEUED) == [report]
    assert store.list(kind="nap") == [running]
    assert store.list(status=Status.QUEUED, kind="nap") == []


def test_events_are_read_on_from_the_last_one_seen(store: Store) -> None:
    """What follows `after` is what has not been seen, of one job or of all."""
    first, second = store.enqueue("nap", {}).job, store.enqueue("nap", {}).job
    log = store.events()
    assert [event.job_id for event in log] == [first.id, second.id]
    take(store)
    assert [e.name for e in store.events(after=log[-1].seq)] == [EventName.CLAIMED]
    assert [e.name for e in store.events(first.id, after=log[0].seq)] == [EventName.CLAIMED]
    assert store.events(limit=1) == log[:1]


def test_stats_count_every_status_and_the_longest_wait(store: Store, clock: "Clock") -> None:
    """A status without jobs is 0, and without a queue there is no wait."""
    assert store.stats().counts == dict.fromkeys(Status, 0)
    store.finish(claimed(store), 1)
    assert store.stats().oldest_waiting_seconds is None
    store.enqueue("nap", {})
    clock.move(3)
    store.enqueue("nap", {})
    assert store.stats().counts == dict.fromkeys(Status, 0) | {Status.QUEUED: 2, Status.DONE: 1}
    assert store.stats().oldest_waiting_seconds == 3


def test_a_store_that_was_closed_opens_again_at_the_next_call(store: Store) -> None:
    """Closing gives the connections back and loses nothing."""
    job = store.enqueue("nap", {}).job
    store.close()
    assert store.get(job.id) == job


def test_one_store_serves_many_threads(
    store: Store, assert_consistent: Callable[[Store], None]
) -> None:
    """Eight threads enqueue, claim and finish through one store, and each job is done once."""

    def work(_: int) -> str:
        store.enqueue("nap", {})
        # Another thread may have taken this job, and its own come too late for this look.
        looks = (store.claim("w1", LEASE) for _ in range(1_000))
        return store.finish(next(job for job in looks if job is not None), 1).id

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(work, range(80)))
    assert len(set(done)) == 80
    assert_consistent(store)


# ------------------------------------------------------------------------------ strict JSON


def nested(depth: int) -> Any:
    """Return a number within that many lists."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

KEPT: dict[str, Any] = {
    "empty object": {},
    "empty list": [],
    "empty text": "",
    "empty key": {"": 0},
    "null": None,
    "true, 1 and 1.0": [True, 1, 1.0],
    "2^70": 2**70,
    "3,000 digits": 10**2999,
    "-0.0": -0.0,
    "1e308": 1e308,
    "smallest float": 5e-324,
    "0.1 + 0.2": 0.1 + 0.2,
    "emoji": "🦀 e\u0301",
    "awkward text": "\ufeff\"\\\r\n\t\x01\x7f\u2028\uffff'; --",
    "looks escaped": "\\u0000",
    "90 deep": nested(90),
}
REFUSED: dict[str, Any] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "NUL": "a\x00b",
    "NUL in a key": {"\x00": 1},
    "lone surrogate": "\ud83d",
    "10^5000": 10**5000,
    "1,500 deep": nested(1500),
    "a list within itself": ENDLESS,
    "tuple": (1, 2),
    "set": {1},
    "bytes": b"a",
    "integer key": {1: "a"},
    "5 MB": "x" * 5_000_000,
}
TEXTS = [name for name, value in REFUSED.items() if isinstance(value, str)]


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT)
def test_json_comes_back_exactly_as_payload_and_as_result(
    store: Store, url: str, opened: Callable[..., Store], value: Any
) -> None:
    """Another reader sees each digit, sign, character and type that went in."""
    store.enqueue("nap", {"value": value})
    store.finish(take(store), value)
    (seen,) = opened(url).list()
    assert repr(seen.payload["value"]) == repr(seen.result) == repr(value)


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_a_payload_that_json_cannot_carry_is_refused_and_leaves_nothing(
    store: Store, value: Any
) -> None:
    """Refused at the door, with a message that begins at the payload."""
    with pytest.raises(NotStrictJson, match="payload"):
        store.enqueue("nap", {"value": value})
    assert everything(store) == ([], [], ())


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_after_a_result_that_json_cannot_carry_the_attempt_can_still_be_failed(
    store: Store, value: Any
) -> None:
    """The refused finish changes nothing, and its message can be the error of the attempt."""
    job = claimed(store)
    before = everything(store)
    with pytest.raises(NotStrictJson, match="result") as refusal:
        store.finish(job, value)
    assert everything(store) == before
    assert store.fail(job, str(refusal.value)).error == str(refusal.value)


@pytest.mark.parametrize("name", TEXTS)
def test_after_an_error_text_that_is_refused_the_attempt_can_still_be_failed(
    store: Store, name: str
) -> None:
    """Error texts keep the rules of payloads and results, and refusing one changes nothing."""
    job = claimed(store)
    before = everything(store)
    with pytest.raises(NotStrictJson, match="error"):
        store.fail(job, REFUSED[name])
    assert everything(store) == before
    assert store.fail(job, "").error == ""


@pytest.mark.parametrize("text", [text for text in KEPT.values() if isinstance(text, str)])
def test_an_error_text_comes_back_exactly(store: Store, text: str) -> None:
    """An empty text is an error too, and not the lack of one."""
    job = store.fail(claimed(store), text)
    assert [job.error, store.attempts(job.id)[0].error, store.events()[-1].error] == [text] * 3


# ----------------------------------------------------------------------------------- misuse

MISUSES: dict[str, tuple[Callable[[Any], object], str]] = {
    "empty kind": (lambda store: store.enqueue("", {}), "kind"),
    "kind that is no text": (lambda store: store.enqueue(None, {}), "kind"),
    "payload that is a list": (lambda store: store.enqueue("nap", []), "payload is a list"),
    "payload that is None": (lambda store: store.enqueue("nap", None), "payload is a NoneType"),
    "empty key": (lambda store: store.enqueue("nap", {}, ""), "idempotency key"),
    "blank key": (lambda store: store.enqueue("nap", {}, "  "), "idempotency key"),
    "key of 300": (lambda store: store.enqueue("nap", {}, "k" * 300), "idempotency key has 300"),
    "no attempts": (lambda store: store.enqueue("nap", {}, max_attempts=0), "max_attempts is 0"),
    "attempts by the half": (lambda s: s.enqueue("nap", {}, max_attempts=1.5), "max_attempts"),
    "attempts True": (lambda s: s.enqueue("nap", {}, max_attempts=True), "max_attempts is True"),
    "attempts beyond count": (lambda s: s.enqueue("nap", {}, max_attempts=10**9), "1,000,000"),
    "priority beyond": (lambda store: store.enqueue("nap", {}, priority=1001), "priority"),
    "priority below": (lambda store: store.enqueue("nap", {}, priority=-1001), "priority"),
    "run_after negative": (lambda store: store.enqueue("nap", {}, run_after=-1), "run_after"),
    "run_after NaN": (lambda store: store.enqueue("nap", {}, run_after=math.nan), "run_after"),
    "run_after never": (lambda store: store.enqueue("nap", {}, run_after=math.inf), "run_after"),
    "run_after vast": (lambda store: store.enqueue("nap", {}, run_after=10**400), "run_after"),
    "run_after text": (lambda store: store.enqueue("nap", {}, run_after="noon"), "run_after"),
    "empty worker": (lambda store: store.claim(""), "worker"),
    "worker of 300": (lambda store: store.claim("w" * 300), "worker has 300"),
    "lease negative": (lambda store: store.claim("w1", -1), "lease_seconds is -1"),
    "lease of nothing": (lambda store: store.claim("w1", 0), "lease_seconds is 0"),
    "lease NaN": (lambda store: store.claim("w1", math.nan), "lease_seconds is nan"),
    "lease for ever": (lambda store: store.claim("w1", math.inf), "lease_seconds is inf"),
    "lease vast": (lambda store: store.claim("w1", 10**400), "lease_seconds"),
    "lease True": (lambda store: store.claim("w1", lease_seconds=True), "lease_seconds is True"),
    "lease None": (lambda store: store.claim("w1", None), "lease_seconds is None"),
    "heartbeat negative": (lambda store: store.heartbeat(take(store), -1), "lease_seconds is -1"),
    "heartbeat NaN": (lambda store: store.heartbeat(take(store), math.nan), "lease_seconds"),
    "error None": (lambda store: store.fail(take(store), None), "error"),
    "list of none": (lambda store: store.list(limit=0), "limit is 0"),
    "list of all": (lambda store: store.list(limit=-1), "limit is -1"),
    "list of too many": (lambda store: store.list(limit=1001), "limit is 1001"),
    "list of True": (lambda store: store.list(limit=True), "limit is True"),
    "list of no status": (lambda store: store.list(status="lost"), "lost"),
    "events of none": (lambda store: store.events(limit=0), "limit is 0"),
    "events of all": (lambda store: store.events(limit=-1), "limit is -1"),
}


@pytest.mark.parametrize(("misuse", "complaint"), MISUSES.values(), ids=MISUSES)
def test_misuse_is_refused_with_the_value_and_the_rule(
    store: Store, misuse: Callable[[Store], object], complaint: str
) -> None:
    """Each careless call gets an InvalidInput that names what was wrong."""
    store.enqueue("nap", {})
    with pytest.raises(InvalidInput, match=complaint):
        misuse(store)


@pytest.mark.parametrize("job_id", ["", "no such", "x" * 10_000, "a\x00b", "\udcff", "'; --"])
def test_an_id_that_no_job_has_is_unknown_whatever_it_holds(store: Store, job_id: str) -> None:
    """An id comes from a URL or a command line: it may be any text, and is never an accident."""
    assert store.get(job_id) is None
    for ask in (store.attempts, store.events, lambda job_id: store.list(before=job_id)):
        with pytest.raises(UnknownJob, match="no job has the id"):
            ask(job_id)


# ---------------------------------------------------------------------------- G1 one owner

CLAIM_ALL = """
import sys
from jobq import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
input()
while job := store.claim(sys.argv[2]):
    print(job.id)
"""


def test_g1_claimers_in_many_processes_never_share_a_job(
    start: Callable[..., "Program"], store: Store, url: str
) -> None:
    """Six processes that claim at once take every job, and no job twice."""
    ids = {store.enqueue("nap", {}).job.id for _ in range(100)}
    programs = [start(CLAIM_ALL, url, f"w{n}") for n in range(6)]
    go(programs)
    taken = [job_id for program in programs for job_id in program.rest()]
    assert len(taken) == 100
    assert set(taken) == ids


def test_g1_one_claim_takes_one_job(store: Store) -> None:
    """queue_classic#320: however many are waiting, the others stay in the queue."""
    for _ in range(3):
        store.enqueue("nap", {})
    take(store)
    assert store.stats().counts[Status.RUNNING] == 1


def test_g1_a_lease_holds_to_its_last_moment(store: Store, clock: "Clock") -> None:
    """At `locked_until` itself the job is still its owner's."""
    job = claimed(store)
    clock.move(LEASE)
    assert store.claim("w2", LEASE) is None
    assert now(store, job) == job


def test_g1_a_heartbeat_holds_the_lease(store: Store, clock: "Clock") -> None:
    """A job that takes three leases is run once, by the worker that keeps its heart beating."""
    job = claimed(store)
    for _ in range(5):
        clock.move(LEASE - 4)
        job = store.heartbeat(job, LEASE)
        assert job.locked_until == clock.now + LEASE
        assert store.claim("w2", LEASE) is None
    assert store.finish(job, 1).attempts == 1


# -------------------------------------------------------------------------- G2 nothing lost

CLAIM_AND_STAY = """
import sys
from jobq import open_store
job = open_store(sys.argv[1]).claim("w1", lease_seconds=0.3)
print(job.id, flush=True)
input()
"""
# The job and its attempt are changed, the event is not yet written: the worst moment.
KILLED_IN_MID_WRITE = """
import os, sys
from jobq import open_store
from jobq.store import moves
store = open_store(sys.argv[1])
job = store.list(limit=1)[0]
moves.event = lambda *_, **__: os.kill(os.getpid(), 9)
exec(sys.argv[2])
"""


def test_g2_the_job_of_a_killed_worker_runs_again(
    start: Callable[..., "Program"], url: str, opened: Callable[..., Store]
) -> None:
    """After kill -9 the next claim past the lease takes the job, as its second attempt."""
    store = opened(url)
    job = store.enqueue("nap", {}).job
    worker = start(CLAIM_AND_STAY, url)
    assert worker.hear() == job.id
    worker.kill()
    again = wait_and_claim(store)
    assert (again.id, again.attempts, again.worker) == (job.id, 2, "w2")
    outcomes = [attempt.outcome for attempt in store.attempts(job.id)]
    assert outcomes == [Outcome.CRASHED, None]


@pytest.mark.parametrize(
    "write",
    [
        "store.enqueue('nap', {}, 'another key')",
        "store.claim('w2')",
        "store.heartbeat(job)",
        "store.finish(job, 1)",
        "store.fail(job, 'no')",
        "store.release(job)",
    ],
)
def test_g2_a_write_killed_before_its_commit_never_happened(
    start: Callable[..., "Program"], store: Store, url: str, write: str
) -> None:
    """SIGKILL between two changes of one move leaves neither, and the store free for others."""
    store.enqueue("nap", {})
    if "job" in write:
        take(store)
    before = everything(store)
    program = start(KILLED_IN_MID_WRITE, url, write)
    assert program.process.wait() != 0
    assert everything(store) == before
    assert store.enqueue("nap", {}, "another key").created


def test_g2_an_acknowledged_job_outlives_the_process_that_enqueued_it(
    start: Callable[..., "Program"], store: Store, url: str
) -> None:
    """Once enqueue has returned, kill -9 of its process loses nothing."""
    program = start(
        "import sys\nfrom jobq import open_store\nstore = open_store(sys.argv[1])\n"
        "print(store.enqueue('nap', {}).job.id, flush=True)\ninput()",
        url,
    )
    job_id = program.hear()
    program.kill()
    assert take(store).id == job_id


# ------------------------------------------------------------------------ G3 final is final

ENDS: dict[str, Callable[[Store, Job], Job]] = {
    "done": lambda store, job: store.finish(job, "first"),
    "failed for good": lambda store, job: store.fail(job, "first", final=True),
    "failed at the last attempt": lambda store, job: store.fail(job, "first"),
}


@each_write
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_g3_a_final_job_is_changed_by_no_worker(
    store: Store,
    clock: "Clock",
    end: Callable[[Store, Job], Job],
    write: Callable[[Store, Job], Job],
) -> None:
    """Not even the worker that ended it, and not by a claim that comes when its lease is over."""
    job = claimed(store, max_attempts=1)
    ended = end(store, job)
    assert ended.status.final
    before = everything(store)
    clock.move(2 * LEASE)
    assert store.claim("w2", LEASE) is None
    with pytest.raises(LeaseLost, match=f"the job is {ended.status}"):
        write(store, job)
    assert everything(store) == before


# ------------------------------------------------------------------------------- G4 bounded


def test_g4_a_job_that_kills_its_workers_ends_failed(store: Store, clock: "Clock") -> None:
    """After max_attempts crashes the job is failed, and says why; nobody gets it again."""
    job = store.enqueue("nap", {}, max_attempts=3).job
    for attempt in (1, 2, 3):
        assert take(store).attempts == attempt
        clock.move(LEASE + 1)
    assert store.claim("w1", LEASE) is None
    failed = now(store, job)
    assert (failed.status, failed.attempts, failed.finished_at) == ("failed", 3, clock.now)
    assert "the lease of w1 ran out" in str(failed.error)
    assert "the last of 3 attempts" in str(failed.error)
    assert [a.outcome for a in store.attempts(job.id)] == [Outcome.CRASHED] * 3


def test_g4_failures_and_crashes_count_alike(store: Store, clock: "Clock") -> None:
    """Two attempts are two, whichever way each of them ended."""
    crashed_first = claimed(store, max_attempts=2)
    clock.move(LEASE + 1)
    assert store.fail(take(store), "no").status == Status.FAILED
    failed_first = store.fail(claimed(store, max_attempts=2), "no")
    clock.move(60)
    take(store)
    clock.move(LEASE + 1)
    assert store.claim("w1", LEASE) is None
    assert {now(store, job).status for job in (crashed_first, failed_first)} == {Status.FAILED}


# ---------------------------------------------------------------------- G5 one key, one job

ENQUEUE_IN_FIVE_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from jobq import open_store
store = open_store(sys.argv[1])
together = Barrier(5)
def enqueue(_):
    together.wait()
    return store.enqueue("nap", {"n": 1}, "order-7")
print("ready", flush=True)
input()
with ThreadPoolExecutor(5) as threads:
    for job, created in threads.map(enqueue, range(5)):
        print(job.id, created)
"""


def test_g5_fifty_that_arrive_at_once_with_one_key_get_one_job(
    start: Callable[..., "Program"], store: Store, url: str
) -> None:
    """Ten processes of five threads each: one call creates the job, all fifty get it."""
    programs = [start(ENQUEUE_IN_FIVE_THREADS, url) for _ in range(10)]
    go(programs)
    answers = [line.split() for program in programs for line in program.rest()]
    (job,) = store.list()
    assert [job_id for job_id, _ in answers] == [job.id] * 50
    assert sorted(created for _, created in answers) == ["False"] * 49 + ["True"]


def test_g5_a_key_gives_its_job_whatever_has_become_of_it(store: Store) -> None:
    """Queued, running or done: asking again in the same words changes nothing."""
    job = store.enqueue("nap", {"a": 1, "b": 2}, "key").job
    assert store.enqueue("nap", {"b": 2, "a": 1}, "key") == (job, False)
    running = take(store)
    assert store.enqueue("nap", {"a": 1, "b": 2}, "key") == (running, False)
    done = store.finish(running, 1)
    assert store.enqueue("nap", {"a": 1, "b": 2}, "key") == (done, False)
    assert store.list() == [done]


def test_g5_a_key_with_another_request_is_refused_and_told_where_it_differs(store: Store) -> None:
    """The error names the fields, and the first job stays as it was."""
    job = store.enqueue("nap", {"seconds": 1, "same": 0}, "key").job
    with pytest.raises(IdempotencyConflict, match="kind, seconds, more") as conflict:
        store.enqueue("rest", {"seconds": 2, "same": 0, "more": 3}, "key")
    assert (conflict.value.key, conflict.value.job_id) == ("key", job.id)
    assert conflict.value.differing == ("kind", "seconds", "more")
    assert store.list() == [job]


def test_g5_without_a_key_every_call_makes_a_job(store: Store) -> None:
    """Two keys are two jobs, and no key is none that could be the same."""
    for key in ("a", "A", "a ", None, None):
        assert store.enqueue("nap", {}, key).created
    assert len(store.list()) == 5


# -------------------------------------------------------------------------------- G6 fenced


@each_write
@pytest.mark.parametrize("next_worker", ["w2", "w1"])
def test_g6_a_worker_that_lost_its_job_changes_nothing(
    store: Store, clock: "Clock", next_worker: str, write: Callable[[Store, Job], Job]
) -> None:
    """Its late write is refused and told who runs the job, also under the same worker's name."""
    late = claimed(store)
    clock.move(LEASE + 1)
    current = take(store, next_worker)
    before = everything(store)
    with pytest.raises(LeaseLost, match=f"{next_worker} runs the job now, with token 2") as lost:
        write(store, late)
    assert (lost.value.job_id, lost.value.token) == (late.id, 1)
    assert everything(store) == before
    assert store.finish(current, "mine").result == "mine"


@each_write
def test_g6_a_job_given_back_or_never_taken_is_nobodys(
    store: Store, write: Callable[[Store, Job], Job]
) -> None:
    """A ticket from before the claim, or from before the release, opens nothing."""
    never_taken = store.enqueue("nap", {}).job
    given_back = take(store)
    store.release(given_back)
    before = everything(store)
    for ticket in (never_taken, given_back):
        with pytest.raises(LeaseLost, match="the job is queued"):
            write(store, ticket)
    assert everything(store) == before


@each_write
def test_g6_a_ticket_for_no_job_says_so(store: Store, write: Callable[[Store, Job], Job]) -> None:
    """A job that is not there is a lost lease too, not a success."""
    ticket = dataclasses.replace(claimed(store), id="no such")
    with pytest.raises(LeaseLost, match="no such job"):
        write(store, ticket)


# ---------------------------------------------------------------- G7 the owner gets through


@each_write
def test_g7_the_owner_may_write_until_the_job_is_taken(
    store: Store, clock: "Clock", write: Callable[[Store, Job], Job]
) -> None:
    """A lease that ran out is no reason to throw away work that nobody else has begun."""
    job = claimed(store)
    clock.move(100 * LEASE)
    written = write(store, job)
    assert written == now(store, job)
    assert written.token == job.token


def test_g7_a_heartbeat_in_time_before_the_next_claim_keeps_the_job(
    store: Store, clock: "Clock"
) -> None:
    """It is the current owner's, so it counts from now on, however late it came."""
    job = claimed(store)
    clock.move(100 * LEASE)
    store.heartbeat(job, LEASE)
    assert store.claim("w2", LEASE) is None


# ----------------------------------------------------------------------------- G8 not early


def test_g8_a_job_is_not_claimed_before_its_time(store: Store, clock: "Clock") -> None:
    """Not a moment before run_after, and at that moment at once."""
    store.enqueue("nap", {}, run_after=clock.now + 60)
    for step in (30, 29.75):
        clock.move(step)
        assert store.claim("w1", LEASE) is None
    clock.move(0.25)
    take(store)


def test_g8_a_clock_that_steps_back_makes_nothing_early(store: Store, clock: "Clock") -> None:
    """A delayed job whose time had come waits again, and lets the next one pass."""
    store.enqueue("delayed", {}, run_after=clock.now + 60)
    clock.move(60)
    store.release(take(store))
    clock.move(-30)
    assert store.claim("w1", LEASE) is None
    store.enqueue("next", {})
    assert take(store).kind == "next"
    assert store.claim("w1", LEASE) is None
    clock.move(30)
    assert take(store).kind == "delayed"


@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999_999])
@pytest.mark.parametrize("jitter", ["none", "full"])
def test_g8_the_wait_after_each_failure_is_the_policys(
    opened: Callable[..., Store], url: str, clock: "Clock", jitter: Any, draw: float
) -> None:
    """After failure n the job is out of reach for as long as the policy's bounds say."""
    policy = RetryPolicy(base=0.5, factor=2, cap=20, jitter=jitter)
    store = opened(url, clock=clock, retry=policy, random=lambda: draw)
    store.enqueue("nap", {}, max_attempts=100)
    for failures in range(1, 12):
        waiting = store.fail(take(store), "no")
        shortest, longest = policy.bounds(failures)
        assert shortest <= waiting.run_after - clock.now <= longest
        if waiting.run_after > clock.now:
            assert store.claim("w1", LEASE) is None
        clock.move(waiting.run_after - clock.now)


# ------------------------------------------------------------------------------ G9 in order


def test_g9_the_most_urgent_comes_first_then_the_oldest(store: Store, clock: "Clock") -> None:
    """Priority decides, then age, then the order of arrival."""
    order = [("third", 0, 0), ("first", 5, 1), ("fourth", 0, 1), ("fifth", 0, 0), ("second", 5, 0)]
    for kind, priority, seconds in order:
        store.enqueue(kind, {}, priority=priority)
        clock.move(seconds)
    assert [take(store).kind for _ in order] == ["first", "second", "third", "fourth", "fifth"]


def test_g9_nobody_waits_for_ever(store: Store, clock: "Clock") -> None:
    """One step of priority is worth a minute: against a stream of urgent jobs, age wins."""
    store.enqueue("patient", {})

    def next_kind() -> str:
        store.enqueue("urgent", {}, priority=2)
        kind = store.finish(take(store), 1).kind
        clock.move(10)
        return kind

    assert [next_kind() for _ in range(20)].index("patient") == 12  # after two minutes


def test_g9_a_delayed_job_takes_the_place_of_its_age(store: Store, clock: "Clock") -> None:
    """Once its time has come it stands where it would have stood without the wait."""
    store.enqueue("delayed", {}, run_after=clock.now + 30)
    clock.move(1)
    store.enqueue("next", {})
    clock.move(28)
    assert take(store).kind == "next"
    store.enqueue("last", {})
    clock.move(1)
    assert [take(store).kind for _ in range(2)] == ["delayed", "last"]


def test_g9_a_job_that_failed_or_crashed_keeps_its_place(store: Store, clock: "Clock") -> None:
    """A second attempt does not go to the end of the queue."""
    for kind in ("failed", "crashed", "other"):
        store.enqueue(kind, {})
        clock.move(1)
    store.fail(take(store), "no")
    take(store)
    clock.move(LEASE + 1)
    assert [take(store).kind for _ in range(3)] == ["failed", "crashed", "other"]


# --------------------------------------------------------------------- G10 recovered in time


def test_g10_the_next_claim_after_the_lease_takes_the_job(store: Store, clock: "Clock") -> None:
    """There is no further wait; the crash is in the log, and ended when the lease did."""
    job = claimed(store)
    clock.move(LEASE + 0.25)
    again = take(store, "w2")
    assert (again.id, again.attempts, again.token) == (job.id, 2, 2)
    crashed, running = store.attempts(job.id)
    assert (crashed.outcome, crashed.ended_at) == (Outcome.CRASHED, job.locked_until)
    assert (running.outcome, running.started_at) == (None, clock.now)
    assert [event.name for event in store.events(job.id)][2:] == ["crashed", "claimed"]


def test_g10_any_number_of_delayed_jobs_is_woken_in_order(store: Store, clock: "Clock") -> None:
    """When 2,500 come due at once, the next claim still takes the first of all of them."""
    first = store.enqueue("nap", {}, run_after=clock.now + 60, priority=1).job
    later = {"kind": "nap", "payload": {}, "run_after": clock.now + 30}
    store.enqueue_many([later] * 2_499)
    clock.move(60)
    assert take(store).id == first.id


def test_g10_any_number_of_spent_jobs_hides_no_runnable_one(store: Store, clock: "Clock") -> None:
    """One claim gets past 150 jobs whose last attempt crashed to the one that can still run."""
    for _ in range(150):
        claimed(store, max_attempts=1)
    clock.move(1)
    job = claimed(store)
    clock.move(LEASE + 1)
    assert take(store).id == job.id


# ----------------------------------------------------------------------------- G11 clean stop


def test_g11_a_released_attempt_does_not_count(store: Store) -> None:
    """Given back ten times, the job still has the one attempt that it came with."""
    job = store.enqueue("nap", {}, max_attempts=1).job
    for token in range(1, 11):
        running = take(store)
        assert (running.attempts, running.token) == (1, token)
        assert store.release(running).attempts == 0
    assert store.finish(take(store), 1).status == Status.DONE
    assert [a.outcome for a in store.attempts(job.id)] == [Outcome.RELEASED] * 10 + [Outcome.DONE]


def test_g11_a_released_job_is_runnable_at_once_in_its_old_place(store: Store) -> None:
    """Whoever claims next gets it, before those that came after it."""
    job = claimed(store)
    store.enqueue("nap", {})
    store.release(job)
    assert take(store, "w2").id == job.id


# -------------------------------------------------------------------------- clocks and waits


def test_a_job_without_a_time_is_not_held_up_by_a_clock_that_steps_back(
    store: Store, clock: "Clock"
) -> None:
    """It was meant to run at once, and one that is given back too."""
    store.enqueue("nap", {})
    clock.move(-3600)
    assert store.release(take(store)).attempts == 0
    clock.move(-3600)
    assert take(store).attempts == 1


def test_a_clock_that_steps_back_takes_no_job_from_its_owner(store: Store, clock: "Clock") -> None:
    """The lease ends by the clock at `locked_until`, not sooner."""
    job = claimed(store)
    clock.move(-3600)
    assert store.claim("w2", LEASE) is None
    assert store.finish(job, 1).status == Status.DONE


def test_the_stores_time_is_that_of_its_clock(store: Store, clock: "Clock") -> None:
    """`now` is what leases and waits are judged by."""
    assert store.now() == clock.now


ENQUEUE_WHEN_TOLD = """
import sys
from jobq import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
input()
store.enqueue("nap", {})
"""


def wait_and_claim(store: Store) -> Job:
    """Claim as an idle worker does: wait, look, wait."""
    begin = time.monotonic()
    while time.monotonic() < begin + PROMPT:
        mark = store.change_mark()
        job = store.claim("w2", LEASE)
        if job is not None:
            return job
        store.wait(mark, 60)
    pytest.fail(f"no job could be claimed within {PROMPT} s")


def test_wait_ends_when_another_process_enqueues(
    start: Callable[..., "Program"], url: str, opened: Callable[..., Store]
) -> None:
    """A worker that would wait for a minute has the job promptly."""
    store = opened(url)
    go([start(ENQUEUE_WHEN_TOLD, url)])
    assert wait_and_claim(store).attempts == 1


def test_wait_ends_when_something_has_changed_since_the_mark(
    url: str, opened: Callable[..., Store], clock: "Clock"
) -> None:
    """Between the look that found nothing and the wait nothing is missed."""
    store, other = opened(url, clock=clock), opened(url, clock=clock)
    mark = store.change_mark()
    other.enqueue("nap", {}, run_after=clock.now + 3600)
    begin = time.monotonic()
    store.wait(mark, 60)
    assert time.monotonic() - begin < PROMPT


def test_wait_ends_when_a_delayed_job_is_due(url: str, opened: Callable[..., Store]) -> None:
    """Nothing is written at that moment, and the wait ends all the same, not early."""
    store = opened(url)
    due = store.enqueue("nap", {}, run_after=store.now() + 0.2).job.run_after
    wait_and_claim(store)
    assert store.now() >= due


def test_wait_ends_when_a_lease_runs_out(url: str, opened: Callable[..., Store]) -> None:
    """Nothing is written at that moment, and the wait ends all the same."""
    store = opened(url)
    store.enqueue("nap", {})
    store.claim("w1", lease_seconds=0.2)
    assert wait_and_claim(store).attempts == 2


def test_wait_ends_after_its_seconds_when_nothing_happens(
    url: str, opened: Callable[..., Store]
) -> None:
    """The polling behind every other sign, so that a lost one cannot stop the queue."""
    store = opened(url)
    store.enqueue("nap", {}, run_after=store.now() + 3600)
    begin = time.monotonic()
    store.wait(store.change_mark(), 0.1)
    assert 0.1 <= time.monotonic() - begin < PROMPT


def test_wait_ends_when_it_is_told_to_stop(url: str, opened: Callable[..., Store]) -> None:
    """A worker that is to stop does not sit out its wait."""
    store = opened(url)
    answers = iter([False, False, True])
    begin = time.monotonic()
    store.wait(store.change_mark(), 60, lambda: next(answers))
    assert time.monotonic() - begin < PROMPT


def test_wait_is_not_disturbed_by_a_clock_that_steps_back(store: Store, clock: "Clock") -> None:
    """Stepping back an hour at every look, the clock does not hold the sleeper for an hour."""
    store.enqueue("nap", {}, run_after=clock.now + 0.1)

    def step_back() -> bool:
        clock.move(-3600)
        return False

    begin = time.monotonic()
    store.wait(store.change_mark(), 60, step_back)
    assert 0.1 <= time.monotonic() - begin < PROMPT
