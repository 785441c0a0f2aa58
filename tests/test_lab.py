"""jobq.lab: real processes, killed and paused, and a story that is the same in every run."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobq import Status
from jobq.errors import LabError, UnknownJob, WaitTimedOut
from jobq.lab import Lab, Recovery, measure_recovery, text, text_recovery
from jobq.lab.folders import fresh_folder, remove_orphans
from jobq.lab.names import Names
from jobq.lab.programs import WorkerProcess
from jobq.lab.waiting import wait_until

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")

# An owner that says which worker it has, and waits to be killed.
OWNER = """
from jobq.lab import Lab
lab = Lab()
print(lab.start_worker().pid, lab.folder, flush=True)
input()
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Return a lab with leases of a second."""
    with Lab(lease=1.0) as lab:
        yield lab


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has asked about yet has, too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_killed_workers_job_is_recovered_and_the_story_told(lab: Lab) -> None:
    """The worked example: kill -9 in mid-job, stuck in running, done by another worker."""
    w1 = lab.start_worker()
    job = lab.enqueue("nap", {"seconds": 0.8})
    lab.wait_for_event(job, "heartbeat")
    lab.kill(w1)
    assert lab.job(job).status is Status.RUNNING
    lab.start_worker()
    assert lab.wait_for(job, "done").attempts == 2
    assert lab.story().splitlines() == [
        "J1 enqueued",
        "w1 took J1 (attempt 1)",
        "w1 killed (SIGKILL)",
        "J1's lease ran out; attempt 1 is closed as crashed",
        "w2 took J1 (attempt 2)",
        "w2 finished J1",
    ]
    assert text(lab.timeline()).splitlines()[:4] == [
        "    enqueued  claimed   killed    crashed   claimed   done",
        "    J1        J1                  J1        J1        J1",
        "w1            [J1#1=====X.........C",
        "w2                                          [J1#2=====D",
    ]
    assert repr((lab, w1, job)) == "(Lab(w1: SIGKILL, w2: running), w1, J1)"


@posix
def test_a_paused_worker_comes_back_too_late(lab: Lab) -> None:
    """A worker that stood still past its lease finds its job done by another."""
    w1 = lab.start_worker()
    job = lab.enqueue("nap", {"seconds": 0.8})
    lab.wait_for_event(job, "heartbeat")
    lab.pause(w1)
    w2 = lab.start_worker()
    lab.wait_for(job, Status.DONE)
    lab.resume(w1)
    lab.wait_until(lambda: "lost" in w1.log, "w1 to learn that it lost the job")
    lab.stop(w2)
    assert "w1 lost J1: the job is done" in lab.named(w1.log)
    assert lab.story().splitlines()[2:] == [
        "w1 paused (SIGSTOP)",
        "J1's lease ran out; attempt 1 is closed as crashed",
        "w2 took J1 (attempt 2)",
        "w2 finished J1",
        "w1 continued (SIGCONT)",
        "w2 stopped (SIGTERM)",
    ]


@posix
def test_the_others_can_write_while_a_worker_is_paused(lab: Lab) -> None:
    """A worker is never stopped in the middle of a write, which would stop every other one."""
    w1 = lab.start_worker()
    for _ in range(100):
        lab.enqueue("noop", {})  # wakes the worker: a write of its own is soon under way
        lab.pause(w1)
        lab.enqueue("noop", {})
        lab.resume(w1)
    lab.wait_until(lambda: lab.store.stats().counts[Status.DONE] == 200, "200 jobs done")


@posix
def test_stop_lets_the_worker_finish_its_job(lab: Lab) -> None:
    """SIGTERM, as a deployment sends it: the job is done, and the process says goodbye."""
    w1 = lab.start_worker()
    job = lab.enqueue("nap", {"seconds": 0.5})
    lab.wait_for(job, "running")
    lab.stop(w1)
    assert w1.ending == "exit code 0"
    assert lab.named(w1.log).splitlines()[-2:] == ["w1 finished J1", "w1 stopped cleanly"]
    assert lab.story(job).splitlines()[-1] == "w1 finished J1"  # the job's story ends there
    assert lab.story().splitlines()[-1] == "w1 stopped (SIGTERM)"


def test_a_worker_may_exit_by_itself(lab: Lab) -> None:
    """A process that ends without being asked is waited for, and noted with its exit code."""
    job = lab.enqueue("nap", {"seconds": 0.3})
    w1 = lab.start_worker("--until-idle")
    lab.wait_for_exit(w1)
    assert lab.job(job).status is Status.DONE
    assert lab.story().splitlines()[-1] == "w1 exited (exit code 0)"
    with pytest.raises(LabError, match="w1 is not running any more"):
        lab.pause(w1)
    lab.kill(w1)  # a cell that kills or stops may be run again: nothing new has happened
    lab.stop(w1)
    assert lab.story().splitlines()[-1] == "w1 exited (exit code 0)"


def test_close_leaves_no_process_and_no_folder() -> None:
    """Whatever runs is ended, paused or not, and the folder is gone; closing twice is once."""
    with Lab() as lab:
        running, paused = lab.start_worker(), lab.start_worker()
        lab.pause(paused)
    assert (running.ending, paused.ending) == ("SIGKILL", "SIGKILL")
    assert not lab.folder.exists()
    lab.close()


def test_the_next_lab_ends_the_last_one() -> None:
    """Running `lab = Lab()` again clears what the first run left."""
    first = Lab()
    worker = first.start_worker()
    with Lab() as second:
        assert worker.ending == "SIGKILL"
        assert not first.folder.exists()
        assert second.folder.exists()


@posix
def test_no_worker_outlives_its_owner() -> None:
    """An owner that is killed takes its workers with it; the next lab removes its folder."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        owner.kill()
    wait_until(lambda: is_gone(int(pid)), "the worker to follow its owner")
    assert Path(folder).exists()
    remove_orphans()
    assert not Path(folder).exists()


