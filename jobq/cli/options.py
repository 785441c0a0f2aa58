"""The options of the commands; where a setting stands behind one, its default is the setting's."""

from pathlib import Path
from typing import Annotated

import typer

from jobq.job import Status

Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The store: sqlite:///jobs.db, or postgresql://user@host/database. Other users of "
        "the machine can see a password here, but none in JOBQ_URL.  "
        "[env: JOBQ_URL; default: sqlite:///jobs.db]",
    ),
]
Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Where to listen.  [env: JOBQ_HOST; default: 127.0.0.1]"),
]
Port = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Port to listen on.  [env: JOBQ_PORT; default: 8718]"),
]
Lease = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How long a job is held without a heartbeat.  "
        "[env: JOBQ_LEASE_SECONDS, LEASE_SECONDS; default: 30]",
    ),
]
Grace = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How long the current job may go on after a stop.  "
        "[env: JOBQ_GRACE_SECONDS; default: 30]",
    ),
]
Poll = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="The longest wait between two looks for work.  [env: JOBQ_POLL_SECONDS; default: 1]",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="A module with handlers; may be repeated."),
]
Heartbeat = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How often the lease is extended.  "
        "[env: JOBQ_HEARTBEAT_SECONDS; default: a third of the lease]",
    ),
]
Isolate = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        show_default=False,
        help="Run each job in a process of its own: one that hangs, holds Python's lock or dies "
        "takes nothing with it.  [env: JOBQ_ISOLATE; default: no]",
    ),
]
IsolatedKinds = Annotated[
    list[str] | None,
    typer.Option(
        "--isolate-kind", metavar="KIND", help="Run the jobs of this kind so; may be repeated."
    ),
]
UntilIdle = Annotated[
    bool, typer.Option("--until-idle", help="Stop when no job is queued or running.")
]
Owned = Annotated[bool, typer.Option("--owned", hidden=True)]  # by a lab: see jobq.owned

Kind = Annotated[str, typer.Argument(metavar="KIND", help="What to do, such as sales_report.")]
Payload = Annotated[
    str,
    typer.Argument(metavar="PAYLOAD", help="With what: a JSON object, such as '{\"year\": 2026}'."),
]
Key = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Idempotency key: used again, it gives the same job."),
]
MaxAttempts = Annotated[
    int | None,
    typer.Option(metavar="N", help="[env: JOBQ_MAX_ATTEMPTS; default: 3]"),
]
Wait = Annotated[
    float, typer.Option("--in", metavar="SECONDS", help="Wait before the first attempt.")
]
Priority = Annotated[
    int,
    typer.Option(metavar="N", help="Higher goes first; a step is worth a minute of waiting."),
]
AnyKind = Annotated[
    bool, typer.Option("--any-kind", help="Take a kind that only your own worker knows.")
]

Id = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id, or its first 4 characters or more.")
]
OfStatus = Annotated[
    Status | None,
    typer.Option(metavar="STATUS", help=f"Only those that are {', '.join(Status)}."),
]
Before = Annotated[
    str | None, typer.Option(metavar="ID", help="Only those older than this job: the next page.")
]
OfKind = Annotated[str | None, typer.Option(metavar="KIND", help="Only those of this kind.")]
Limit = Annotated[int, typer.Option(metavar="N", help="At most so many, up to 1000.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

IdOrAll = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The job's id, or its first 4 characters or more."),
]
All = Annotated[bool, typer.Option("--all", help="Every failed job instead of one.")]
Retriable = Annotated[
    Status | None,
    typer.Option(
        metavar="STATUS", help="With --all: those that are failed (so by default) or cancelled."
    ),
]
RetriedKind = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="With --all: only those of this kind.")
]
Age = Annotated[
    str,
    typer.Option(
        "--older-than",
        metavar="TIME",
        help="Only those that ended longer ago, such as 30s, 10min, 2h or 7d.",
    ),
]
Final = Annotated[
    Status | None,
    typer.Option(metavar="STATUS", help="Only those that are done, failed or cancelled."),
]
Unasked = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]
Watched = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="The job's id, or its first 4 characters or more; without one, the whole queue.",
    ),
]

ServerFolder = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="FOLDER", help="Where the server lives.  [default: one of yours]"
    ),
]
Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Where your copy is.")]
Reset = Annotated[
    bool, typer.Option("--reset", help="Start over: delete your copy, after asking, and make one.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Answer yes to the question of --reset.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address only.")]
LabPort = Annotated[int | None, typer.Option(metavar="PORT", help="Port of JupyterLab.")]
