"""What a lab's mail server was given: a file with one line of JSON for each mail."""

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail to one recipient."""

    to: str
    subject: str
    message_id: str
    dropped: bool  # the recipient had been given one with this Message-ID before


def append(file: Path, mail: Mail) -> None:
    """Add a mail to the file. Raises OSError if not all of it could be written.

    Each line begins with its line break: one that a full disk or a kill cut short does not spoil
    the next.
    """
    line = f"\n{json.dumps(asdict(mail))}".encode()
    with file.open("ab", buffering=0) as box:
        if box.write(line) < len(line):
            raise OSError(f"{file.name}: only a part could be written")


def read(file: Path) -> list[Mail]:
    """Return every mail in the file, the first one first; none if there is no file yet."""
    mails = []
    with suppress(FileNotFoundError):
        for line in file.read_text(encoding="ascii", errors="replace").splitlines():
            with suppress(json.JSONDecodeError):  # cut short: its sender was told so, or waits
                mails.append(Mail(**json.loads(line)))
    return mails


def got_twice(mails: Iterable[Mail]) -> list[str]:
    """Return who was given a mail of the same subject more than once."""
    got = Counter((mail.to, mail.subject) for mail in mails if not mail.dropped)
    return sorted({to for (to, _), count in got.items() if count > 1})
