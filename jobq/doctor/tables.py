"""The tables of a PostgreSQL store: whose, of which version, whole, and with what dead in them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jobq.doctor.finding import Finding, fail, in_bytes, ok, one_statement, warn
from jobq.doctor.look import Look
from jobq.oneline import in_units
from jobq.store.engine import named_statements

SCHEMA = named_statements("postgres.sql")["schema"]
BEHIND = 4  # times the dead rows at which autovacuum should have come
FEW = 100_000  # dead rows that are no matter
LATE_SECONDS = 600.0  # since the last vacuum

Part = Mapping[str, Any]
Key = tuple[str, str, str]  # type, table and name of a part


def place(look: Look) -> Finding:
    """Check that the store is there, of a version that is known, and may be used."""
    here = look.row("place")
    if here["schema"] is None:
        name = here["path"].partition(",")[0].strip() or "jobq"
        return fail(
            f"the schema {name} is not there, or {here['user']} may not use it",
            f"CREATE SCHEMA {name}; or GRANT USAGE ON SCHEMA {name} TO {here['user']};",
        )
    name = f"schema {here['schema']} of database {here['database']}"
    if not here["ours"]:
        return _nothing(name, here)
    found = look.ask("tables")
    mends = [
        f"GRANT {', '.join(table['forbidden'])} ON {table['name']} TO {here['user']};"
        for table in found
        if table["forbidden"]
    ]
    if mends:
        return fail(f"{here['user']} may not use the tables in {name}", " ".join(mends))
    return _of_version(look.value("schema_version"), name)


def _nothing(name: str, here: Part) -> Finding:
    """Return the finding for a schema without a store."""
    if here["jobs"]:
        return fail(
            f"the table jobs in {name} is another program's",
            "name another schema in the URL: ?options=-csearch_path%3Djobq",
        )
    if not here["may_create"]:
        grant = f"GRANT CREATE ON SCHEMA {here['schema']} TO {here['user']};"
        return fail(f"there is no store in {name}, and {here['user']} may make none", grant)
    return warn(
        f"there is no store in {name} yet",
        "`jobq enqueue` makes one; if yours lies elsewhere, name it with --url or JOBQ_URL",
    )


def _of_version(version: int | None, name: str) -> Finding:
    from jobq.store.postgres import SCHEMA_VERSION  # noqa: PLC0415 - an extra, and slow to load

    if version is None:
        return fail("the table jobq_schema is empty", "restore the store from a copy")
    if version > SCHEMA_VERSION:
        text = f"the store has schema {version}, and this jobq knows {SCHEMA_VERSION}"
        return fail(text, "update jobq")
    if version < SCHEMA_VERSION:
        text = f"the store has schema {version}, not yet {SCHEMA_VERSION}"
        return warn(text, "`jobq list` brings it up to date")
    return ok(f"the store in {name} has version {version}")


def parts(here: Sequence[Part], make: Callable[[str], Sequence[Part]]) -> Iterator[Finding]:
    """Check that every table, column and index is there; `make` gives those of a new schema."""
    found = {_key(part): part["definition"] for part in here}
    tables = {part["table"] for part in here}
    faults = [fault for part in make(SCHEMA) if (fault := _fault(part, found, tables)) is not None]
    faults += [_missing_table(name) for name in _tables() if name not in tables]
    yield from faults or [ok("no table, no column and no index is missing")]


def _tables() -> list[str]:
    return re.findall(r"^CREATE TABLE (\w+)", SCHEMA, re.MULTILINE)


def _missing_table(name: str) -> Finding:
    found = re.search(rf"^CREATE TABLE {name} \(.*?^\);", SCHEMA, re.MULTILINE | re.DOTALL)
    sql = one_statement(found[0]) if found else ""
    return fail(f"{name} is missing from the schema", f"run this in the database: {sql}")


def _fault(
    part: Part, found: Mapping[tuple[str, str, str], str], tables: set[str]
) -> Finding | None:
    """Return what is wrong with a part, if it is not here as it should be."""
    table, name, wanted = part["table"], part["name"], part["definition"]
    if table not in tables:
        return None  # told of as a whole, but for the indexes that are made apart
    is_column = part["type"] == "column"
    there = found.get(_key(part))
    if there is None:
        sql = f"ALTER TABLE {table} ADD COLUMN {name} {wanted}" if is_column else wanted
        what = f"{table}.{name}" if is_column else name
        return fail(f"{what} is missing from the schema", f"run this in the database: {sql};")
    if there != wanted:
        what = f"the column {table}.{name}" if is_column else f"the index {name}"
        return warn(f"{what} is not as jobq makes it ({there})", f"make it so again: {wanted}")
    return None


def _key(part: Part) -> Key:
    return (part["type"], part["table"], part["name"])


def indexes(invalid: Sequence[Part]) -> list[Finding]:
    """Check that no index is one that was given up while it was made."""
    return [
        fail(
            f"the index {row['name']} is invalid, and no statement uses it",
            f"make it anew: REINDEX INDEX CONCURRENTLY {row['name']};",
        )
        for row in invalid
    ] or [ok("every index is valid")]


def size(size: int) -> Finding:
    """Tell how much room the tables take, with their indexes."""
    return ok(f"the tables and their indexes have {in_bytes(size)}")


def vacuum(look: Look) -> list[Finding]:
    """Check that dead rows, which each move of a job leaves behind, are removed."""
    now = look.value("now")
    tables = look.ask("vacuum")
    if tables and not tables[0]["server"]:
        return [
            warn(
                "autovacuum is off: dead rows stay, and every claim takes longer for them",
                "set autovacuum = on and track_counts = on in postgresql.conf",
            )
        ]
    found = [fault for table in tables if (fault := _bloat(table, now)) is not None]
    return found or [ok("dead rows are removed (autovacuum)")]


def _bloat(table: Part, now: float) -> Finding | None:
    """Return what is wrong with the vacuum of one table, if anything is."""
    name, dead = table["name"], table["dead"]
    if not table["enabled"]:
        text = f"autovacuum is off for the table {name}: dead rows stay ({dead:,} now)"
        return warn(text, f"ALTER TABLE {name} RESET (autovacuum_enabled);")
    late = table["at"] is None or now - table["at"] > LATE_SECONDS
    if dead < max(FEW, BEHIND * table["due"]) or not late:
        return None
    ago = "never" if table["at"] is None else f"{in_units(now - table['at'])} ago"
    return warn(
        f"the table {name} has {dead:,} dead rows and {table['live']:,} living, last vacuum {ago}",
        f"VACUUM {name}; if that removes none, a transaction is open for long",
    )
