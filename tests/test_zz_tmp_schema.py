"""The running server against its own description: what it says of itself is what it does.

The streams are left out, because they do not end: test_api_events.py has them.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import Uvicorn

TOKEN = "a-token-of-operators"  # noqa: S105 - it guards nothing
SETTINGS = """
hooks = "hooks.py"
request-timeout = 30
[checks.positive_data_acceptance] # answers to what the description allows
expected-statuses = ["2xx", "304", "404", "409"]
[checks.negative_data_rejection] # and to what it does not
expected-statuses = ["4xx"]
[[operations]] # NUL is refused anywhere in a payload, and no schema can say that either
include-name = "POST /jobs"
generation.allow-x00 = false
"""
HOOKS = """
import itertools
import schemathesis

number = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    headers = case.headers
    if case.meta.generation.mode.is_positive and "Idempotency-Key" in headers:
        # A key that is used again with another body is refused, and no schema can say that.
        headers["Idempotency-Key"] = f"key-{next(number)}"
    if "Prefer" in headers:
        headers["Prefer"] = headers["Prefer"].replace("wait=20", "wait=0")
"""


def test_the_server_is_as_it_describes_itself(
    tmp_path: Path, start_uvicorn: Callable[..., "Uvicorn"]
) -> None:
    """Whatever is sent, allowed or not: the answer is a described one, and never a 500."""
    (tmp_path / "schemathesis.toml").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "hooks.py").write_text(HOOKS, encoding="utf-8")
    server = start_uvicorn(JOBQ_TOKEN=TOKEN)
    with server.client() as client:
        url = f"{client.base_url}/openapi.json"
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", url),
            *("--exclude-path-regex", "/events$", "--header", f"Authorization: Bearer {TOKEN}"),
            *("--max-examples", "120", "--seed", "77", "--no-color"),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "13 selected / 15 total" in run.stdout
