"""Mail by SMTP, to a server on this machine.

No transaction spans a database and a mail server. A sender that dies after the server took a mail,
and before it could note so, does not know that it was sent, and has to send it again. All it can
do is to make the second one harmless: under the same Message-ID a server may drop it.
"""

import re
import smtplib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from jobq.errors import Permanent
from jobq.oneline import one_line

HOST = "127.0.0.1"  # always: nobody's payload may have a worker talk to other machines
DOMAIN = "jobq.invalid"  # of a top-level domain that cannot exist: RFC 2606, section 2
SENDER = f"jobq@{DOMAIN}"
REPLY_SECONDS = 10.0  # for the server to answer, each time
LONGEST_REPLY = 200  # characters of an answer that are kept

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*")  # RFC 5322's dot-atom
_NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _check_address(address: str) -> str:
    if not _ADDRESS.fullmatch(address):
        raise PydanticCustomError("address", "use one plain address, such as ann@example.org")
    return address


def _check_line(text: str) -> str:
    # A line break would end the header, and what follows would be read as another one.
    if _NOT_IN_A_LINE.search(text):
        raise PydanticCustomError("line", "use one line of text, without control characters")
    return text


def _check_each_once(addresses: list[str]) -> list[str]:
    twice = next((to for to, times in Counter(addresses).items() if times > 1), None)
    if twice is not None:
        raise PydanticCustomError(
            "once", "{twice} is in it twice: name each once", {"twice": twice}
        )
    return addresses


# For payloads. None can bring a header of its own into a mail, or a command into a session.
Address = Annotated[
    str,
    Field(max_length=254, json_schema_extra={"pattern": f"^(?:{_ADDRESS.pattern})$"}),
    AfterValidator(_check_address),
]
Addresses = Annotated[
    list[Address],
    Field(min_length=1, max_length=1_000, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_check_each_once),
]
Line = Annotated[
    str,
    Field(
        min_length=1,
        max_length=250,
        json_schema_extra={"pattern": f"^{_NOT_IN_A_LINE.pattern.replace('[', '[^')}*$"},
    ),
    AfterValidator(_check_line),
]


def fresh_id() -> str:
    """Return a Message-ID that no other mail has."""
    return make_msgid(domain=DOMAIN)


def lasting_id(job_id: str, n: int) -> str:
    """Return the Message-ID of a job's nth mail: the same in each of its attempts."""
    return f"<{job_id}.{n}@{DOMAIN}>"


def compose(to: str, subject: str, text: str, *, message_id: str, date: float) -> EmailMessage:
    """Return a mail; `date` is in seconds since 1970. The same values give the same mail."""
    mail = EmailMessage()
    mail["From"] = SENDER
    mail["To"] = to
    mail["Subject"] = subject
    mail["Date"] = formatdate(date)
    mail["Message-ID"] = message_id
    mail.set_content(text)
    return mail


def deliver(mail: EmailMessage, port: int) -> None:
    """Send the mail to its recipient; once this returns, the server has taken it.

    Raises Permanent if the server refuses it for good (a reply of 5xx: RFC 5321, section 4.2.1),
    and RuntimeError if another try may succeed. After a reply that did not come the mail may have
    been taken all the same.
    """
    to = str(mail["To"])
    # A connection for each mail, so that none is idle, however slow the work goes.
    smtp = smtplib.SMTP(local_hostname="localhost", timeout=REPLY_SECONDS)
    with closing(smtp):  # smtplib's own way would talk on after an interruption
        with _explained(to, port):
            code, text = smtp.connect(HOST, port)
            if code != 220:  # noqa: PLR2004 - the one welcome there is: RFC 5321, section 4.3.2
                raise smtplib.SMTPConnectError(code, text)
            smtp.send_message(mail, SENDER, [to])
        with suppress(OSError):  # it has the mail: no trouble with the farewell changes that
            smtp.quit()


@contextmanager
def _explained(to: str, port: int) -> Iterator[None]:
    """Say what the server made of the mail, and whether that is its last word."""
    try:
        yield
    except OSError as error:  # smtplib's are, too
        reply = _reply(error)
        if reply is None:
            raise RuntimeError(
                f"no mail server answered on {HOST}, port {port}: {type(error).__name__}: {error}; "
                "is it running?"
            ) from error
        code, text = reply
        if code // 100 == 5:  # noqa: PLR2004 - see deliver
            raise Permanent(f"the mail server refused {to} for good: {code} {text}") from error
        raise RuntimeError(f"the mail server put {to} off: {code} {text}") from error


def _reply(error: OSError) -> tuple[int, str] | None:
    """Return the server's reply that an error carries; None if it has none, or one of no SMTP."""
    text: str | bytes
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        [(code, text)] = error.recipients.values()
    elif isinstance(error, smtplib.SMTPResponseException):
        code, text = error.smtp_code, error.smtp_error
    else:
        return None
    if code < 0:  # smtplib's sign for an answer that begins with no number
        return None
    words = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return code, one_line(" ".join(words.split()))[:LONGEST_REPLY]