@posix
def test_an_owner_that_ends_well_leaves_nothing() -> None:
    """A program need not close its lab: the end of the program does."""
    run = subprocess.run(
        [sys.executable, "-c", OWNER], input="\n", capture_output=True, text=True, check=True
    )
    pid, folder = run.stdout.split()
    assert is_gone(int(pid))
    assert not Path(folder).exists()


def test_folders_of_living_processes_are_left_alone() -> None:
    """Only the folder of a lab whose process is gone is removed."""
    folder = fresh_folder()
    remove_orphans()
    assert folder.exists()
    folder.rmdir()


@posix
def test_a_notebooks_stop_button_ends_no_worker(lab: Lab) -> None:
    """SIGINT is for the cell that waits: a worker goes on, even one that has hardly begun."""
    w1 = WorkerProcess("w1", lab.folder, lab.url, [])
    os.kill(w1.pid, signal.SIGINT)
    w1.wait_until_started()
    os.kill(w1.pid, signal.SIGINT)
    job = lab.enqueue("noop", {})
    assert lab.wait_for(job, "done").attempts == 1
    assert w1.ending is None
    w1.kill()


def test_a_wait_names_what_it_waited_for(lab: Lab) -> None:
    """An error after a wait says what did not come, and what the processes printed last."""
    lab.start_worker()
    with pytest.raises(WaitTimedOut) as caught:
        lab.wait_until(lambda: False, "the moon", seconds=0.01)
    assert str(caught.value).startswith("waited 0.01 s for the moon, in vain\n    w1 (running)")
    assert "started" in str(caught.value)


