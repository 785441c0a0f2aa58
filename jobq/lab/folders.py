"""A temporary folder for each lab, and the removal of those that a killed process left."""

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil


def fresh_folder() -> Path:
    """Return a new, empty folder that carries this process's id in its name."""
    remove_orphans()
    return Path(tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-"))


def remove_orphans() -> None:
    """Remove the folders of labs whose process is gone, such as a killed notebook kernel's."""
    for folder in orphans():
        shutil.rmtree(folder, ignore_errors=True)  # another user's, perhaps


def orphans() -> Iterator[Path]:
    """Yield the folders of labs whose process is gone.

    A process id means something on one machine only, and the folder for temporary files may be
    shared by several (containers, network disks): the folder's name carries the machine's too.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
        owner = re.match(r"(\d+)-", folder.name.removeprefix(_prefix()))
        if owner and not psutil.pid_exists(int(owner[1])):
            yield folder


def _prefix() -> str:
    return f"jobq-lab-{re.sub(r'[^A-Za-z0-9.]', '-', platform.node())}-"
