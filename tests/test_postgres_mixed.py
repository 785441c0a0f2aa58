"""Every operation at once, by several processes: no deadlock, no error, and a log that is true."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from jobq import Store

if TYPE_CHECKING:
    from tests.conftest import Program

# Each of several processes does a number of operations, chosen by a seeded generator. What a
# worker may meet is counted: its lease was lost, a job's status was another one by then, a job had
# been deleted. Anything else ends the process with a traceback.
MIXER = """
import json, random, sys
from collections import Counter, deque
from jobq import LeaseLost, UnknownJob, WrongStatus, open_store
from jobq.job import Progress

url, me, operations = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng, store, held, known = random.Random(int(me)), open_store(url), deque(), deque(maxlen=50)
KEYS = [f"key-{n}" for n in range(40)]

def a_lease():
    return rng.choice([0.001, 0.05, 60.0])  # some run out at once, and are closed by others

def enqueue():
    known.append(store.enqueue("nap", {}, max_attempts=rng.choice([1, 3])).job.id)

def enqueue_with_a_key():
    known.append(store.enqueue("nap", {}, rng.choice(KEYS)).job.id)

def enqueue_many():
    keys = rng.sample(KEYS, 10) + [None] * 5
    keys.sort(key=str, reverse=rng.random() < 0.5)  # in opposite orders
    jobs = [{"kind": "nap", "payload": {}, "idempotency_key": key} for key in keys]
    known.extend(answer.job.id for answer in store.enqueue_many(jobs))

def claim():
    if job := store.claim(f"w{me}", a_lease()):
        held.append(job)

def claim_many():
    limit = rng.randint(1, 8)
    jobs = store.claim_many(f"w{me}", limit, a_lease())
    assert len(jobs) <= limit
    held.extend(jobs)

def heartbeat():
    if held:
        store.heartbeat(held[0], a_lease(), Progress(1))

def finish():
    if held:
        store.finish(held.popleft(), me)

def finish_many():
    given = [held.popleft() for _ in range(min(len(held), rng.randint(1, 8)))]
    jobs = list({job.id: job for job in given}.values())  # one may have come a second time
    rng.shuffle(jobs)
    answers = store.finish_many([(job, me) for job in jobs])
    assert [answer.job_id if isinstance(answer, LeaseLost) else answer.id for answer in answers] \
        == [job.id for job in jobs]
    counted["lost in a batch"] += sum(isinstance(answer, LeaseLost) for answer in answers)

def fail():
    if held:
        store.fail(held.popleft(), "no", final=rng.random() < 0.3, after=0.0)

def release():
    if held:
        store.release(held.popleft())

def cancel():
    if known:
        store.cancel(rng.choice(known))

def confirm_cancel():
    if held and held[0].cancel_requested:
        store.confirm_cancel(held.popleft())

def retry():
    if known:
        store.retry(rng.choice(known))

def retry_all():
    store.retry_all()

def mark_done():
    if held:
        store.mark_done(held[0], "mark")

def prune():
    store.prune(rng.choice([0.1, 0.5]), keys_kept_seconds=rng.choice([0.3, 60.0]))

def look():
    store.stats(), store.events(after=max(0, store.last_event() - 10)), store.list(limit=10)

OFTEN = [enqueue, enqueue_with_a_key, enqueue_many, claim, claim_many, heartbeat, finish,
         finish_many, fail, release, cancel]
SELDOM = [confirm_cancel, retry, retry_all, mark_done, prune, look]
counted = Counter()
print("ready", flush=True)
input()
for _ in range(operations):
    operation = rng.choice(OFTEN if rng.random() < 0.9 else SELDOM)
    try:
        operation()
    except (LeaseLost, UnknownJob, WrongStatus) as error:
        counted[type(error).__name__] += 1
    counted[operation.__name__] += 1
print(json.dumps(counted), flush=True)
"""


@pytest.mark.parametrize(
    ("processes", "operations"), [(4, 1_000), pytest.param(8, 10_000, marks=pytest.mark.slow)]
)
def test_mixed_operations_of_many_processes_never_deadlock(
    live: Store,
    url: str,
    start: Callable[..., "Program"],
    assert_consistent: Callable[[Store], None],
    processes: int,
    operations: int,
) -> None:
    """Whatever locks a transaction takes, it takes in an order that all keep to."""
    with closing(psycopg.connect(url, autocommit=True)) as other:
        before = deadlocks(other)
        each = str(operations // processes)
        programs = [start(MIXER, url, str(n), each, patience=300.0) for n in range(processes)]
        assert {program.hear() for program in programs} == {"ready"}
        for program in programs:
            program.tell()
        counted: Counter[str] = Counter()
        for program in programs:
            [line] = program.rest()
            counted += Counter(json.loads(line))
        assert deadlocks(other) == before  # they report when they end, which they have
    assert_consistent(live)
    assert counted["LeaseLost"] > 0, "the processes did not meet"
    assert counted["finish"] > operations / 40


def deadlocks(other: psycopg.Connection[Any]) -> int:
    """Return how many the server has seen in this database."""
    [(number,)] = other.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    return int(number)


@pytest.fixture
def engine() -> str:
    """Return the one engine of this file."""
    return "postgresql"
