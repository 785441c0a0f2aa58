"""`jobq settings`: what holds, and where it came from."""

from collections.abc import Iterator, Sequence

import typer

from jobq.cli.lines import print_json
from jobq.cli.options import AsJson
from jobq.oneline import one_line
from jobq.settings import UNSET, Origin, origins


def settings(*, as_json: AsJson = False) -> None:
    """Print every setting, its value and where it came from.

    An option of a command comes before the environment, the environment before the file .env in
    this folder, and that before the default.
    """
    found = origins()
    if as_json:
        print_json({setting.name: _parts(setting) for setting in found})
    else:
        typer.echo("\n".join(_table(found)))


def _parts(setting: Origin) -> dict[str, object]:
    return {"value": setting.value, "source": setting.source, "variable": setting.variable}


def _table(found: Sequence[Origin]) -> Iterator[str]:
    """Yield a line for each setting; the value is last, for it may be long."""
    rows = [("VARIABLE", "FROM", "VALUE"), *((s.variable, s.source, _value(s)) for s in found)]
    variables, sources = (max(len(row[n]) for row in rows) + 2 for n in (0, 1))
    for variable, source, value in rows:
        yield f"{variable:{variables}}{source:{sources}}{value}"


def _value(setting: Origin) -> str:
    if setting.value is None or setting.value == ():
        return UNSET[setting.name]
    if isinstance(setting.value, tuple):
        return one_line(", ".join(setting.value))
    if isinstance(setting.value, bool):
        return str(setting.value).lower()
    whole = isinstance(setting.value, float) and setting.value.is_integer()
    return one_line(str(int(setting.value) if whole else setting.value))
