"""The exercises of notebook 04: how long a recovery takes, and what it repeats."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from jobq.course.exercise import Exercise, Verdict, cannot_tell, right, wrong

LEASE, POLL, SINCE_HEARTBEAT = 30, 1, 4  # seconds, in exercise 04.1
FREEZE, PROMISED = 5, 60  # seconds, in exercise 04.2
RECIPIENTS = ["ana", "ben", "cem"]  # invented

Send = Callable[[str], None]
SendAll = Callable[[list[str], "_World", Send], Any]


def _longest(answer: Any) -> Verdict:
    if type(answer) not in {int, float}:
        return cannot_tell("answer with a number of seconds")
    expected = LEASE - SINCE_HEARTBEAT + POLL
    if answer == expected:
        return right(
            f"the lease runs out {LEASE - SINCE_HEARTBEAT} s after the kill, "
            f"and an idle worker looks again within {POLL} s"
        )
    if answer in {LEASE, LEASE + POLL}:
        return wrong(
            "the lease does not count from the kill: it counts from the last heartbeat, "
            f"which was {SINCE_HEARTBEAT} s before"
        )
    if answer == LEASE - SINCE_HEARTBEAT:
        return wrong("that is when the lease runs out; somebody still has to look")
    return wrong(f"count from the last heartbeat: lease {LEASE} s, and then one poll of {POLL} s")


def _lease(answer: Any) -> Verdict:
    if type(answer) not in {int, float}:
        return cannot_tell("answer with a number of seconds")
    interval = answer / 3
    if interval + FREEZE >= answer:
        return wrong(
            f"heartbeats come every {interval:.1f} s; with a freeze of {FREEZE} s the next one is "
            f"up to {interval + FREEZE:.1f} s late, the lease of {answer:g} s runs out, and a "
            "healthy job runs twice"
        )
    if answer + POLL > PROMISED:
        return wrong(
            f"after a kill the job could wait {answer + POLL:g} s, over the {PROMISED} s promised"
        )
    return right(
        f"a freeze of {FREEZE} s leaves {answer - interval - FREEZE:.1f} s to spare, "
        f"and a killed job runs again within {answer + POLL:g} s"
    )


def _sends(answer: Any) -> Verdict:
    if not callable(answer):
        return cannot_tell("answer with a function of recipients, sent and send")
    unharmed = _World(killed_at=None).run(answer)
    if unharmed.fault():
        return wrong("without any kill, not everybody got exactly one mail")
    for killed_at in range(unharmed.steps):  # the earliest kill that shows a fault is told
        world = _World(killed_at).run(answer)
        fault = world.fault()
        if fault:
            return wrong(f"killed {world.where}: {fault}")
    return right("whenever the kill comes, everybody gets a mail, and at most one person gets two")


class _KilledError(BaseException):
    """Stands for SIGKILL: not an Exception, so that answers do not catch it by accident."""


class _World:
    """Mails and the durable list of those sent, with a kill before or after one of the steps."""

    def __init__(self, killed_at: int | None) -> None:
        self.steps = 0
        self.where = ""
        self.mails: list[str] = []
        self._sent: set[str] = set()
        self._killed_at = killed_at

    def __contains__(self, recipient: object) -> bool:
        return recipient in self._sent

    def add(self, recipient: str) -> None:
        self._step(f"before {recipient} was noted as sent")
        self._sent.add(recipient)
        self._step(f"after {recipient} was noted as sent")

    def send(self, recipient: str) -> None:
        self._step(f"before the mail to {recipient}")
        self.mails.append(recipient)
        self._step(f"after the mail to {recipient}")

    def run(self, send_all: SendAll) -> "_World":
        """Run the job; if it is killed on the way, run it again, as a queue does."""
        try:
            send_all(list(RECIPIENTS), self, self.send)
        except _KilledError:
            send_all(list(RECIPIENTS), self, self.send)
        return self

    def fault(self) -> str | None:
        """Return what went wrong in words, or None."""
        mails = Counter(self.mails)
        for recipient in RECIPIENTS:
            if not mails[recipient]:
                return f"{recipient} never gets a mail; note it as sent after sending, not before"
        twice = [recipient for recipient in RECIPIENTS if mails[recipient] > 1]
        allowed = 0 if self._killed_at is None else 1
        if len(twice) > allowed or max(mails.values()) > 1 + allowed:
            return f"{' and '.join(twice)} got more than one mail; ask `sent` before each"
        return None

    def _step(self, where: str) -> None:
        self.steps += 1
        if self._killed_at == self.steps - 1:
            self.where = where
            raise _KilledError


EXERCISES = (
    Exercise(
        "04.1",
        f"lease {LEASE} s, poll {POLL} s, killed {SINCE_HEARTBEAT} s after a heartbeat: how many "
        "seconds from the kill until the job runs again, at the longest?",
        _longest,
        (
            "From which moment does the lease count?",
            f"The last heartbeat gave {LEASE} s, and {SINCE_HEARTBEAT} of them had passed.",
        ),
        f"answer = {LEASE} - {SINCE_HEARTBEAT} + {POLL}",
    ),
    Exercise(
        "04.2",
        f"choose a lease: the machine may freeze for {FREEZE} s, and a killed job must run again "
        f"within {PROMISED} s (heartbeats every third of the lease, poll {POLL} s)",
        _lease,
        (
            "A lease must outlive one heartbeat interval and the longest freeze together.",
            f"So lease > lease / 3 + {FREEZE}. And lease + {POLL} must be at most {PROMISED}.",
        ),
        "answer = 20",
    ),
    Exercise(
        "04.3",
        "write send_all(recipients, sent, send) so that a kill at any moment loses no mail and "
        "doubles at most one",
        _sends,
        (
            "`sent` survives the kill: ask it with `in`, and note a recipient with sent.add(…).",
            "For each recipient: skip those in `sent`, else send first and note second.",
        ),
        "def answer(recipients, sent, send):\n"
        "    for recipient in recipients:\n"
        "        if recipient not in sent:\n"
        "            send(recipient)\n"
        "            sent.add(recipient)",
    ),
)
