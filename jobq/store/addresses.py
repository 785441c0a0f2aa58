"""Which engine a store's URL names, and what of the URL may be shown."""

import re
from pathlib import Path
from typing import Literal

from jobq.errors import InvalidInput
from jobq.oneline import without_password

FORMS = (
    "sqlite:///relative.db, sqlite:////absolute.db, postgresql://user:password@host:port/database"
)
LEADS_TO = {"sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}
NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")  # a % that begins no code


def engine_of(url: str | Path) -> Literal["sqlite", "postgresql"]:
    """Return the engine that a URL names; what is no URL is the path of a SQLite file.

    `postgres://` is `postgresql://`. Raises InvalidInput for any other scheme, and for a
    PostgreSQL URL that would be read otherwise than it is meant.
    """
    scheme, separator, rest = str(url).partition("://")
    if not separator or isinstance(url, Path):
        return "sqlite"
    match LEADS_TO.get(scheme):
        case "sqlite" if rest.startswith("/"):
            return "sqlite"
        case "postgresql":
            _refuse_unencoded(str(url), rest)
            return "postgresql"
    raise InvalidInput(f"store URL {shown(url)!r} is not one of {FORMS}")


def shown(url: str | Path) -> str:
    """Return the URL for a person to read: `***` stands for its password."""
    return without_password(str(url))


def _refuse_unencoded(url: str, rest: str) -> None:
    """Raise InvalidInput if the user or the password holds what ends it.

    libpq reads up to the first @ or /, takes the remainder of a password for the host, and says
    so in an error: a part of the password would be shown.
    """
    before, _, path = rest.partition("/")
    in_path = "@" in path.partition("?")[0]
    if before.count("@") > 1 or in_path or NOT_ENCODED.search(rest):
        raise InvalidInput(
            f"store URL {shown(url)!r} cannot be read: in a user, a password and a name write "
            "@ as %40, / as %2F and % as %25"
        )
