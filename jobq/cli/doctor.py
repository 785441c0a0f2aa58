"""`jobq doctor`: what is wrong, and the mend."""

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from jobq.cli.lines import WIDTH, print_json
from jobq.cli.options import AsJson, Url
from jobq.errors import InvalidInput, SettingsInvalid
from jobq.oneline import one_line
from jobq.settings import load_settings
from jobq.store.addresses import engine_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobq.doctor import Finding

HANG = " " * 5  # a line that is broken goes on behind the grade


def doctor(*, url: Url = None, as_json: AsJson = False) -> None:
    """Look for what keeps the queue from working, and tell the mend.

    Nothing is changed, and workers may run meanwhile. The exit code is 1 if any line says fail.
    """
    # Who looks into Jupyter and processes takes a while to import; other commands do not wait.
    from jobq.doctor import Grade  # noqa: PLC0415 - see the line above

    found = []
    for finding in _examined(url):
        found.append(finding)
        if not as_json:
            typer.echo(_wrapped(finding))
    if as_json:
        print_json([asdict(finding) for finding in found])
    if any(finding.grade is Grade.FAIL for finding in found):
        raise typer.Exit(1)


def _examined(url: str | None) -> "Iterator[Finding]":
    """Yield all findings; with faulty settings, these alone."""
    from jobq.doctor import Finding, Grade, examine_machine, examine_store  # noqa: PLC0415 - above
    from jobq.lab.folders import orphans  # noqa: PLC0415 - see above

    try:
        settings = load_settings(url=url)
        engine_of(settings.url)
    except SettingsInvalid as error:
        yield from (Finding(Grade.FAIL, line) for line in str(error).splitlines())
        yield Finding(Grade.WARN, "nothing else was looked at", "mend the settings first")
        return
    except InvalidInput as error:
        yield Finding(Grade.FAIL, str(error))
        return
    yield from examine_machine(settings.host, settings.port, sorted(orphans()))
    yield from examine_store(settings.url)


def _wrapped(finding: "Finding") -> str:
    """Return the finding in lines that the terminal need not break; a command is kept whole."""
    line = one_line(str(finding))
    return textwrap.fill(
        line, WIDTH, subsequent_indent=HANG, break_long_words=False, break_on_hyphens=False
    )
