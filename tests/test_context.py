"""jobq.context: what a handler may ask of its worker."""

import time
from typing import Any

import pytest

from jobq.context import Alone, Context
from jobq.errors import Cancelled, InvalidInput
from jobq.job import Job, Progress, Status


class Asked(Alone):
    """Attends to a handler whose job is to be cancelled from a time on."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def cancelled(self) -> bool:
        """Whether the time has come."""
        return time.monotonic() >= self.at


def context(attending: Alone | None = None, progress: Progress | None = None) -> Context:
    """Return the context of a first attempt."""
    job = Job("j", "any", {}, Status.RUNNING, 1, 3, 0, 1, 0.0, 0.0, progress=progress)
    return Context(job, 1, "worker-1", attending or Alone())


def test_a_handler_can_be_tried_out_without_a_worker() -> None:
    """A context that nobody attends to keeps what it is told."""
    mine = Context(context().job, 1, "me")
    mine.progress(1, 2, "half")
    assert not mine.cancelled
    assert isinstance(mine.attending, Alone)
    assert mine.attending.reported == [Progress(1, 2, "half")]


def test_the_progress_of_the_attempts_before_is_there() -> None:
    """It came with the claim."""
    assert context(progress=Progress(5, 9)).last_progress == Progress(5, 9)
    assert context().last_progress is None


@pytest.mark.parametrize(
    "told",
    [
        (-1,),
        ("1",),
        (True,),
        (float("nan"),),
        (1, -2),
        (1, 2, 3),
        (1, 2, "\x00"),
        (1, 2, "x" * 1001),
    ],
    ids=repr,
)
def test_progress_that_cannot_be_kept_is_refused(told: tuple[Any, ...]) -> None:
    """Two numbers of at least 0, and a text that every store can keep."""
    with pytest.raises(InvalidInput, match=r"^progress"):
        context().progress(*told)


def test_a_wait_ends_when_the_job_is_to_be_cancelled() -> None:
    """Cancelled is raised soon after, and not at the end of the wait."""
    began = time.monotonic()
    with pytest.raises(Cancelled, match="job j is to be cancelled"):
        context(Asked(began + 0.2)).sleep(60)
    assert 0.2 <= time.monotonic() - began < 30


def test_a_wait_takes_its_time() -> None:
    """No less than was asked for."""
    began = time.monotonic()
    context().sleep(0.12)
    assert time.monotonic() - began >= 0.12


@pytest.mark.parametrize("seconds", [-1, "1", None, float("inf")])
def test_a_wait_that_is_no_time_is_refused(seconds: Any) -> None:
    """It is a finite number of seconds."""
    with pytest.raises(InvalidInput, match="seconds is"):
        context().sleep(seconds)


def test_a_key_is_done_once() -> None:
    """The block is entered every time, and told whether there is something to do."""
    mine = context()
    seen = []
    for _ in range(3):
        with mine.once("mail-1") as to_do:
            seen.append(to_do)
    assert seen == [True, False, False]


def test_a_block_that_raises_is_not_done() -> None:
    """The next attempt does it again."""
    mine = context()
    with pytest.raises(RuntimeError), mine.once("mail-1"):
        raise RuntimeError
    with mine.once("mail-1") as to_do:
        assert to_do


@pytest.mark.parametrize("key", ["", " ", "x" * 256, 7, None])
def test_a_key_that_is_no_name_is_refused(key: Any) -> None:
    """Keys follow the rule for names."""
    with pytest.raises(InvalidInput, match=r"^key"), context().once(key):
        pass


def test_writes_are_kept_in_order_and_must_be_functions() -> None:
    """They are called with the transaction that records the result."""
    mine = context()
    mine.write_with_finish(print)
    mine.write_with_finish(repr)
    assert mine.writes == [print, repr]
    with pytest.raises(InvalidInput, match="use a function of the transaction"):
        mine.write_with_finish("INSERT INTO orders …")  # type: ignore[arg-type]  # what is tested
