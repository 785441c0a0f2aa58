"""Edge cases: ids and leases that are none, what operators do, and what takes several steps."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, LeaseLost, Progress, RetryPolicy, Status, Store

if TYPE_CHECKING:
    from tests.edges import Doors, Edge

# Ids that are none.

IDS = {
    "empty": "",
    "blank": " ",
    "word": "none",
    "NUL": "a\0",
    "lone surrogate": "\ud800",
    "LIKE": "%",
    "quote": "'",
    "hex, but nobody's": "0" * 32,
    "full-width digits": "\uff10" * 32,
    "10,000 characters": "a" * 10_000,
    "line end": "a\n",
    "emoji": "🦀",
}
LOOKS: dict[str, tuple[Callable[[Store, str], object], str]] = {
    "get": (Store.get, "None"),
    "find": (Store.find, "[]"),
    "attempts": (Store.attempts, "UnknownJob"),
    "events": (lambda store, i: store.events(i), "UnknownJob"),
    "list before": (lambda store, i: store.list(before=i), "UnknownJob"),
    "cancel": (Store.cancel, "UnknownJob"),
    "retry": (Store.retry, "UnknownJob"),
}
CHANGED_IDS: dict[str, Callable[[str], str]] = {  # of a job that is there
    "capitals": lambda i: f"a{i[1:]}".upper(),
    "without its end": lambda i: i[:-1],
    "with a blank": lambda i: f"{i} ",
    "with a line end": lambda i: f"{i}\n",
    "with a zero": lambda i: f"{i}0",
}


def unknown(job_id: str) -> str:
    """Return what is said of an id that no job has."""
    return f"UnknownJob: no job has the id {job_id!r}; `jobq list` shows those there are"


def id_cases() -> "Iterator[Edge]":
    """Look for jobs that are not there, beside one that is."""
    for door, (look, says) in LOOKS.items():
        for title, job_id in IDS.items():
            none = "[]" if door == "find" and job_id == "0" * 32 else says
            right = unknown(job_id) if says == "UnknownJob" else none
            yield (f"{door}: {title}", looked, (look, job_id), right)
    for title, near in CHANGED_IDS.items():
        yield (f"get: an id {title}", looked_near, near, "None")
    yield ("find: in the order of ids", found_in_order, None, "sorted")
    for title, change in LEASES.items():
        for verb, do in WRITES.items():
            right = "LeaseLost: the lease with token …"
            yield (f"{verb}: {title}", written_late, (change, do), right)


def looked(doors: "Doors", what: tuple[Callable[[Store, str], object], str]) -> str:
    """Look for an id."""
    doors.job(Status.QUEUED)
    look, job_id = what
    return repr(look(doors.store, job_id))


def looked_near(doors: "Doors", change: Callable[[str], str]) -> str:
    """Look for an id that is almost that of a job."""
    return repr(doors.store.get(change(doors.job(Status.QUEUED).id)))


def found_in_order(doors: "Doors", _: None) -> str:
    """Find jobs by the first digit of their ids."""
    doors.store.enqueue_many({"kind": "noop", "payload": {}} for _ in range(100))
    found = [job.id for digit in "0123456789abcdef" for job in doors.store.find(digit, limit=100)]
    listed = [job.id for job in doors.store.list(limit=100)]
    return "sorted" if found == sorted(listed) else f"{found}"


# Writes under a lease that is another one, or none.

LEASES: dict[str, Callable[[Job], Job]] = {
    "token 0": lambda job: replace(job, token=0),
    "next token": lambda job: replace(job, token=job.token + 1),
    "token -1": lambda job: replace(job, token=-1),
    "another id": lambda job: replace(job, id="0" * 32),
    "id that is none": lambda job: replace(job, id="x"),
}
WRITES: dict[str, Callable[[Store, Job], object]] = {
    "finish": lambda store, job: store.finish(job, None),
    "finish_many": lambda store, job: raised(store.finish_many([(job, None)])),
    "fail": lambda store, job: store.fail(job, "no"),
    "heartbeat": lambda store, job: store.heartbeat(job),
    "release": lambda store, job: store.release(job),
    "confirm_cancel": lambda store, job: store.confirm_cancel(job),
    "mark_done": lambda store, job: store.mark_done(job, "k"),
    "is_done": lambda store, job: store.is_done(job, "k"),
}


def raised(answers: list[Job | LeaseLost]) -> object:
    """Raise the first error among the answers."""
    for answer in answers:
        if isinstance(answer, LeaseLost):
            raise answer
    return answers


def written_late(
    doors: "Doors", what: tuple[Callable[[Job], Job], Callable[[Store, Job], object]]
) -> str:
    """Write with a lease that is not the job's."""
    change, do = what
    return repr(do(doors.store, change(doors.claimed())))


# Operators, in every status.

