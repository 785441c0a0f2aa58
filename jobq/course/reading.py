"""Show the code that did what was just seen, as it is in this version of jobq."""

import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobq.store.engine import named_statements


def show_source(function: Callable[..., Any]) -> None:
    """Print the source of a function of jobq, under the name of its file."""
    package = sys.modules["jobq"].__file__
    file = Path(inspect.getfile(function))
    print(f"# jobq/{file.relative_to(Path(str(package)).parent).as_posix()}")
    print(textwrap.dedent(inspect.getsource(function)).rstrip())


def show_sql(name: str) -> None:
    """Print a statement of the SQLite store, under the name of its file."""
    print("-- jobq/store/sqlite.sql")
    print(named_statements("sqlite.sql")[name].rstrip())
