"""JupyterLab on the working copy of the course."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from jobq.errors import LabError

CONFIG = Path(".jupyter") / "labconfig"  # in the working copy
QUIET = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}


def launch(folder: Path, *, port: int | None = None, browser: bool = True) -> int:
    """Run JupyterLab in the folder until it ends, and return its exit code.

    It listens on loopback alone and asks for its token. It fetches nothing from the network and
    does not ask to; the learner's own settings hold otherwise. Ctrl-C or SIGTERM ends it. To be
    called in the main thread. Raises LabError if JupyterLab is not installed.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise LabError("the notebooks need JupyterLab: pip install 'jobq[course]'")
    words = ["-m", "jupyterlab", "-y", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={folder}"]
    words += ["--ServerApp.allow_root=True"]  # as in a container; who may use it is no other
    words += ["--LabApp.extension_manager=readonly"]  # one that does not ask the network
    words += [] if port is None else [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    words += [] if browser else ["--no-browser"]
    with subprocess.Popen([sys.executable, *words], env=_environment(folder)) as server:
        # A terminal sends Ctrl-C to JupyterLab too, which ends by itself; SIGTERM is passed on.
        before = [
            (signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN)),
            (signal.SIGTERM, signal.signal(signal.SIGTERM, lambda *_: server.terminate())),
        ]
        try:
            return server.wait()
        finally:
            for number, handler in before:
                signal.signal(number, handler)


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment in which Jupyter also reads the folder's configuration."""
    config = folder / CONFIG
    config.mkdir(parents=True, exist_ok=True)
    (config / "page_config.json").write_text(json.dumps(QUIET), encoding="utf-8")
    paths = [str(config.parent), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    return {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}
