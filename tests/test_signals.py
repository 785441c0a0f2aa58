"""jobq.signals: where SIGTERM and SIGINT strike, and where they leave a note."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

from jobq.signals import POKE, STOP_SIGNALS, Interrupted, Signals

if TYPE_CHECKING:
    from tests.conftest import Program

HOUR = 3_600.0
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


def handlers() -> list[object]:
    """Return what the signals do at present."""
    return [signal.getsignal(number) for number in (*STOP_SIGNALS, POKE)]


def raise_twice() -> str:
    """Be a handler that gets two signals before it ends."""
    for number in STOP_SIGNALS:
        signal.raise_signal(number)
    return "not interrupted"


def test_the_first_signal_lets_the_handler_end() -> None:
    """It only notes that no further job is to be taken."""
    signals = Signals(HOUR)
    with signals.watched():
        assert signals.call(lambda: signal.raise_signal(STOP_SIGNALS[0])) is None
        assert signals.stopping
        assert not signals.interrupted


def test_the_second_signal_interrupts_the_handler() -> None:
    """Interrupted is raised where the handler stands."""
    signals = Signals(HOUR)
    with signals.watched():
        with pytest.raises(Interrupted):
            signals.call(raise_twice)
        assert signals.interrupted


def test_outside_of_a_handler_no_signal_raises() -> None:
    """A claim or a finish is never torn, however many signals come."""
    signals = Signals(0)
    with signals.watched():
        raise_twice()
        raise_twice()
        signals.interrupt()
        assert signals.stopping


def test_what_the_worker_does_for_a_handler_is_sheltered() -> None:
    """A write to the store is not torn: the interruption comes right after it."""
    signals = Signals(HOUR)
    written: list[bool] = []

    def handler() -> None:
        with signals.sheltered():
            raise_twice()
            written.append(True)
        written.append(False)

    with signals.watched():
        with pytest.raises(Interrupted):
            signals.call(handler)
        assert written == [True]
        assert signals.interrupted


def test_another_threads_shelter_is_not_the_main_threads() -> None:
    """Only the main thread is interrupted, so no other one needs a shelter, or may take it away."""
    signals = Signals(HOUR)
    entered, may_leave = threading.Event(), threading.Event()

    def shelter() -> None:
        with signals.sheltered():
            entered.set()
            may_leave.wait(60)

    def handler() -> None:
        thread = threading.Thread(target=shelter)
        thread.start()
        entered.wait(60)
        try:
            raise_twice()
        finally:
            may_leave.set()
            thread.join()

    with signals.watched(), pytest.raises(Interrupted):
        signals.call(handler)


def test_a_handler_is_interrupted_once() -> None:
    """Its cleaning up is left in peace."""
    signals = Signals(HOUR)
    cleaned: list[bool] = []

    def handler() -> None:
        try:
            raise_twice()
        finally:
            raise_twice()
            cleaned.append(True)

    with signals.watched(), pytest.raises(Interrupted):
        signals.call(handler)
    assert cleaned == [True]


def test_a_signal_before_the_handler_is_as_good_as_one_within() -> None:
    """A job claimed at the very moment of the first signal runs; of the second, it does not."""
    signals = Signals(HOUR)
    with signals.watched():
        signal.raise_signal(STOP_SIGNALS[0])
        assert signals.call(lambda: "ran to its end") == "ran to its end"
        signal.raise_signal(STOP_SIGNALS[0])
        with pytest.raises(Interrupted):
            signals.call(lambda: "not begun")
        assert signals.interrupted


def test_the_grace_time_ends_at_its_deadline() -> None:
    """Without grace the first signal interrupts; a second one ends whatever grace is left."""
    signals = Signals(0)
    with signals.watched(), pytest.raises(Interrupted):
        signals.call(lambda: signal.raise_signal(STOP_SIGNALS[0]))
    signals = Signals(HOUR)
    with signals.watched():
        signal.raise_signal(STOP_SIGNALS[0])
        assert signals.deadline - time.monotonic() == pytest.approx(HOUR, abs=60)
        signal.raise_signal(STOP_SIGNALS[0])
        assert signals.deadline <= time.monotonic()


@posix
def test_another_thread_can_wake_a_handler_that_sleeps() -> None:
    """`interrupt` ends a blocking call of the main thread, and counts as no stop signal."""
    signals = Signals(HOUR)
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.05):
            signals.interrupt()

    thread = threading.Thread(target=interrupt)
    with signals.watched():
        thread.start()
        started = time.monotonic()
        with pytest.raises(Interrupted):
            signals.call(lambda: time.sleep(60))
        over.set()
        thread.join()
        assert time.monotonic() - started < 30
        signals.listen()
        assert not signals.stopping


def test_an_interruption_that_comes_too_late_does_not_strike_the_next_handler() -> None:
    """It was meant for the handler before."""
    signals = Signals(HOUR)
    with signals.watched():
        signals.call(lambda: None)
        signals.interrupt()
        assert signals.call(lambda: signal.raise_signal(POKE)) is None
        assert not signals.interrupted


@posix
def test_signals_are_heard_that_the_main_thread_has_not_come_to() -> None:
    """The bell rings when the signal arrives; Python's handler may have to wait."""
    signals = Signals(HOUR)
    with signals.watched():
        os.write(signal.set_wakeup_fd(-1), bytes(STOP_SIGNALS))
        assert signals.deadline == math.inf
        signals.listen()
        assert signals.deadline <= time.monotonic()
        assert signals.stopping


