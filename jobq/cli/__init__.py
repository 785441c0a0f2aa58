"""The command line: `jobq serve`, `worker`, `enqueue`, `show`, `list`, `watch`, …, `lab`, `pg`.

Exit codes: 0 it is done, 1 it could not be done (so too for a watched job that failed or was
cancelled), 2 it was asked for wrongly, 130 interrupted (Ctrl-C), 141 whoever read the output went
away, 143 ended by SIGTERM. An error is one line on stderr.
"""

import io
import logging
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from jobq.cli import doctor, jobs, lessons, operating, pg, processes, settings, show, stats, watch
from jobq.errors import InvalidInput, JobqError, SettingsInvalid

# As a shell tells of a program that SIGINT or SIGPIPE ended.
INTERRUPTED, READER_GONE = 128 + 2, 128 + 13


class Commands(TyperGroup):
    """The commands, with an end to every error that they raise."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn what it raises into a line and an exit code."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where the error of a closed pipe can still be told
        except (typer.Exit, typer.TyperException):  # typer's own; it sees to them
            raise
        except typer.Abort as error:  # at a question
            if isinstance(error.__context__, KeyboardInterrupt):
                typer.echo("\njobq: interrupted", err=True)
                raise typer.Exit(INTERRUPTED) from None
            typer.echo("\njobq: nobody answers, so nothing was done; --yes says yes", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("jobq: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # as in `jobq list | head -1`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
            raise typer.Exit(READER_GONE) from None
        except Exception as error:
            if ctx.params["traceback"]:
                raise
            for line in _in_words(error).splitlines():  # faults in settings are told all at once
                typer.echo(f"jobq: {line}", err=True)
            raise typer.Exit(_exit_code(error)) from None
        return result


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A durable job queue: a job lives in the store; a worker runs it; the api answers for it.",
)
demo = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
server = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command()(processes.serve)
app.command()(processes.worker)
app.command()(jobs.enqueue)
app.command()(show.show)
app.command(name="list")(jobs.list_jobs)
app.command()(watch.watch)
app.command()(stats.stats)
app.command()(operating.retry)
app.command()(operating.cancel)
app.command()(operating.prune)
app.command()(settings.settings)
app.command()(doctor.doctor)
app.add_typer(demo, name="demo", help="Watch a failure and the recovery, or many workers.")
demo.command()(lessons.crash)
demo.command()(lessons.scaling)
app.command()(lessons.lab)
app.add_typer(server, name="pg", help="Run a PostgreSQL server of your own.")
server.command()(pg.start)
server.command()(pg.stop)
server.command()(pg.url)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jobq {version('jobq')}")
        raise typer.Exit


@app.callback()
def _jobq(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback", help="Where an error came from: jobq's own, or a handler's in a worker."
        ),
    ] = False,
) -> None:
    if traceback:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("jobq").setLevel(logging.DEBUG)


def main() -> None:
    """Run the command that the arguments of this process name, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a letter shows "?"
            stream.reconfigure(errors="replace")
    app(prog_name="jobq")


def _in_words(error: Exception) -> str:
    if isinstance(error, JobqError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return (
        f"a fault of jobq's own, {type(error).__name__}: {error}; "
        "`jobq --traceback …` shows where it is"
    )


def _exit_code(error: Exception) -> int:
    return 2 if isinstance(error, InvalidInput | SettingsInvalid) else 1
