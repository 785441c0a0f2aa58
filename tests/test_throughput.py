"""jobq.lab.throughput and jobq.lab.batches: a figure is given for a run without a fault, only."""

from contextlib import closing
from pathlib import Path

import pytest

from jobq import Event, EventName, Status
from jobq.errors import LabError
from jobq.lab.programs import BatchProcess
from jobq.lab.throughput import BATCH, Way, measure_throughput, seconds_of
from jobq.lab.waiting import wait_until
from jobq.store import open_store

Log = list[Event]


def log(*names: str, job: str = "a", begin: float = 10.0) -> Log:
    """Return the events of a job, a second apart."""
    return [
        Event(n, job, begin + n, EventName(name), Status.RUNNING, 1, 1, "w1", None, None, None)
        for n, name in enumerate(names)
    ]


RAN = ("enqueued", "claimed", "done")


def test_the_seconds_are_those_from_the_first_claim_to_the_last_finish() -> None:
    """The time in which the jobs were enqueued is none of the workers'."""
    events = log(*RAN) + log(*RAN, job="b", begin=12.5)
    assert seconds_of(events, ["a", "b"], [1, 1]) == 14.5 - 11.0


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        (log("enqueued"), "1 jobs were never claimed, 0 twice"),
        (log("enqueued", "claimed"), "1 jobs were never done, 0 twice"),
        (log(*RAN, "claimed"), "0 jobs were never claimed, 1 twice"),
        (log(*RAN, "done"), "0 jobs were never done, 1 twice"),
    ],
)
def test_a_lost_or_doubled_job_leaves_no_figure(events: Log, fault: str) -> None:
    """The log of each fault is refused, and the error counts them."""
    with pytest.raises(LabError, match=fault):
        seconds_of(events, ["a"], [1])


@pytest.mark.parametrize("took", [[], [0], [1, 1]])
def test_the_workers_words_count_beside_the_log(took: list[int]) -> None:
    """A store that forgot a claim would have a log in order; the workers know better."""
    with pytest.raises(LabError, match="the workers say that they took"):
        seconds_of(log(*RAN), ["a"], took)


@pytest.mark.parametrize("way", Way)
def test_real_workers_run_every_job_once(way: Way, url: str) -> None:
    """Two processes share the jobs; the figures are those of the store's log."""
    jobs = 2 * BATCH + 1
    found = measure_throughput(url, way, 2, jobs)
    assert (found.way, found.workers, found.jobs) == (way, 2, jobs)
    assert found.per_second == jobs / found.seconds > 0
    with closing(open_store(url)) as store:
        claims = [event.worker for event in store.events() if event.name is EventName.CLAIMED]
        assert store.stats().counts[Status.DONE] == len(claims) == jobs
    if way is Way.WAITING:  # long enough for both to be there
        assert len(set(claims)) == 2


def test_a_run_wants_a_store_of_its_own(url: str) -> None:
    """What is there already could be taken for what was measured."""
    with closing(open_store(url)) as store:
        store.enqueue("noop", {})
        with pytest.raises(LabError, match="this one has jobs"):
            measure_throughput(url, Way.SINGLE, 1, 1)


def test_a_worker_of_batches_ends_the_one_it_has(url: str, tmp_path: Path) -> None:
    """SIGTERM leaves no job running: each is done or was never taken."""
    with closing(open_store(url)) as store:
        worker = BatchProcess("w1", tmp_path, url, 5)
        try:
            worker.wait_until_started()
            store.enqueue_many([{"kind": "noop", "payload": {}}] * 2_000)
            wait_until(lambda: "took" in worker.log, "the first batch")
            worker.stop()
        finally:
            worker.kill()
        counts = store.stats().counts
    assert worker.ending == "exit code 0"
    assert counts[Status.RUNNING] == 0
    assert worker.log.count("took 5 jobs") * 5 == counts[Status.DONE] > 0