@pytest.mark.parametrize("taken", ["the bell", "nothing"])
def test_a_signal_counts_once(taken: str) -> None:
    """Handler and bell both see it; a handler of a job that took the bell away hides nothing."""
    signals = Signals(HOUR)
    with signals.watched():
        if taken == "the bell":
            signal.set_wakeup_fd(-1)
        signal.raise_signal(STOP_SIGNALS[0])
        signals.listen()
        assert signals.deadline > time.monotonic()
        signal.raise_signal(STOP_SIGNALS[0])
        signals.listen()
        assert signals.deadline <= time.monotonic()


def test_all_is_given_back_at_the_end() -> None:
    """What the signals did before, they do again; nothing is asked of the next run."""
    before = handlers()
    signals = Signals(HOUR)
    with signals.watched():
        assert handlers() != before
        signal.raise_signal(STOP_SIGNALS[0])
    assert handlers() == before
    assert signal.set_wakeup_fd(-1) == -1
    signals.listen()
    assert not signals.stopping


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """A shell starts `jobq worker &` in a script so that Ctrl-C is not meant for it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signals = Signals(HOUR)
        with signals.watched():
            signal.raise_signal(signal.SIGINT)
            assert not signals.stopping
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_can_be_passed_on() -> None:
    """Held back until the end, it then does what it does in the program: here, a Ctrl-C."""
    signals = Signals(HOUR)
    reached: list[bool] = []

    def work(watched: AbstractContextManager[None]) -> None:
        with watched:
            signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        work(signals.watched(pass_on=True))
    assert reached == [True]


def test_a_thread_leaves_the_signals_alone() -> None:
    """Python leaves them to the main thread; elsewhere the way to stop is `stopping`."""
    before = handlers()
    inside: list[object] = []

    def work() -> None:
        signals = Signals(HOUR)
        with signals.watched():
            signals.interrupt()
            inside.extend([*handlers(), signals.call(lambda: "undisturbed")])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [*before, "undisturbed"]


FORKING = """
import os, signal, time
from jobq.signals import Signals
signals = Signals(3600)
with signals.watched():
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    signals.listen()
    print(signals.stopping, flush=True)
"""


@posix
def test_a_child_that_a_handler_forked_dies_of_sigterm(
    start: Callable[..., "Program"],
) -> None:
    """It ends as any program would, and its parent does not take the signal for its own."""
    program = start(FORKING)
    os.kill(int(program.hear()), signal.SIGTERM)
    assert program.rest() == [str(-signal.SIGTERM), "False"]
