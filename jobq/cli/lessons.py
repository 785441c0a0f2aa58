"""`jobq demo` and `jobq lab`: what the course shows, and where it is done."""

from pathlib import Path
from typing import Annotated

import typer

from jobq.cli.options import Folder, LabPort, NoBrowser, Reset, Yes

Rounds = Annotated[int, typer.Option(min=1, help="Runs of each kind; the best one counts.")]

# The lab loads what experiments need, and no other command waits for that: imported when called.


def crash() -> None:
    """Kill a worker in mid-job; see another one recover it."""
    from jobq.lab import demo  # noqa: PLC0415 - see above

    demo.crash(typer.echo, Path.cwd())


def scaling(*, rounds: Rounds = 1) -> None:
    """See what more workers bring, on either engine.

    1, 2, 4 and 8 of them share jobs that do nothing, one at a time and in batches, and jobs that
    wait, in SQLite and in PostgreSQL. Takes some minutes; leaves scaling.json and scaling.png.
    """
    from jobq.lab import scalingplot  # noqa: PLC0415 - see above

    scalingplot.show_scaling(typer.echo, Path.cwd(), rounds=rounds)


def lab(
    *,
    folder: Folder = Path("jobq-course"),
    reset: Reset = False,
    yes: Yes = False,
    no_browser: NoBrowser = False,
    port: LabPort = None,
) -> None:
    """Open the notebooks in JupyterLab, in a copy of your own.

    Notebooks that you have changed are never overwritten. Ctrl-C ends JupyterLab.
    """
    from jobq.lab import jupyter, workspace  # noqa: PLC0415 - see above

    if reset and not workspace.reset(folder, lambda question: yes or typer.confirm(question)):
        typer.echo("nothing was changed")
        return
    prepared = workspace.prepare(workspace.source_notebooks(), folder)
    typer.echo(f"notebooks: {folder}, {len(prepared.fresh)} as they are in the course")
    if prepared.kept:
        typer.echo(f"changed by you, and left alone: {', '.join(prepared.kept)}")
    raise typer.Exit(jupyter.launch(folder, port=port, browser=not no_browser))
