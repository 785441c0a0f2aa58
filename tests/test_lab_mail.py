"""jobq.lab's mail server and mailing: real mail, a real kill, and who got it twice."""

import importlib.util
import smtplib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobq import mail
from jobq.errors import LabError
from jobq.lab import Lab, mailbox
from jobq.lab.mailbox import Mail
from jobq.lab.mailing import Mailing, measure_mailing, text_mailings
from jobq.lab.programs import MailServerProcess
from jobq.lab.waiting import wait_until

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Return a lab."""
    with Lab() as lab:
        yield lab


def send(server: MailServerProcess, to: str, message_id: str, subject: str = "News") -> None:
    """Send a mail as the kind send_emails does."""
    letter = mail.compose(to, subject, "Text", message_id=message_id, date=0.0)
    mail.deliver(letter, server.port)


def send_raw(server: MailServerProcess, to: list[str], headers: bytes) -> None:
    """Send a mail that nobody has looked over."""
    with smtplib.SMTP("127.0.0.1", server.port, "localhost", timeout=30) as smtp:
        smtp.sendmail("x@y", to, headers + b"\r\n\r\nText\r\n")


def test_a_mail_is_accepted_once_under_its_message_id(lab: Lab) -> None:
    """The second one is dropped, and its sender is not told; other mails are accepted, in order."""
    server = lab.start_mail_server()
    assert server.accepted() == []
    send(server, "bob@x", "<1@x>")
    send(server, "ann@x", "<2@x>")
    send(server, "bob@x", "<1@x>")
    send(server, "bob@x", "<3@x>")
    assert server.accepted() == ["bob@x", "ann@x", "bob@x"]
    assert server.dropped() == ["bob@x"]
    assert server.got_twice() == ["bob@x"]


def test_each_recipient_is_one_of_their_own(lab: Lab) -> None:
    """One mail to several people reaches each, also those it is sent to later."""
    server = lab.start_mail_server()
    send_raw(server, ["ann@x", "bob@x"], b"Message-ID: <1@x>")
    send_raw(server, ["bob@x", "cem@x"], b"message-id:\r\n <1@x>")
    assert server.accepted() == ["ann@x", "bob@x", "cem@x"]
    assert server.dropped() == ["bob@x"]


def test_a_mail_without_a_message_id_is_never_dropped(lab: Lab) -> None:
    """Nothing tells it from another one."""
    server = lab.start_mail_server()
    for _ in range(2):
        send_raw(server, ["ann@x"], b"Subject: News")
    assert (server.accepted(), server.dropped()) == (["ann@x", "ann@x"], [])


def test_a_message_id_is_compared_and_not_judged(lab: Lab) -> None:
    """Python's reader of mail fails on some of these; the server takes them as they are."""
    server = lab.start_mail_server()
    ids = [b"<a@", b"<=?utf-8?q?===@[", b"<\\\xc3\xa4==@[(==", b"no id at all", b"\xff"]
    for message_id in ids * 2:
        send_raw(server, ["ann@x"], b"Subject: \xff\r\nMessage-ID: " + message_id)
    assert (server.accepted(), server.dropped()) == (["ann@x"] * 5, ["ann@x"] * 5)


def test_of_many_at_once_one_is_accepted(lab: Lab) -> None:
    """Twenty senders of one mail at the same moment, and it arrives once."""
    server = lab.start_mail_server()
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: send(server, "ann@x", "<1@x>"), range(20)))
    assert (len(server.accepted()), len(server.dropped())) == (1, 19)


def test_a_killed_server_remembers_what_it_took(lab: Lab) -> None:
    """It is told anew on the same port, and drops what it had before it was killed."""
    server = lab.start_mail_server()
    send(server, "ann@x", "<1@x>")
    lab.kill(server)
    with pytest.raises(RuntimeError, match="no mail server answered"):
        send(server, "ann@x", "<1@x>")
    again = lab.start_mail_server(port=server.port)
    send(again, "ann@x", "<1@x>")
    assert (again.accepted(), again.dropped()) == (["ann@x"], ["ann@x"])


def test_a_port_has_one_server(lab: Lab) -> None:
    """The second one does not pass for ready because the first one answers."""
    server = lab.start_mail_server()
    with pytest.raises(LabError, match=r"mail server ended at once \(exit code 1\), saying: no ma"):
        lab.start_mail_server(port=server.port)
    assert lab.running() == (server,)