FINAL = [status for status in Status if status.final]
OPERATORS = {
    ("cancel", Status.QUEUED): "cancelled",
    ("cancel", Status.RUNNING): "running",
    ("cancel", Status.DONE): "only a queued or running job can be cancelled",
    ("cancel", Status.FAILED): "only a queued or running job can be cancelled",
    ("cancel", Status.CANCELLED): "cancelled",
    ("retry", Status.QUEUED): "only a failed or cancelled job can be retried",
    ("retry", Status.RUNNING): "only a failed or cancelled job can be retried",
    ("retry", Status.DONE): "only a failed or cancelled job can be retried",
    ("retry", Status.FAILED): "queued",
    ("retry", Status.CANCELLED): "queued",
}


def operator_cases() -> "Iterator[Edge]":
    """Cancel, retry and delete jobs of every status."""
    for (verb, status), right in OPERATORS.items():
        said = f"WrongStatus: job job-1 is {status}: {right}" if " " in right else right
        yield (f"{verb}: {status}", operated, (verb, status), said)
    for status in Status:
        right = "InvalidInput: status is…"
        if status.final:
            right = repr([(str(each), int(each is not status)) for each in FINAL])
        yield (f"prune: {status}", pruned_of_status, status, right)
        right = f"InvalidInput: status is {status.value!r}: use failed, cancelled"
        if status in {Status.FAILED, Status.CANCELLED}:
            right = "1, then 0"
        yield (f"retry_all: {status}", retried_all, status, right)


def operated(doors: "Doors", what: tuple[str, Status]) -> str:
    """Cancel or retry a job."""
    verb, status = what
    return str(getattr(doors.store, verb)(doors.job(status).id).status)


def pruned_of_status(doors: "Doors", status: Status) -> str:
    """Delete jobs of a status, and tell what is left."""
    for each in FINAL:
        doors.job(each)
    doors.clock.move(1.0)
    doors.store.prune(0.5, status=status)
    left = doors.store.stats().counts
    return repr([(str(each), left[each]) for each in FINAL])


def retried_all(doors: "Doors", status: Status) -> str:
    """Retry all jobs of a status, twice."""
    for each in (Status.FAILED, Status.CANCELLED, Status.DONE):
        doors.job(each)
    return f"{doors.store.retry_all(status=status)}, then {doors.store.retry_all(status=status)}"


# Whole lives, and many jobs at once.


def whole_life(doors: "Doors", _: None) -> str:
    """Let a job meet everything, and return its log and its attempts."""
    store = doors.store
    policy = RetryPolicy(0.1, 3.0, 1e308, "none")
    job_id = store.enqueue("größe", {"é": 1}, "k", run_after=1_000_001.5, retry=policy).job.id
    moves: list[Callable[[Job], object]] = [
        lambda job: store.fail(job, "é"),
        store.release,
        lambda _: None,  # its lease runs out
        lambda job: (store.heartbeat(job, 5.0, Progress(1, 2, "…")), store.cancel(job.id)),
    ]
    doors.clock.move(1.5)
    for move in moves:
        [job] = store.claim_many("w1", 1, 2.0)
        assert job.retry == policy
        doors.clock.move(0.25)
        move(job)
        doors.clock.move(4.0)
    store.confirm_cancel(job)
    log = store.events(job_id)
    names = " ".join(event.name for event in log)
    return f"{names}: {log} {store.attempts(job_id)} {store.get(job_id)!r}"


def claimed_in_order(doors: "Doors", at_once: int) -> str:
    """Claim jobs of several priorities and ages, so many at once."""
    store = doors.store
    for name, priority, wait in (
        ("late", -1_000, 0.0),
        ("old", 0, 0.0),
        ("put off", 0, 1.0),
        ("urgent", 1, 0.0),
        ("same time", 0, 0.0),
        ("most urgent", 1_000, 0.0),
        ("not yet", 1_000, 1e9),
    ):
        at = wait and doors.clock.now + wait
        store.enqueue("noop", {"name": name}, priority=priority, run_after=at)
    doors.clock.move(1.0)
    taken: list[list[str]] = []
    while not taken or taken[-1]:
        jobs = store.claim_many("w1", at_once) if at_once > 1 else filter(None, [store.claim("w1")])
        taken.append([job.payload["name"] for job in jobs])
    return repr([name for names in taken for name in names])


def finished_some(doors: "Doors", _: None) -> str:
    """Finish four jobs, of which one is done already and one given back."""
    store = doors.store
    jobs = [doors.claimed() for _ in range(4)]
    store.finish(jobs[1], "first")
    store.release(jobs[2])
    answers = store.finish_many([(job, n) for n, job in enumerate(jobs)])
    return repr([a.result if isinstance(a, Job) else f"{type(a).__name__}: {a}" for a in answers])


def finished_twice(doors: "Doors", _: None) -> str:
    """Give one job two results at once."""
    job = doors.claimed()
    return repr(doors.store.finish_many([(job, 1), (job, 2)]))


