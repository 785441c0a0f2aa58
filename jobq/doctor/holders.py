"""Which processes have a store open, and what they hold of it.

On Linux the kernel tells of each open file which locks are held through it. SQLite's are on bytes
of the file -shm: the writer's on byte 120, those of readers on bytes 123 to 127
(sqlite.org/walformat.html, section 2.3.1). Elsewhere it is only known who has the files open.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Flag
from pathlib import Path

import psutil

from jobq.doctor.finding import Finding, fail, ok, warn
from jobq.oneline import one_line, without_password

COMMAND = 40  # characters of a command that a line shows
WRITER_BYTE, FIRST_READER_BYTE, LAST_READER_BYTE = 120, 123, 127
# As in `lock:	1: POSIX  ADVISORY  READ 4520 fe:00:2146734 123 123`.
LOCK = re.compile(r"lock:\s+\d+: (?P<kind>\w+) .* (?P<first>\d+) (?P<last>\d+|EOF)$", re.MULTILINE)


class Hold(Flag):
    """What a process holds of a store."""

    NOTHING = 0
    WRITES = 1  # its turn to write, or SQLite's write lock
    READS = 2  # a snapshot, which the log cannot be emptied behind


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a store open."""

    pid: int
    command: str
    stopped: bool  # by SIGSTOP or a debugger
    hold: Hold

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})"


def holders(path: Path) -> list[Holder]:
    """Return the processes that have the store open, as far as this user may know; not this one."""
    file, here = path.resolve(), path.parent.resolve() / path.name
    files = {str(file): "", **{f"{file}{end}": end for end in ("-wal", "-shm", "-lock")}}
    files[f"{here}-lock"] = "-lock"  # beside the link, where the path is one
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone meanwhile, or another user's
            opened = [o for o in process.open_files() if o.path in files]
            if opened and process.pid != os.getpid():
                hold = Hold.NOTHING
                for one in opened:
                    hold |= _held(process.pid, one.fd, files[one.path])
                stopped = process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
                found.append(Holder(process.pid, command(process), stopped, hold))
    return found


def command(process: psutil.Process) -> str:
    """Return what a process runs, in a few words: `python -m jobq worker`. Raises psutil.Error.

    A password in its words is not told.
    """
    program, *rest = process.cmdline() or [process.name()]
    script = [Path(word).name for word in rest[:1]]
    shown = map(without_password, [Path(program).name, *script, *rest[1:]])
    words = one_line(" ".join(shown))
    return words if len(words) <= COMMAND else f"{words[: COMMAND - 1]}…"


def constant(looks: Sequence[Iterable[Holder]], hold: Hold) -> list[Holder]:
    """Return, as it was at last, each holder that had the hold at every look."""
    pids = [{holder.pid for holder in look if hold in holder.hold} for look in looks]
    always = set.intersection(*pids)
    return [holder for holder in looks[-1] if holder.pid in always]


def writers(looks: Sequence[Sequence[Holder]], *, still: bool) -> list[Finding]:
    """Check that nobody keeps the others from writing.

    `still` says that nothing was committed between the looks: a busy worker that was met in its
    turn each time has moved on in between.
    """
    found = []
    for holder in looks[-1]:
        on = f"let it go on: `kill -CONT {holder.pid}`"
        if holder.stopped and Hold.WRITES in holder.hold:
            text = f"{holder} is stopped and holds the write lock, so that nobody can write"
            found.append(fail(text, f"{on}, or end it: `kill -KILL {holder.pid}`"))
        elif holder.stopped:
            found.append(warn(f"{holder} is stopped, and all that it does", on))
        elif still and holder in constant(looks, Hold.WRITES):
            text = f"{holder} has held the write lock all the while"
            found.append(warn(text, "see what it does: a transaction that writes is to be short"))
    return found or [ok("nobody keeps the others from writing")]


def users(look: Sequence[Holder]) -> Finding:
    """Tell who has the store open."""
    if not look:
        return ok("no other process that you may see has the store open")
    pids = ", ".join(str(holder.pid) for holder in look)
    return ok(f"the store is open in {len(look)} other process(es): {pids}")


def _held(pid: int, descriptor: int, end: str) -> Hold:
    """Return what a process holds through one open file."""
    try:
        text = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(encoding="ascii")
    except (OSError, ValueError):
        return Hold.NOTHING
    hold = Hold.NOTHING
    for lock in LOCK.finditer(text):
        if end == "-lock" and lock["kind"] == "FLOCK":
            hold |= Hold.WRITES
        elif end == "-shm" and lock["last"] != "EOF":
            first, last = int(lock["first"]), int(lock["last"])
            if first <= WRITER_BYTE <= last:
                hold |= Hold.WRITES
            if first <= LAST_READER_BYTE and last >= FIRST_READER_BYTE:
                hold |= Hold.READS
    return hold
