"""Settings from the environment and a `.env` file. Only entry points read this module.

An override (a command's option) comes before the environment, the environment before `.env` in
the current folder, and `.env` before the default. Every setting is JOBQ_ and its field's name in
capitals; the lease is read from LEASE_SECONDS too, and JOBQ_LEASE_SECONDS comes before that.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    SettingsConfigDict,
)

from jobq.errors import SettingsInvalid
from jobq.retry import RetryPolicy

PREFIX = "JOBQ_"
UNPREFIXED = {"lease_seconds": ["LEASE_SECONDS"]}  # further names
NO_SETTINGS: tuple[str, ...] = ()  # names with the prefix that something else reads
YEAR = 31_536_000  # in seconds

# A description is the rule in words; `load_settings` puts it into the message.
Text = Annotated[str, Field(min_length=1, description="some text")]
Seconds = Annotated[
    float,
    Field(
        ge=0.001,
        le=86_400,
        allow_inf_nan=False,
        description="a number of seconds from 0.001 to 86,400 (a day)",
    ),
]
Wait = Annotated[
    float,
    Field(
        ge=0,
        le=YEAR,
        allow_inf_nan=False,
        description=f"a number of seconds from 0 to {YEAR:,} (a year)",
    ),
]

Places = list[tuple[str, set[str]]]  # what is written where, first come first

_RETRY = RetryPolicy()


def _variables(field: str) -> list[str]:
    """Return the names that a setting is read from, first come first."""
    return [PREFIX + field.upper(), *UNPREFIXED.get(field, [])]


class Settings(BaseSettings):
    """What a user can choose; the defaults are those of the classes that use the values."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=PREFIX,
        env_file=".env",
        extra="ignore",  # `.env` serves other programs too
        validate_by_name=True,  # an override of the lease comes by the field's name
    )

    url: Text = "sqlite:///jobs.db"
    synchronous: Literal["FULL", "NORMAL"] = Field("FULL", description="FULL or NORMAL")
    host: Text = "127.0.0.1"
    port: int = Field(8718, ge=1, le=65_535, description="a port from 1 to 65,535")

    lease_seconds: Seconds = Field(
        30.0, validation_alias=AliasChoices(*_variables("lease_seconds"))
    )
    grace_seconds: Seconds = 30.0
    poll_seconds: Seconds = 1.0

    max_attempts: int = Field(
        3, ge=1, le=1_000_000, description="a whole number from 1 to 1,000,000"
    )
    retry_base: Wait = _RETRY.base
    retry_factor: float = Field(
        _RETRY.factor, ge=1, allow_inf_nan=False, description="a number of at least 1"
    )
    retry_cap: float = Field(
        _RETRY.cap,
        le=YEAR,
        allow_inf_nan=False,
        description=f"a number of seconds from {PREFIX}RETRY_BASE to {YEAR:,} (a year)",
    )
    retry_jitter: Literal["none", "full"] = Field(_RETRY.jitter, description="none or full")

    @field_validator("retry_cap")
    @classmethod
    def _not_below_the_base(cls, cap: float, info: ValidationInfo) -> float:
        """Hold two fields against one another; a base that is no number has its own fault."""
        if cap < info.data.get("retry_base", cap):
            raise ValueError("the cap is below the base")
        return cap

    def retry_policy(self) -> RetryPolicy:
        """Return the four retry settings as one value."""
        return RetryPolicy(
            base=self.retry_base,
            factor=self.retry_factor,
            cap=self.retry_cap,
            jitter=self.retry_jitter,
        )


def load_settings(**overrides: Any) -> Settings:
    """Return the settings; an override of None counts as not given.

    Raises SettingsInvalid naming every fault, one a line: the name as it was written, the value,
    the rule, the default. A variable that begins like a setting and is none is a fault too.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    if not overrides.keys() <= Settings.model_fields.keys():
        raise TypeError(f"{sorted(overrides)}: settings are {', '.join(Settings.model_fields)}")
    places = _places()
    faults = [fault for place, names in places for fault in _unknown(names, place)]
    try:
        settings = Settings(**given)
    except ValidationError as error:
        faults += [_fault(e, given, places) for e in error.errors()]
        raise SettingsInvalid("\n".join(faults)) from None
    if faults:
        raise SettingsInvalid("\n".join(faults))
    return settings


def _places() -> Places:
    """Return the names of all variables; where they are written is a suffix for the message."""
    try:
        in_file = DotEnvSettingsSource(Settings).env_vars
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f".env cannot be read: {error}; save it as UTF-8 text") from error
    in_environment = EnvSettingsSource(Settings).env_vars
    return [("", {n.upper() for n in in_environment}), (" in .env", {n.upper() for n in in_file})]


def _unknown(names: set[str], place: str) -> Iterator[str]:
    """Yield a fault for each name that looks like a setting's and is none."""
    known = {
        name: name.removeprefix(PREFIX) for f in Settings.model_fields for name in _variables(f)
    }
    for name in sorted(names - known.keys() - set(NO_SETTINGS)):
        if name.startswith(PREFIX):
            # Compared without the prefix, which would make everything look alike.
            short = name.removeprefix(PREFIX)
            near = [k for k in known.values() if k.startswith(short)]
            near += get_close_matches(short, known.values(), n=1)
            use = PREFIX + near[0] if near else f"one of {', '.join(known)}"
            yield f"{name}{place} is no setting: use {use}, or unset it"


def _fault(error: ErrorDetails, given: dict[str, Any], places: Places) -> str:
    """Return a fault in words."""
    # pydantic names the field, or the first of the variables that it is read from.
    field = str(error["loc"][0]).removeprefix(PREFIX).lower()
    variables = _variables(field)
    written = [n + place for place, names in places for n in variables if n in names]
    name = field if field in given else [*written, variables[0]][0]
    about = Settings.model_fields[field]
    return f"{name} is {error['input']!r}: use {about.description}; the default is {about.default}"
