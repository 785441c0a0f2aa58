"""A mail server for experiments: it takes every mail, and passes none on.

Like many a real one it drops a mail if its recipient has been given one with the same Message-ID
before. What it took, and what it dropped, it adds to a file (jobq.lab.mailbox). That file is also
its memory, so that a server that was killed can be started again.

    python -m jobq.lab.mail --file FILE --port PORT
"""

import argparse
import asyncio
import email
import email.policy
import sys
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from jobq.lab import mailbox
from jobq.lab.mailbox import Mail
from jobq.owned import die_with_parent

LOOPBACK = "127.0.0.1"
TAKEN = "250 taken"
NOT_NOW = "451 cannot keep the mail"  # 4xx: the sender may try again


class Postbox:
    """Keeps what it is given; its one method is the hook that aiosmtpd calls for each mail."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = {(mail.to, mail.message_id) for mail in mailbox.read(file)}

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        """Keep the mail, once for each recipient, before it is said to be taken."""
        subject, message_id = _headers(envelope.original_content or b"")
        try:
            for to in envelope.rcpt_tos:
                dropped = (to, message_id) in self._known
                mailbox.append(self._file, Mail(to, subject, message_id, dropped))
                if message_id:
                    self._known.add((to, message_id))
        except OSError as error:
            return f"{NOT_NOW}: {error}"
        return TAKEN


def _headers(content: bytes) -> tuple[str, str]:
    """Return a mail's subject and Message-ID; empty where it has none."""
    headers = email.message_from_bytes(content, policy=email.policy.default)
    # As it was sent: where one is malformed, email raises IndexError and others.
    ids = (str(value) for name, value in headers.raw_items() if name.lower() == "message-id")
    return str(headers["Subject"] or ""), "".join(next(ids, "").split())


async def serve(file: Path, port: int) -> None:
    """Answer on loopback until the process ends."""
    postbox, loop = Postbox(file), asyncio.get_running_loop()
    server = await loop.create_server(
        # With a name of its own it does not ask the network for the machine's.
        lambda: SMTP(postbox, hostname="localhost", loop=loop),
        LOOPBACK,
        port,
    )
    print(f"mail server listens on {LOOPBACK}, port {port}", flush=True)  # noqa: T201 - a program
    await server.serve_forever()


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m jobq.lab.mail", description=__doc__)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    words = parser.parse_args()
    try:
        asyncio.run(serve(words.file, words.port))
    except OSError as error:
        parser.exit(1, f"no mail server: {error}\n")


if __name__ == "__main__":
    die_with_parent(sys.stdin)
    main()
