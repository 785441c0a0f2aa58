import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobq import open_store
from jobq.store import doorbell
from jobq.store.doorbell import Doorbell
from jobq.store.fairlock import FairLock

linux = pytest.mark.skipif(sys.platform != "linux", reason="there is inotify on Linux only")


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Doorbell]:
    """Give a bell at the file `lock`."""
    bell = Doorbell(tmp_path / "lock")
    yield bell
    bell.close()


@linux
def test_a_ring_before_the_wait_is_heard_once(bell: Doorbell, tmp_path: Path) -> None:
    """Nothing is missed between two waits, and nothing is heard twice."""
    lock = FairLock(tmp_path / "lock")
    lock.acquire(0)
    lock.ring()
    lock.ring()
    lock.close()
    assert [bell.wait(10), bell.wait(0)] == [True, False]


@linux
def test_every_commit_rings_and_no_refused_write_does(tmp_path: Path) -> None:
    """Whoever waits for work is woken when there may be some, and left in peace otherwise."""
    store = open_store(tmp_path / "jobs.db")
    bell = Doorbell(tmp_path / "jobs.db-lock")
    job = store.enqueue("nap", {}).job
    assert bell.wait(10)
    with pytest.raises(Exception, match="is lost"):
        store.finish(job, {})
    assert not bell.wait(0)
    bell.close()
    store.close()


@linux
def test_listening_does_not_drop_the_lock(tmp_path: Path) -> None:
    """To listen, the lock's file is opened and closed; the lock itself stays where it is."""
    holder, other = FairLock(tmp_path / "lock"), FairLock(tmp_path / "lock")
    assert holder.acquire(0)
    Doorbell(tmp_path / "lock").close()
    assert not other.acquire(0.01)
    holder.close()
    other.close()


@linux
def test_a_bell_that_cannot_be_rung_spoils_no_commit() -> None:
    """/dev/full refuses every byte, as a full disk may: what was committed stays acknowledged."""
    lock = FairLock(Path("/dev/full"))
    assert lock.acquire(0)
    lock.ring()
    lock.close()


def test_without_a_bell_looking_has_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has none left, a wait is short, so that the caller soon looks again."""
    monkeypatch.setattr(doorbell, "_listen", lambda _: None)
    monkeypatch.setattr(doorbell, "LOOK_SECONDS", 0.0)
    bell = Doorbell(tmp_path / "lock")
    assert not bell.wait(3_600)
    bell.close()


@linux
def test_a_file_that_cannot_be_watched_leaves_nothing_open(tmp_path: Path) -> None:
    """Then there is no bell, and it costs no descriptor."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert not Doorbell(tmp_path / "missing" / "lock").wait(0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
