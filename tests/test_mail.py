"""jobq.mail and the kind send_emails, against real mail servers on real sockets."""

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from jobq import mail
from jobq.context import Alone, Context
from jobq.errors import Cancelled, InvalidInput, LeaseLost, Permanent
from jobq.job import Job, Progress, Status
from jobq.kinds import send_emails

JOB = Job("ab12", "send_emails", {}, Status.RUNNING, 1, 3, 0, 1, 0.0, created_at=1_000_000.0)


class Server:
    """A mail server that answers as a test tells it to, and keeps what it takes."""

    def __init__(self) -> None:
        self.welcome = ""  # "554 no" turns everybody away
        self.replies: dict[str, str] = {}  # to the address of a recipient
        self.after_data = "250 taken"
        self.taken: list[Envelope] = []
        # Controller asks for the port at the start and cannot take 0.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: Any
    ) -> str:
        """Take the recipient, unless there is another reply for it."""
        reply = self.replies.get(address, "250 OK")
        if reply.startswith("2"):
            envelope.rcpt_tos.append(address)
        return reply

    async def handle_DATA(  # noqa: N802 - as above
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        """Keep the mail if it is to be taken."""
        if self.after_data.startswith("2"):
            self.taken.append(envelope)
        return self.after_data

    @property
    def recipients(self) -> list[str]:
        """Who was sent a mail, in order."""
        return [to for envelope in self.taken for to in envelope.rcpt_tos]

    def values(self, header: str) -> list[str]:
        """Return that header of each mail."""
        lines = [
            (envelope.original_content or b"").decode().splitlines() for envelope in self.taken
        ]
        return [line for mail in lines for line in mail if line.startswith(f"{header}: ")]


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a mail server that takes everything until told otherwise."""
    server = Server()
    controller = Controller(server, "127.0.0.1", server.port, server_hostname="localhost")
    controller.start()
    yield server
    controller.stop()


def context(attending: Alone | None = None, job: Job = JOB) -> Context:
    """Return the context of an attempt; `attending` remembers what attempts before it did."""
    return Context(job=job, attempt=1, worker="w", attending=attending or Alone())


def payload(port: int, **other: Any) -> dict[str, Any]:
    """Return a payload for three people."""
    to = ["ann@example.org", "bob@example.org", "cem@example.org"]
    return {"to": to, "subject": "News", "smtp_port": port} | other


def test_everybody_gets_one_mail_in_order(server: Server) -> None:
    """Each address is sent a mail of its own, and each mail is told as progress."""
    attending = Alone()
    result = send_emails(payload(server.port), context(attending))
    assert result == {"sent": 3, "skipped": 0, "refused": {}}
    assert server.recipients == ["ann@example.org", "bob@example.org", "cem@example.org"]
    assert server.values("To") == [f"To: {to}" for to in server.recipients]
    assert attending.reported[1] == Progress(2, 3, "bob@example.org")


def test_a_subject_in_any_script_arrives(server: Server) -> None:
    """What ASCII lacks is encoded, and decoded by whoever reads the mail."""
    sent = mail.compose(
        "ann@example.org", "Grüße 👩\u200d👩\u200d👦", "Text", message_id="<1@x>", date=0.0
    )
    mail.deliver(sent, server.port)
    assert server.values("Subject")[0].startswith("Subject: =?utf-8?")
    assert sent["Subject"] == "Grüße 👩\u200d👩\u200d👦"


def test_idempotent_mail_keeps_its_message_id(server: Server) -> None:
    """An attempt that knows nothing of the last one sends the same mails, byte for byte."""
    for _ in range(2):
        send_emails(payload(server.port), context())
    first, second = server.taken[:3], server.taken[3:]
    assert [mail.original_content for mail in first] == [mail.original_content for mail in second]
    assert set(server.values("Date")) == {"Date: Mon, 12 Jan 1970 13:46:40 -0000"}
    assert len(set(server.values("Message-ID"))) == 3
    send_emails(payload(server.port), context(job=replace(JOB, id="cd34")))
    assert len(set(server.values("Message-ID"))) == 6


def test_naive_mail_is_new_each_time(server: Server) -> None:
    """Another attempt sends all again, and no server can tell."""
    attending = Alone()
    for _ in range(2):
        result = send_emails(payload(server.port, form="naive"), context(attending))
        assert result == {"sent": 3, "skipped": 0, "refused": {}}
    assert len(set(server.values("Message-ID"))) == 6


def test_an_attempt_goes_on_where_the_last_one_failed(server: Server) -> None:
    """A mail that was put off fails the attempt; the next one sends that mail and the rest."""
    server.replies["bob@example.org"] = "450 mailbox busy"
    attending = Alone()
    with pytest.raises(RuntimeError, match=r"put bob@example\.org off: 450 mailbox busy$"):
        send_emails(payload(server.port), context(attending))
    server.replies.clear()
    result = send_emails(payload(server.port), context(attending))
    assert result == {"sent": 2, "skipped": 1, "refused": {}}
    assert server.recipients == ["ann@example.org", "bob@example.org", "cem@example.org"]


def test_a_finished_mailing_is_all_skipped(server: Server) -> None:
    """An attempt after one that died between the last mail and its end sends nothing."""
    attending = Alone()
    send_emails(payload(server.port), context(attending))
    result = send_emails(payload(server.port), context(attending))
    assert result == {"sent": 0, "skipped": 3, "refused": {}}
    assert len(server.taken) == 3


# Sends three mails, and is killed where the second one has been sent and not yet noted.
KILLED = """
import os, signal, sys
from jobq.context import Alone, Context
from jobq.job import Job, Status
from jobq.kinds import send_emails

class Dies(Alone):
    def mark_done(self, key):
        if key == "mail-2":
            os.kill(os.getpid(), signal.SIGKILL)
        super().mark_done(key)

job = Job("ab12", "send_emails", {}, Status.RUNNING, 1, 3, 0, 1, 0.0, created_at=1_000_000.0)
to = ["ann@example.org", "bob@example.org", "cem@example.org"]
payload = {"to": to, "subject": "News", "smtp_port": int(sys.argv[1])}
send_emails(payload, Context(job=job, attempt=1, worker="w", attending=Dies()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_mail_sent_and_not_noted_is_sent_again_as_the_same(
    server: Server, start: Callable[..., Any]
) -> None:
    """In the one moment that `once` cannot cover, the Message-ID tells that it is one mail."""
    program = start(KILLED, str(server.port))
    assert program.process.wait(30) == -signal.SIGKILL
    assert server.recipients == ["ann@example.org", "bob@example.org"]
    attending = Alone()
    attending.mark_done("mail-1")  # as the store would have it
    result = send_emails(payload(server.port), context(attending))
    assert result == {"sent": 2, "skipped": 1, "refused": {}}
    assert server.recipients[2:] == ["bob@example.org", "cem@example.org"]
    _, before, again, _ = server.taken
    assert before.original_content == again.original_content


def test_one_who_is_refused_for_good_does_not_stop_the_others(server: Server) -> None:
    """The result names them and the server's reason; an attempt that follows says the same."""
    server.replies["bob@example.org"] = "550 no such user"
    attending = Alone()
    why = "the mail server refused bob@example.org for good: 550 no such user"
    refused = {"bob@example.org": why}
    first = send_emails(payload(server.port), context(attending))
    assert first == {"sent": 2, "skipped": 0, "refused": refused}
    second = send_emails(payload(server.port), context(attending))
    assert second == {"sent": 0, "skipped": 2, "refused": refused}


@pytest.mark.parametrize("form", ["naive", "idempotent"])
def test_a_mailing_that_nobody_would_get_fails_for_good(server: Server, form: str) -> None:
    """Where everybody is refused no further attempt is made."""
    server.after_data = "554 looks like an advertisement"
    with pytest.raises(Permanent, match=r"^nobody would get this mail; .*: 554 looks like an adv"):
        send_emails(payload(server.port, form=form), context())


def test_a_full_mail_server_is_worth_another_try(server: Server) -> None:
    """A reply of 4xx to the mail itself is an ordinary failure."""
    server.after_data = "452 no space"
    with pytest.raises(RuntimeError, match=r"put ann@example\.org off: 452 no space$"):
        send_emails(payload(server.port), context())


def test_no_mail_server_is_worth_another_try() -> None:
    """It may be started yet; the error says where it was looked for."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    why = rf"^no mail server answered on 127\.0\.0\.1, port {port}: ConnectionRefusedError"
    with pytest.raises(RuntimeError, match=why):
        send_emails(payload(port), context())


@pytest.fixture
def speak() -> Iterator[Callable[..., int]]:
    """Start servers that answer one connection from a script, and return their ports."""
    listeners, threads = [], []

    def follow(listener: socket.socket, replies: tuple[bytes, ...]) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            for reply in replies:
                stream.write(reply + b"\r\n")
                stream.flush()
                line = stream.readline()
                while reply.startswith(b"354") and line not in {b".\r\n", b""}:
                    line = stream.readline()

    def start_speaking(*replies: bytes) -> int:
        listeners.append(socket.create_server(("127.0.0.1", 0)))
        threads.append(threading.Thread(target=follow, args=(listeners[-1], replies)))
        threads[-1].start()
        return int(listeners[-1].getsockname()[1])

    yield start_speaking
    for thread in threads:
        thread.join(30)
    for listener in listeners:
        listener.close()


LETTER = mail.compose("ann@example.org", "News", "Text", message_id="<1@x>", date=0.0)


@pytest.mark.parametrize(
    ("replies", "error", "why"),
    [
        ([b"554 go away"], Permanent, "for good: 554 go away$"),
        ([b"421 later"], RuntimeError, "off: 421 later$"),
        ([b"220 hi", b"550 no", b"550 no"], Permanent, "for good: 550 no$"),
        ([b"220 hi", b"250 hi", b"421 closing"], RuntimeError, "off: 421 closing$"),
        ([b"220 hi"], RuntimeError, r"no mail server answered .*: SMTPServerDisconnected"),
        ([b"hello"], RuntimeError, r"no mail server answered .*: SMTPConnectError"),
        ([b"554-two\r\n554 lines\x00\xff"], Permanent, r"for good: 554 two lines\\x00\ufffd$"),
        ([b"554 " + b"x" * 5_000], Permanent, f"for good: 554 {'x' * 200}$"),
    ],
)
def test_the_last_word_of_a_server_is_known_by_its_number(
    speak: Callable[..., int], replies: list[bytes], error: type[Exception], why: str
) -> None:
    """5xx is for good, whenever it comes; all else may pass. The error is one line of text."""
    with pytest.raises(error, match=why) as caught:
        mail.deliver(LETTER, speak(*replies))
    assert "\n" not in str(caught.value)


def test_a_farewell_that_fails_does_not_unsend_the_mail(speak: Callable[..., int]) -> None:
    """A server that takes the mail and is gone has taken it."""
    mail.deliver(LETTER, speak(b"220 hi", b"250 hi", b"250 OK", b"250 OK", b"354 go on", b"250 OK"))


def test_a_server_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is waited for for a bounded time."""
    monkeypatch.setattr(mail, "REPLY_SECONDS", 0.05)
    why = r"no mail server answered .*: timed out"
    # The system accepts connections for a listener that does nothing.
    with socket.create_server(("127.0.0.1", 0)) as idle, pytest.raises(RuntimeError, match=why):
        mail.deliver(LETTER, idle.getsockname()[1])


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no interval timer")
def test_an_interruption_ends_the_wait_at_once() -> None:
    """A worker that has to stop does not wait for the server, not even to say goodbye."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                mail.deliver(LETTER, listener.getsockname()[1])
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(100) == b""  # closed, without a QUIT
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class ToBeCancelled(Alone):
    """Somebody asks for the job to be cancelled after the first mail."""

    def cancelled(self) -> bool:
        """Whether a mail has been noted."""
        return bool(self.keys)


def test_a_mailing_can_be_cancelled(server: Server) -> None:
    """No further mail is sent once somebody has asked for the end."""
    with pytest.raises(Cancelled):
        send_emails(payload(server.port), context(ToBeCancelled()))
    assert server.recipients == ["ann@example.org"]


class Lost(Alone):
    """The job is another worker's by now."""

    def mark_done(self, key: str) -> None:
        """Refuse."""
        raise LeaseLost("ab12", 1, key)


def test_a_worker_that_lost_the_job_stops_after_one_mail(server: Server) -> None:
    """It cannot note that mail: whoever has the job sends it again, as the same one."""
    with pytest.raises(LeaseLost, match="mail-1"):
        send_emails(payload(server.port), context(Lost()))
    assert server.recipients == ["ann@example.org"]


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ({"to": []}, "to: List should have at least 1 item"),
        ({"to": ["a@b"] * 1_001}, "to: List should have at most 1000 items"),
        ({"to": "a@b"}, "to: Input should be a valid list"),
        ({"to": ["a@b", 7]}, "to.1: Input should be a valid string"),
        ({"to": ["a@b", "c@d", "a@b"]}, "to: a@b is in it twice"),
        ({"to": [f"{'x' * 251}@b.c"]}, "to.0: String should have at most 254 characters"),
        ({"subject": ""}, "subject: String should have at least 1 character"),
        ({"subject": "x" * 251}, "subject: String should have at most 250 characters"),
        ({"smtp_port": 25}, "smtp_port: Input should be greater than or equal to 1024"),
        ({"smtp_port": 65_536}, "smtp_port: Input should be less than or equal to 65535"),
        ({"smtp_port": "2525"}, "smtp_port: Input should be a valid integer"),
        ({"smtp_host": "example.org"}, "smtp_host: Extra inputs are not permitted"),
        ({"form": "careful"}, "form: Input should be 'naive' or 'idempotent'"),
        ({"seconds_each": 61}, "seconds_each: Input should be less than or equal to 60"),
        ({"seconds_each": float("nan")}, "seconds_each: Input should be"),
    ],
)
def test_a_bad_payload_is_refused_by_name(other: dict[str, Any], fault: str) -> None:
    """The error names the field and the rule; above all, a payload names no host."""
    with pytest.raises(InvalidInput) as refusal:
        send_emails(payload(2525, **other), context())
    assert fault in str(refusal.value)


@pytest.mark.parametrize(
    "subject", ["a\nBcc: eve@x", "a\r\n\r\nbody", "a\rb", "a\x00b", "a\x85b", "a\u2028b", "\ud800"]
)
def test_no_header_comes_in_by_the_subject(subject: str) -> None:
    """Whatever some mail program may take for the end of a line is refused at the door."""
    with pytest.raises(InvalidInput, match="subject: "):
        send_emails(payload(2525, subject=subject), context())


@pytest.mark.parametrize(
    "address",
    [
        *("a@b\nBcc: eve@x", "a@b\n", "a@b> NOTIFY=NEVER", "a@b,c@d", "Ann <a@b>", "<a@b>"),
        *("", "a", "@b", "a@", " a@b", "a b@c", "a..b@c", ".a@b", "a@-b", "a@b.", '"a b"@c'),
        *("a@[127.0.0.1]", "ä@b", "a@ä"),
    ],
)
def test_no_command_comes_in_by_an_address(address: str) -> None:
    """An address is a plain one: nothing in it ends a line, a bracket or a list."""
    with pytest.raises(InvalidInput, match=r"to\.0: use one plain address"):
        send_emails(payload(2525, to=[address]), context())


def test_every_address_that_is_allowed_arrives_as_it_is(server: Server) -> None:
    """Also one with all the signs that a plain address may hold."""
    to = ["!#$%&'*+-/=?^_`{|}~.x@example.org", "A.b-c@localhost", "1@2.example", "%s@x", "{0}@x"]
    send_emails(payload(server.port, to=to), context())
    assert server.recipients == to
