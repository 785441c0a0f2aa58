"""The store's file and its disk."""

import os
import shutil
import tempfile
from pathlib import Path

from jobq.doctor.finding import Finding, fail, in_bytes, ok, warn
from jobq.oneline import in_units
from jobq.store.sqlitefile import check_file

LITTLE, TOO_LITTLE = 200_000_000, 20_000_000  # bytes free
LATE_SECONDS = 2.0  # that two clocks may differ


def file(path: Path) -> Finding:
    """Check that the file is there and can be used. Raises what `check_file` raises."""
    check_file(path)
    if not path.exists():
        return warn(
            f"there is no store at {path} yet",
            "`jobq enqueue` makes one; if yours lies elsewhere, name it with --url or JOBQ_URL",
        )
    if not path.is_file():
        return fail(f"{path} is no ordinary file", "name another with --url or JOBQ_URL")
    for needed, mode, name in ((path, os.R_OK | os.W_OK, "file"), (path.parent, os.W_OK, "folder")):
        if not os.access(needed, mode):
            return fail(f"the {name} {needed} cannot be written to", f"chmod u+rw {needed}")
    return ok(f"{path} has {in_bytes(path.stat().st_size)} and lies on a local disk")


def space(folder: Path, *, little: int = LITTLE, too_little: int = TOO_LITTLE) -> Finding:
    """Check that there is room for what will be written."""
    free = shutil.disk_usage(folder).free
    if free >= little:
        return ok(f"{in_bytes(free)} are free on its disk")
    grade = warn if free >= too_little else fail
    return grade(
        f"{in_bytes(free)} are free on its disk", "free some: a full disk takes no new jobs"
    )


def clock(folder: Path, now: float) -> Finding:
    """Check the time that the file system gives to a new file, of which nothing is left."""
    with tempfile.TemporaryFile(dir=folder) as fresh:
        ahead = os.fstat(fresh.fileno()).st_mtime - now
    if abs(ahead) > LATE_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        return warn(
            f"the file system's clock is {in_units(abs(ahead))} {way} this machine's",
            "set one by the other: leases and waits go by the clock",
        )
    return ok("the clock agrees with the file system's")
