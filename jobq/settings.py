"""Settings from the environment and a `.env` file. Only entry points read this module.

An override (a command's option) comes before the environment, the environment before `.env` in
the current folder, and `.env` before the default. Every setting is JOBQ_ and its field's name in
capitals; the lease is read from LEASE_SECONDS too, and JOBQ_LEASE_SECONDS comes before that.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AliasChoices,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    NoDecode,
    SettingsConfigDict,
)

from jobq.checks import BEATS_PER_LEASE, outlasts_beats
from jobq.errors import SettingsInvalid
from jobq.oneline import without_password
from jobq.retry import RetryPolicy
from jobq.strictjson import MAX_BYTES

PREFIX = "JOBQ_"
UNPREFIXED = {"lease_seconds": ["LEASE_SECONDS"]}  # further names
NO_SETTINGS: tuple[str, ...] = ()  # names with the prefix that something else reads
YEAR = 31_536_000  # in seconds
UNSET = {  # what holds where nothing is given
    "heartbeat_seconds": "a third of the lease",
    "token": "none",
    "allowed_hosts": "none",
}
HIDDEN = "(hidden)"

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
    token: str | None = Field(
        None,
        pattern=r"^[!-~]{16,}$",
        repr=False,  # a secret: shown nowhere
        description="at least 16 printable ASCII characters without a blank",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="names of hosts with commas between them"
    )
    keep_keys_seconds: Wait = 604_800.0  # a week
    max_body_bytes: int = Field(
        64_000,
        ge=100,
        le=100_000_000,
        description="a whole number of bytes from 100 to 100,000,000",
    )

    lease_seconds: Seconds = Field(
        30.0, validation_alias=AliasChoices(*_variables("lease_seconds"))
    )
    heartbeat_seconds: float | None = Field(
        None,
        ge=0.001,
        allow_inf_nan=False,
        description=f"a number of seconds from 0.001 to a third of {PREFIX}LEASE_SECONDS, so that "
        f"a lease lasts at least {BEATS_PER_LEASE} heartbeats",
    )
    grace_seconds: Seconds = 30.0
    poll_seconds: Seconds = 1.0
    isolate: bool = Field(default=False, description="true or false")
    max_payload_bytes: int = Field(
        MAX_BYTES,
        ge=100,
        le=100_000_000,
        description="a whole number of bytes from 100 to 100,000,000",
    )

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

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _with_commas_between(cls, hosts: Any) -> Any:
        """Take the text of a variable apart; a program may give a tuple."""
        if not isinstance(hosts, str):
            return hosts
        return tuple(host.strip() for host in hosts.split(",") if host.strip())

    @field_validator("heartbeat_seconds")
    @classmethod
    def _several_in_a_lease(cls, beat: float | None, info: ValidationInfo) -> float | None:
        """Hold it against the lease; a lease that is no number has its own fault."""
        lease = info.data.get("lease_seconds")
        if beat and lease and not outlasts_beats(lease, beat):
            raise ValueError("a lease is shorter than three heartbeats")
        return beat

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Give the fields that the settings' own text holds; no secret is among them."""
        for name, value in super().__repr_args__():
            yield name, _shown(name, value)

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


class Origin(NamedTuple):
    """A setting, and where its value came from."""

    name: str
    variable: str  # that gave the value; where none did, the one that would
    source: str  # environment, .env, default
    value: Any  # HIDDEN for a secret that is set; a URL comes without its password


def origins() -> list[Origin]:
    """Return every setting as it holds without options. Raises SettingsInvalid."""
    settings = load_settings()
    (_, in_environment), (_, in_file) = _places()
    found = []
    for field in Settings.model_fields:
        variables, value = _variables(field), getattr(settings, field)
        sources = (("environment", in_environment), (".env", in_file), ("default", variables))
        source, variable = next((s, v) for s, names in sources for v in variables if v in names)
        found.append(Origin(field, variable, source, _shown(field, value)))
    return found


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
    value = HIDDEN if _is_secret(field) else repr(error["input"])
    default = UNSET.get(field, about.default)
    return f"{name} is {value}: use {about.description}; the default is {default}"


def _shown(field: str | None, value: Any) -> Any:
    """Return a setting's value for everybody to see."""
    if field == "url":
        return without_password(value)
    return HIDDEN if field and value is not None and _is_secret(field) else value


def _is_secret(field: str) -> bool:
    return not Settings.model_fields[field].repr
