"""The kinds of job that come with jobq."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from jobq import mail, sales
from jobq.context import Context
from jobq.errors import Permanent
from jobq.handlers import builtin, handler, read

__all__ = ["builtin"]  # the registry of handlers, with these in it

LONG, STEP = 5.0, 1.0  # seconds: from when on a wait tells its progress, and how often


class _Payload(BaseModel):
    """A payload is taken as it is: no text for numbers, no field that nobody reads."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _whole(cls, value: Any, info: ValidationInfo) -> Any:
        """Take 2026.0 for 2026, which is the same number in JSON (JSON Schema, `integer`)."""
        wanted = cls.model_fields[str(info.field_name)].annotation
        whole = wanted is int and isinstance(value, float) and value.is_integer()
        return int(value) if whole else value


class _SalesReport(_Payload):
    year: int = Field(ge=2000, le=2100)
    fail_times: int = Field(0, ge=0)
    slow_seconds: float = Field(1.0, ge=0, le=86_400)


class _Nap(_Payload):
    seconds: float = Field(ge=0, le=86_400)


class _SendEmails(_Payload):
    to: mail.Addresses
    subject: mail.Line
    # From 1024 on: below are the ports of real mail servers, which would send it into the world.
    smtp_port: int = Field(ge=1_024, le=65_535)
    form: Literal["naive", "idempotent"] = "idempotent"
    seconds_each: float = Field(0.0, ge=0, le=60)


@handler("sales_report", payload=_SalesReport)
def sales_report(payload: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the sales report of a year (jobq.sales), with the worker's name as `by`.

    Payload: `year`, 2000 to 2100; `fail_times`, how many attempts fail first (default 0);
    `slow_seconds`, how long the work is made to take (default 1); one that takes long tells how
    far it is.
    """
    wanted = read(_SalesReport, payload)
    if context.attempt <= wanted.fail_times:
        raise RuntimeError(f"upstream timeout (simulated, attempt {context.attempt})")
    _take(wanted.slow_seconds, context)
    report = sales.report(wanted.year)
    head = {"year": wanted.year, "total_cents": report["total_cents"], "by": context.worker}
    return head | report


@handler("nap", payload=_Nap)
def nap(payload: dict[str, Any], context: Context) -> dict[str, Any]:
    """Sleep for the payload's `seconds`, and say so; a long nap tells how far it is."""
    seconds = read(_Nap, payload).seconds
    _take(seconds, context)
    return {"slept_seconds": seconds}


def _take(seconds: float, context: Context) -> None:
    """Wait; if it takes long, tell again and again how far it is."""
    if seconds < LONG:  # not worth a heartbeat more
        context.sleep(seconds)
        return
    taken = 0.0
    while taken < seconds:
        context.sleep(min(STEP, seconds - taken))
        taken = min(taken + STEP, seconds)
        context.progress(taken, seconds)


@handler("noop")
def noop(_payload: dict[str, Any], _context: Context) -> dict[str, Any]:
    """Do nothing, whatever the payload."""
    return {}


@handler("send_emails", payload=_SendEmails)
def send_emails(payload: dict[str, Any], context: Context) -> dict[str, Any]:
    """Send a mail to each address in `to`, by the mail server on this machine's `smtp_port`.

    Payload: `subject`; `form`, whether a later attempt sends all again (naive) or goes on where
    the last one stopped (idempotent, the default); `seconds_each`, how long a mail is made to take
    (default 0). Returns how many were sent and how many skipped, as an earlier attempt had sent
    them, and who was refused for good, with the reason. Fails for good if everybody was.
    """
    wanted = read(_SendEmails, payload)
    send = _send_always if wanted.form == "naive" else _send_once
    sent, refused = 0, {}
    for n, to in enumerate(wanted.to, 1):
        try:
            sent += send(wanted, n, context)
        except Permanent as error:
            refused[to] = str(error)
        context.progress(n, len(wanted.to), to)
    if len(refused) == len(wanted.to):
        raise Permanent(f"nobody would get this mail; {refused[wanted.to[0]]}")
    return {"sent": sent, "skipped": len(wanted.to) - sent - len(refused), "refused": refused}


def _send_always(wanted: _SendEmails, n: int, context: Context) -> bool:
    """Send the nth mail, whatever an earlier attempt has done. This is the mistake."""
    _send(wanted, n, context, mail.fresh_id())
    return True


def _send_once(wanted: _SendEmails, n: int, context: Context) -> bool:
    """Send the nth mail unless an earlier attempt has noted that it did; return whether it was.

    One that died between sending and noting leads to a second mail, under the same Message-ID,
    which the server drops.
    """
    with context.once(f"mail-{n}") as to_do:
        if to_do:
            _send(wanted, n, context, mail.lasting_id(context.job.id, n))
    return to_do


def _send(wanted: _SendEmails, n: int, context: Context, message_id: str) -> None:
    context.sleep(wanted.seconds_each)
    to, text = wanted.to[n - 1], f"This is mail {n} of {len(wanted.to)}."
    letter = mail.compose(
        to, wanted.subject, text, message_id=message_id, date=context.job.created_at
    )
    mail.deliver(letter, wanted.smtp_port)
