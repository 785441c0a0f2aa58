"""What the API is sent, and what it answers with."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from jobq.job import Outcome, Status

Time = Annotated[
    datetime,
    PlainSerializer(lambda time: f"{time:%Y-%m-%dT%H:%M:%S.%fZ}"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class ReportRequest(BaseModel):
    """What the report is about, and how the work goes."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"year": 2026}]})

    year: int = Field(ge=2000, le=2100)
    fail_times: int = Field(0, ge=0, le=5, description="As many attempts fail first, on purpose.")
    slow_seconds: float = Field(1.0, ge=0, le=60, description="How long the slow part takes.")

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean(cls, value: Any) -> Any:
        if isinstance(value, bool):  # which Python counts among the numbers
            raise PydanticCustomError("boolean", "use a number")
        return value


class ReportAccepted(BaseModel):
    """The job that makes the report."""

    job_id: str
    status_url: str = Field(description="Where to poll: the same as the header Location.")
    created: bool = Field(description="False if the idempotency key was used before.")


class JobState(BaseModel):
    """How a job stands."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    status: Status
    attempts: int = Field(description="Attempts begun so far, given-back ones not counted.")
    result: Any = Field(description="What the work returned, once the job is done.")
    error: str | None = Field(description="Of the last attempt that failed, if any did.")


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
