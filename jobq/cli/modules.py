"""The kinds of job that a command knows: those that come with jobq, and those of `--import`."""

import importlib
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

import jobq.kinds  # noqa: F401 - so these are registered
from jobq.errors import InvalidInput
from jobq.handlers import builtin


def import_modules(modules: Iterable[str]) -> None:
    """Import modules from the current folder or the environment, as `python -m` would.

    Their handlers are registered then. Raises InvalidInput for whatever goes wrong in one.
    """
    for module in modules:
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a user's module raises
            raise InvalidInput(
                f"--import {module}: {type(error).__name__}: {error}; "
                "name the module as Python does: tasks stands for tasks.py in this folder"
            ) from error


def check_known(kinds: Collection[str], mend: str) -> None:
    """Raise InvalidInput for a kind without a handler here."""
    for kind in kinds:
        if builtin.get(kind) is None:
            raise InvalidInput(f"kind {kind!r} is none of {', '.join(builtin.kinds())}; {mend}")
