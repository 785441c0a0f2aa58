"""SQL with its parameters as `:name` and `?`, as SQLite has them, for PostgreSQL.

So the statements of both engines read alike, and a program's own SQL need not change with the
engine. psycopg writes `%(name)s` and `%s`.
"""

import re
from functools import lru_cache

PARTS = re.compile(
    r"""
    \b[eE]'(?:[^'\\]|\\.|'')*'                  # text with escapes
    | '(?:[^']|'')*' | "(?:[^"]|"")*"             # text and names in quotes
    | (?P<comment>--[^\n]* | /\*.*?\*/)
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$            # text between dollars
    | ::                                        # a cast
    | :(?P<name>[A-Za-z_]\w*)
    | (?P<mark>\?)
    | (?P<end>;)
    """,
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=256)
def for_psycopg(sql: str, *, marks: bool) -> str:
    """Return the SQL with psycopg's placeholders; with `marks`, each `?` is one too."""

    def replaced(found: re.Match[str]) -> str:
        if found["name"]:
            return f"%({found['name']})s"
        if found["mark"] and marks:
            return "%s"
        return _doubled(found[0])

    parts, end = [], 0
    for found in PARTS.finditer(sql):
        parts += [_doubled(sql[end : found.start()]), replaced(found)]
        end = found.end()
    return "".join([*parts, _doubled(sql[end:])])


def is_one_statement(sql: str) -> bool:
    """Whether nothing but blanks and comments follows the first semicolon."""
    end: int | None = None
    for found in PARTS.finditer(sql):
        between = "" if end is None else sql[end : found.start()]
        if between.strip() or (end is not None and not (found["comment"] or found["end"])):
            return False
        if found["end"] or end is not None:
            end = found.end()
    return end is None or not sql[end:].strip()


def _doubled(sql: str) -> str:
    return sql.replace("%", "%%")  # else psycopg takes it for a placeholder