def conflict(doors: "Doors", what: tuple[dict[str, Any], dict[str, Any]]) -> str:
    """Use a key again, for something else."""
    first, second = what
    doors.store.enqueue("noop", first, "k")
    doors.look()
    return repr(doors.store.enqueue("noop", second, "k").created)


def conflict_of_many(doors: "Doors", what: tuple[dict[str, Any], dict[str, Any]]) -> str:
    """Use a key twice in one call, after a job without one."""
    jobs = [{"kind": "noop", "payload": payload, "idempotency_key": "k"} for payload in what]
    return repr(
        [e.created for e in doors.store.enqueue_many([{**jobs[0], "idempotency_key": None}, *jobs])]
    )


def counted(doors: "Doors", _: None) -> str:
    """Count jobs of several kinds, which came in no order."""
    for kind in ("b", "größe", "a", "B", "日本", "A", "10", "9"):
        doors.store.enqueue(kind, {})
    doors.job(Status.DONE)
    doors.clock.move(0.1)
    return repr((doors.store.stats(), list(doors.client.get("/stats").json()["kinds"])))


def timed(doors: "Doors", _: None) -> str:
    """Return the mean run time of jobs that took 0.1 s, 0.2 s and so on."""
    for tenths in range(1, 8):
        job = doors.claimed()
        doors.clock.move(tenths / 10)
        doors.store.finish(job, None)
    return f"{doors.store.typical_seconds('noop'):.9f}"


def by_the_engines_clock(doors: "Doors", _: None) -> str:
    """Record a job by the engine's own clock."""
    store = doors.again(clock=None)
    before = time.time()
    job = store.enqueue("noop", {}).job
    return str(before - 1.0 <= job.created_at <= time.time() + 1.0)


def five_megabytes(doors: "Doors", _: None) -> str:
    """Keep 5 MB where that is allowed, as payload and as result."""
    store = doors.again(max_bytes=6_000_000)
    text = "é🦀" * 833_333
    job = store.enqueue("noop", {"v": text}).job
    claimed = store.claim("w1")
    assert claimed is not None
    done = store.finish(claimed, text)
    return str(job.payload["v"] == text == done.result == claimed.payload["v"])


CONFLICTS = {
    "1 and 1.0": ({"a": 1}, {"a": 1.0}, "a"),
    "1 and true": ({"a": 1}, {"a": True}, "a"),
    "0.0 and -0.0": ({"a": 0.0}, {"a": -0.0}, "a"),
    "null and nothing": ({"a": None}, {}, "a"),
    "NFC and NFD": ({"\u00e9": "\u00e9"}, {"\u00e9": "e\u0301"}, "\u00e9"),
    "2**53 and 2**53 + 1": ({"n": 2**53}, {"n": 2**53 + 1}, "n"),
    "members in another order": (
        {"a": 1, "b": {"c": 1, "d": 2}},
        {"b": {"d": 2, "c": 1}, "a": 1},
        "",
    ),
}


def life_cases() -> "Iterator[Edge]":
    """Give what takes several steps."""
    names = "enqueued claimed failed claimed released claimed crashed claimed heartbeat"
    yield ("a whole life", whole_life, None, f"{names} cancel_requested cancelled: …")
    order = "['most urgent', 'urgent', 'old', 'put off', 'same time', 'late']"
    for at_once in (1, 2, 3, 1_000):
        yield (f"claim {at_once} at once", claimed_in_order, at_once, order)
    yield ("finish_many: some lost", finished_some, None, "[0, 'LeaseLost: the lease with token 1…")
    yield ("finish_many: none", lambda d, none: repr(d.store.finish_many(none)), (), "[]")
    yield ("finish_many: one twice", finished_twice, None, "InvalidInput: a job is given twice…")
    yield ("claim_many: none there", lambda d, n: repr(d.store.claim_many("w1", n)), 5, "[]")
    yield ("enqueue_many: none", lambda d, none: repr(d.store.enqueue_many(none)), (), "[]")
    for title, (first, second, field) in CONFLICTS.items():
        right = "IdempotencyConflict: idempotency key 'k' already belongs to job job-1, asked for "
        right += (
            f"with other values of: {field}; repeat the first request exactly, or use a new key"
        )
        pair = (first, second)
        yield (f"same key: {title}", conflict, pair, right if field else "False")
        many = right if field else "[True, True, False]"
        yield (f"same key in one call: {title}", conflict_of_many, pair, many)
    yield ("kinds are counted", counted, None, "(Stats(counts={<Status.QUEUED: 'queued'>: 8…")
    yield ("mean run time", timed, None, f"{sum(range(1, 8)) / 70:.9f}")
    yield ("the engine's own clock", by_the_engines_clock, None, "True")
    yield ("5 MB where that is allowed", five_megabytes, None, "True")


@pytest.fixture(scope="session")
def step_edges() -> "list[Edge]":
    """Return the cases of steps."""
    return list(chain(id_cases(), operator_cases(), life_cases()))
