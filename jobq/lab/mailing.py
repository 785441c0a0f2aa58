"""Kill a worker in the middle of sending mail, and count who got it twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jobq.errors import LabError
from jobq.job import Status
from jobq.lab.lab import Lab
from jobq.lab.programs import WorkerProcess

LEASE = 1.0  # seconds; how long the second worker has to wait for the job
RECIPIENTS, SECONDS_EACH = 12, 0.1
ACCEPTED = 5  # mails, and then the worker is killed

Form = Literal["naive", "idempotent"]


@dataclass(frozen=True, slots=True)
class Mailing:
    """One experiment: how many of the recipients got the mail how often."""

    form: Form
    once: int
    twice: int
    none: int
    dropped: int  # mails that the server recognised; 1 if the kill came before the noting


def measure_mailing(lab: Lab, form: Form) -> Mailing:
    """Send mail to twelve people, kill the worker after the fifth, and let another one go on.

    Raises LabError while other workers are running: they would take the job.
    """
    others = [process.name for process in lab.running() if isinstance(process, WorkerProcess)]
    if others:
        raise LabError(f"{', '.join(others)} would take the job: stop the other workers first")
    server = lab.start_mail_server()
    to = [f"reader-{n}@example.org" for n in range(1, RECIPIENTS + 1)]
    victim = lab.start_worker(lease=LEASE)
    letter = {"to": to, "subject": "News", "smtp_port": server.port, "form": form}
    job = lab.enqueue("send_emails", letter | {"seconds_each": SECONDS_EACH})
    lab.wait_until(
        lambda: len(server.accepted()) >= ACCEPTED or lab.job(job).status.final,
        f"{ACCEPTED} mails to be accepted",
    )
    lab.kill(victim)
    if (now := lab.job(job)).status.final:
        raise LabError(
            f"{job} is {now.status} before the kill ({now.error or 'all mails were sent'}): "
            "is this machine very busy? Try once more"
        )
    heir = lab.start_worker(lease=LEASE)
    lab.wait_for(job, Status.DONE)
    lab.stop(heir)
    lab.stop(server)
    twice, none = len(server.got_twice()), len(set(to) - set(server.accepted()))
    return Mailing(form, len(to) - twice - none, twice, none, len(server.dropped()))


def text_mailings(mailings: Sequence[Mailing]) -> str:
    """Return for each whether anybody got the mail twice or not at all, and no numbers."""
    return "\n".join(
        f"{m.form}: {'some' if m.twice else 'nobody'} got it twice, "
        f"{'some' if m.none else 'nobody'} not at all"
        for m in mailings
    )