def test_it_listens_on_loopback_alone(lab: Lab) -> None:
    """Nobody on the network can send it anything."""
    server = lab.start_mail_server()
    addresses = [c.laddr for c in psutil.Process(server.pid).net_connections("inet")]
    assert addresses == [("127.0.0.1", server.port)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
def test_what_cannot_be_kept_is_not_accepted(lab: Lab) -> None:
    """A full disk puts the sender off; once there is room the mail is accepted."""
    server = lab.start_mail_server()
    file = lab.folder / f"mail-{server.port}.jsonl"
    file.symlink_to("/dev/full")
    with pytest.raises(RuntimeError, match=r"put ann@x off: 451 .*No space left on device"):
        send(server, "ann@x", "<1@x>")
    file.unlink()
    send(server, "ann@x", "<1@x>")
    assert (server.accepted(), server.dropped()) == (["ann@x"], [])


def test_a_line_cut_short_does_not_spoil_the_next(tmp_path: Path) -> None:
    """What a kill or a full disk left of a line is passed over: its mail was not accepted."""
    file = tmp_path / "mail.jsonl"
    first, second = (
        Mail("ann@x", "Grüße", "<1@x>", dropped=False),
        Mail("b@x", "", "", dropped=True),
    )
    mailbox.append(file, first)
    with file.open("ab") as box:
        box.write(b'\n{"to": "lost@x", "subj')
    mailbox.append(file, second)
    assert mailbox.read(file) == [first, second]


def test_twice_is_the_same_subject_accepted_more_than_once() -> None:
    """A dropped mail was not got, and one of another subject is another mail."""
    mails = [
        Mail("bob@x", "News", "<1@x>", dropped=False),
        Mail("ann@x", "News", "<2@x>", dropped=False),
        Mail("ann@x", "News", "<2@x>", dropped=True),
        Mail("ann@x", "Bill", "<3@x>", dropped=False),
        Mail("bob@x", "News", "<4@x>", dropped=False),
        Mail("bob@x", "News", "<5@x>", dropped=False),
    ]
    assert mailbox.got_twice(mails) == ["bob@x"]


def test_it_says_what_to_install(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain install has no mail server to start."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(LabError, match=r"pip install 'jobq\[course\]'"):
        lab.start_mail_server()


def test_a_stopped_lab_has_no_mail_server_left() -> None:
    """It is a process like the others: stopped when asked, killed at the end."""
    with Lab() as lab:
        stopped, left = lab.start_mail_server(), lab.start_mail_server()
        lab.stop(stopped)
    assert (stopped.ending, left.ending) == ("SIGTERM", "SIGKILL")


# An owner that says which mail server it has, and waits to be killed.
OWNER = """
from jobq.lab import Lab
lab = Lab()
print(lab.start_mail_server().pid, flush=True)
input()
"""


@posix
def test_no_mail_server_outlives_its_owner(start: Callable[..., Any]) -> None:
    """An owner that is killed takes it along."""
    owner = start(OWNER)
    server = psutil.Process(int(owner.hear()))
    owner.kill()
    wait_until(lambda: not server.is_running() or server.status() == "zombie", "its end")


def test_naive_mail_is_sent_twice_after_a_kill(lab: Lab) -> None:
    """The attempt after the kill begins anew: those before it get the mail a second time."""
    found = measure_mailing(lab, "naive")
    assert 5 <= found.twice < 12
    assert (found.once + found.twice, found.none, found.dropped) == (12, 0, 0)


def test_idempotent_mail_is_sent_once_despite_a_kill(lab: Lab) -> None:
    """At most the one mail that was under way is sent again, and that one is dropped."""
    found = measure_mailing(lab, "idempotent")
    assert (found.once, found.twice, found.none) == (12, 0, 0)
    assert found.dropped <= 1


@posix
def test_a_worker_that_stood_still_sends_nobody_a_second_mail(lab: Lab) -> None:
    """It goes on in the middle of a mailing that another one has finished: all is noted by then."""
    server = lab.start_mail_server()
    to = [f"reader-{n}@example.org" for n in range(6)]
    sleeper = lab.start_worker(lease=1.0)
    letter = {"to": to, "subject": "News", "smtp_port": server.port, "seconds_each": 0.1}
    job = lab.enqueue("send_emails", letter)
    lab.wait_until(lambda: len(server.accepted()) >= 2, "2 mails to be accepted")
    lab.pause(sleeper)
    lab.start_worker(lease=1.0)
    lab.wait_for(job, "done")
    lab.resume(sleeper)
    lab.wait_until(lambda: "lost" in sleeper.log, "the sleeper to learn that it lost the job")
    lab.stop(sleeper)
    assert sorted(server.accepted()) == to
    assert len(server.dropped()) <= 1


def test_a_mailing_is_not_measured_beside_other_workers(lab: Lab) -> None:
    """A worker that is there already could take the job: it is named."""
    lab.start_worker()
    with pytest.raises(LabError, match="w1 would take the job"):
        measure_mailing(lab, "naive")


def test_the_text_of_mailings_holds_no_numbers() -> None:
    """It is the same in every run, and tells of every fault."""
    mailings = [Mailing("naive", 6, 5, 1, 0), Mailing("idempotent", 12, 0, 0, 1)]
    assert text_mailings(mailings).splitlines() == [
        "naive: some got it twice, some not at all",
        "idempotent: nobody got it twice, nobody not at all",
    ]
