"""The write-ahead log: how large it is, and who keeps it from being emptied.

SQLite writes each change to the log, moves it into the file at a checkpoint, and begins the log
anew when no reader needs it any more. One reader that never ends, and it grows without bound
(sqlite.org/wal.html, section 6).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jobq.doctor.database import Look
from jobq.doctor.finding import Finding, in_bytes, ok, warn
from jobq.doctor.holders import Hold, Holder, constant

LARGE = 64_000_000  # bytes; a checkpoint is due at 4 million


class Checkpoint(NamedTuple):
    """How far a checkpoint came that waits for nobody."""

    left: int  # pages of the log that some reader still keeps there
    moved: int  # pages that are in the file


def checkpoint(look: Look) -> Checkpoint:
    """Carry out a checkpoint, as any commit does now and then."""
    busy, pages, moved = look.ask("checkpoint")[0]
    return Checkpoint(0, 0) if busy or pages < 0 else Checkpoint(pages - moved, moved)


def size(path: Path) -> int:
    """Return the bytes of the log, which lies beside the file that a link leads to."""
    try:
        return Path(f"{path.resolve()}-wal").stat().st_size
    except OSError:
        return 0


def log(
    checkpoints: Sequence[Checkpoint], looks: Sequence[Sequence[Holder]], size: int
) -> list[Finding]:
    """Check that the log can be emptied; whoever reads meanwhile is in the looks.

    A reader is in the way if checkpoint after checkpoint comes to the same place before the end.
    """
    if min(c.left for c in checkpoints) == 0 or len({c.moved for c in checkpoints}) > 1:
        later = ", given back when the last process ends" if size > LARGE else ""
        return [ok(f"the log (WAL) has {in_bytes(size)}{later}")]
    readers = [h for h in constant(looks, Hold.READS) if Hold.WRITES not in h.hold]
    return [
        warn(
            f"{reader} reads in one transaction all the while: the log (WAL, {in_bytes(size)}) "
            "grows and cannot be emptied",
            f"end that transaction, or the process: `kill {reader.pid}`",
        )
        for reader in readers
    ] or [
        warn(
            f"some process reads in one transaction all the while: the log (WAL, {in_bytes(size)}) "
            "grows and cannot be emptied",
            "end it; it is one of " + (", ".join(map(str, looks[-1])) or "another user's"),
        )
    ]