def test_a_wait_for_what_cannot_come_ends_at_once(lab: Lab) -> None:
    """A job that is final takes no other status, and no further event."""
    lab.start_worker()
    job = lab.enqueue("nap", {"seconds": "long"})
    with pytest.raises(LabError, match="J1 is failed and will not be done: payload"):
        lab.wait_for(job, "done")
    with pytest.raises(LabError, match="J1 is failed, with 1 events claimed"):
        lab.wait_for_event(job, "claimed", count=2)
    with pytest.raises(UnknownJob):
        lab.job(lab.name_job("0" * 32))


def test_a_worker_that_cannot_start_says_why(lab: Lab) -> None:
    """The error shows what the process printed."""
    with pytest.raises(LabError, match=r"w1 ended at once \(exit code \d\), saying: .*-1"):
        lab.start_worker(lease=-1.0)
    assert repr(lab) == "Lab()"


def test_the_environment_has_no_say(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings in the learner's environment do not change an experiment."""
    monkeypatch.setenv("JOBQ_LEASE_SECONDS", "nonsense")
    assert lab.start_worker().ending is None


def test_a_job_made_over_http_is_named(lab: Lab) -> None:
    """What varies in an answer, ids and addresses, has a name that does not."""
    api = lab.start_api()
    with urllib.request.urlopen(  # noqa: S310 - the address is the lab's own
        urllib.request.Request(  # noqa: S310 - as above
            f"{api.url}/reports",
            data=b'{"year": 2025, "slow_seconds": 0}',
            headers={"Content-Type": "application/json"},
        )
    ) as answer:
        body = json.load(answer)
        job = lab.name_job(body["job_id"])
        assert lab.named(answer.headers["Location"]) == "http://api/jobs/J1"
    lab.start_worker()
    assert lab.wait_for(job, "done").result["year"] == 2025


def test_the_naive_api_can_be_killed_and_started_again(lab: Lab) -> None:
    """The API that keeps its jobs in memory is a process like the real one, with its own log."""
    first = lab.start_api(naive=True)
    lab.kill(first)
    lab.start_api(naive=True)
    assert repr(lab) == "Lab(naive api: SIGKILL, naive api: running)"
    assert len(list(lab.folder.glob("*.log"))) == 2
    assert lab.story() == ""


def test_recovery_is_measured_and_within_its_bound(lab: Lab) -> None:
    """The job runs again no later than one lease and one poll after the kill (G10)."""
    found = measure_recovery(lab, 0.5)
    assert 0 < found.seconds <= found.bound == 1.5
    assert text_recovery([found]) == "lease 0.5 s: runs again within 1.5 s: yes"


def test_recovery_is_not_measured_beside_other_workers(lab: Lab) -> None:
    """A worker that is there already could take the job: it is named."""
    lab.start_worker()
    with pytest.raises(LabError, match="w1 would take the job"):
        measure_recovery(lab, 0.5)


def test_a_broken_promise_is_told() -> None:
    """The text twin of the plot does not hide a recovery that came too late."""
    assert text_recovery([Recovery(1.0, 1.0, 2.5)]) == "lease 1 s: runs again within 2 s: NO"


def test_names_follow_the_log(lab: Lab) -> None:
    """Jobs are numbered as they were enqueued, whoever made them."""
    first = lab.store.enqueue("noop", {}).job.id
    second = lab.store.enqueue("noop", {}).job.id
    assert lab.story() == "J1 enqueued\nJ2 enqueued"
    assert [repr(lab.name_job(job_id)) for job_id in (second, first)] == ["J2", "J1"]


def test_names_in_a_text_are_whole_words() -> None:
    """No name is put into the middle of another word, and the longest one wins."""
    names = Names()
    assert names.in_text("worker-1") == "worker-1"
    assert (names.worker("worker-1"), names.worker("worker-12"), names.worker("ann")) == (
        *("w1", "w2", "ann"),
    )
    names.job("0123456789abcdef")
    told = names.in_text("worker-12 took 01234567, worker-1-2 took 0123456789abcdef, ann waits")
    assert told == "w2 took J1, worker-1-2 took J1, ann waits"
