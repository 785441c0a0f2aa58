"""The end of a server whose owner has died."""

import subprocess
import sys
from pathlib import Path

# A shell that waits for the end of its input, and then crashes the server of a folder. The number
# in the folder may be another process's by then: the command line says whose it is.
GUARDIAN = """trap '' HUP INT TERM; read -r _
read -r pid < "$1/postmaster.pid" || exit
words=$(tr '\\0' ' ' < "/proc/$pid/cmdline" || ps -o args= -p "$pid")
case "$words " in *" -D $1 "*) kill -s QUIT "$pid" ;; esac
"""


class Guardian:
    """Stops the server of a data folder when this process has died, however it died.

    This process alone holds the other end of the guardian's input, which the system closes.
    Windows has no shell for it: there, a server outlives an owner that is killed.
    """

    def __init__(self, data: Path) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        if sys.platform != "win32":
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", GUARDIAN, "jobq-guardian", data],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """End it; the server is gone, or left to itself."""
        if self._shell is not None:
            self._shell.kill()
            self._shell.communicate()
