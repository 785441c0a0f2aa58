"""What the API is sent, and what it answers with."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from jobq.job import Outcome, Status
from jobq.store.requests import MAX_ATTEMPTS, MAX_PRIORITY
from jobq.strictjson import MAX_NAME

YEAR = 31_536_000  # in seconds
RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
LAST_SECOND = 253_402_300_799  # of the year 9999, which a date cannot go beyond


def _from_seconds(value: Any) -> Any:
    """Return a time of the store as a date: pydantic takes large numbers for milliseconds.

    One that no date can be, because another program wrote it, must not spoil a page of jobs.
    """
    if isinstance(value, float):
        return datetime.fromtimestamp(max(0.0, min(value, LAST_SECOND)), UTC)
    return value


Time = Annotated[
    datetime,
    BeforeValidator(_from_seconds),
    PlainSerializer(lambda time: f"{time:%Y-%m-%dT%H:%M:%S.%fZ}"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


# The store's 0 means at once.
RunAfter = Annotated[Time | None, BeforeValidator(lambda value: value or None)]


def refuse_boolean(value: Any) -> Any:
    """Return a value that is no boolean, which Python counts among the numbers."""
    if isinstance(value, bool):
        raise PydanticCustomError("boolean", "use a number")
    return value


class ReportRequest(BaseModel):
    """What the report is about, and how the work goes."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"year": 2026}]})

    year: int = Field(ge=2000, le=2100)
    fail_times: int = Field(0, ge=0, le=5, description="As many attempts fail first, on purpose.")
    slow_seconds: float = Field(1.0, ge=0, le=60, description="How long the slow part takes.")

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean(cls, value: Any) -> Any:
        return refuse_boolean(value)


class JobRequest(BaseModel):
    """A job of any kind."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"kind": "nap", "payload": {"seconds": 2}}]},
    )

    kind: str = Field(min_length=1, max_length=MAX_NAME, description="What to do.")
    payload: dict[str, Any] = Field({}, description="With what; each kind has rules of its own.")
    priority: int = Field(
        0, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="A step is worth a minute of waiting."
    )
    max_attempts: int | None = Field(None, ge=1, le=MAX_ATTEMPTS)
    run_after: AwareDatetime | None = Field(None, description="The earliest time, RFC 3339.")
    delay_seconds: float = Field(0.0, ge=0, le=YEAR, description="Or so many seconds from now.")

    @field_validator("priority", "max_attempts", "delay_seconds", mode="before")
    @classmethod
    def _no_boolean(cls, value: Any) -> Any:
        return refuse_boolean(value)

    @field_validator("run_after", mode="before")
    @classmethod
    def _as_rfc_3339_has_it(cls, value: Any) -> Any:
        """Refuse what pydantic takes besides, such as seconds since 1970, or milliseconds."""
        if value is None or (isinstance(value, str) and RFC_3339.fullmatch(value)):
            return value
        raise PydanticCustomError("time", "use a time as in RFC 3339: 2026-12-24T18:00:00Z")

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if {"run_after", "delay_seconds"} <= self.model_fields_set:
            raise PydanticCustomError("both", "use run_after or delay_seconds, not both")
        return self


class JobAccepted(BaseModel):
    """The job that was asked for."""

    job_id: str
    status_url: str = Field(description="Where to poll: the same as the header Location.")
    created: bool = Field(description="False if the idempotency key was used before.")


class ProgressState(BaseModel):
    """How far the work has come, as its handler tells."""

    model_config = ConfigDict(from_attributes=True)

    done: float
    total: float | None = Field(description="Null where nobody knows.")
    message: str


class JobState(BaseModel):
    """How a job stands, for who asked for it."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    status: Status
    attempts: int = Field(description="Attempts begun so far, given-back ones not counted.")
    result: Any = Field(description="What the work returned, once the job is done.")
    error: str | None = Field(description="Of the last attempt that failed, if any did.")
    progress: ProgressState | None = Field(
        None, exclude_if=lambda told: told is None, description="Left out if none was told."
    )
    cancel_requested: bool = Field(
        default=False,
        exclude_if=lambda requested: not requested,
        description="True while it runs and is to be cancelled, else left out.",
    )


class JobDetails(JobState):
    """How a job stands, for operators; times are RFC 3339, in UTC, with microseconds."""

    kind: str
    max_attempts: int
    priority: int
    worker: str | None = Field(description="Who has it now.")
    created_at: Time
    run_after: RunAfter = Field(description="The earliest next attempt; null means at once.")
    started_at: Time | None = Field(description="Of the last attempt.")
    finished_at: Time | None


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobDetails]
    next: str | None = Field(description="The URL of the page after this one, if there is one.")


class Retried(BaseModel):
    """How many jobs were queued again."""

    retried: int


class Deleted(BaseModel):
    """How many jobs were deleted."""

    deleted: int


class QueueStats(BaseModel):
    """How many jobs stand where."""

    model_config = ConfigDict(from_attributes=True)

    counts: dict[Status, int]
    oldest_waiting_seconds: float | None = Field(description="Null if no job is queued.")
    finished_last_minute: int = Field(description="Jobs that became done, failed or cancelled.")
    kinds: dict[str, dict[Status, int]] = Field(description="The same counts for each kind.")


class Health(BaseModel):
    """Whether the server is well."""

    status: Literal["ok"]


class AttemptState(BaseModel):
    """One try at a job by one worker; times are RFC 3339, in UTC, with microseconds."""

    model_config = ConfigDict(from_attributes=True)

    number: int
    worker: str
    started_at: Time
    ended_at: Time | None = Field(description="Null while it runs.")
    outcome: Outcome | None = Field(description="Null while it runs.")
    error: str | None


class Attempts(BaseModel):
    """The attempts at a job, first one first."""

    attempts: list[AttemptState]
