"""jobq.store.fairlock and doorbell: a file that two close at once."""

import os
from pathlib import Path

import pytest

from jobq.store.doorbell import Doorbell
from jobq.store.fairlock import FairLock


@pytest.mark.parametrize("kind", [FairLock, Doorbell])
def test_what_two_close_at_once_is_closed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[FairLock | Doorbell]
) -> None:
    """A store is closed while a thread ends: the number may be another file's by the second time.

    `os.close` lets other threads run, as it does here.
    """
    closed: list[int] = []
    close = os.close
    (tmp_path / "jobs.db-lock").touch()
    one = kind(tmp_path / "jobs.db-lock")
    if isinstance(one, FairLock):
        assert one.acquire(1)

    def close_with_another_thread(file: int) -> None:
        closed.append(file)
        close(file)
        one.close()

    monkeypatch.setattr(os, "close", close_with_another_thread)
    one.close()
    monkeypatch.undo()
    assert len(closed) == len(set(closed)) <= 1
