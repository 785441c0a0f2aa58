"""Why a PostgreSQL server gave no connection, and the mend for each reason."""

import re

IN_URL = "in the store's URL"
# The first whose words the error holds; libpq tells no code. A server may speak another language
# than English: then its own words have to do.
MENDS = {
    r"resolve host|translate host name": f"mend the host {IN_URL}",
    r"password authentication failed|no password supplied|role .* does not exist": "mend user and "
    f"password {IN_URL}; PGPASSWORD or ~/.pgpass may hold the password instead",
    r"database .* does not exist": f"make it with `createdb`, or mend its name {IN_URL}",
    r"not permitted to log in": f"name another user {IN_URL}, or `ALTER ROLE … LOGIN`",
    r"no pg_hba\.conf entry": "let this machine in: a line in the server's pg_hba.conf",
    r"too many (?:clients|connections)|connection slots": "end some connections, or raise "
    "max_connections",
    r"the database system is": "the server starts or stops: try again in a moment",
    r"unsupported startup parameter": "the proxy passes no options on: leave them out of the URL, "
    "and set the search path with `ALTER ROLE … SET search_path = …`",
    r"unrecognized configuration|invalid (?:URI|connection)": f"mend the options {IN_URL}",
    r"SSL|certificate|GSS": f"mend sslmode and the certificates {IN_URL}",
}
OTHERWISE = f"see that the server runs and listens there, or mend host and port {IN_URL}"


def reason(error: Exception) -> str:
    """Return the part of an error's text that says why, on one line.

    As in `connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL:  …`.
    """
    first, *_ = str(error).strip().splitlines() or ["no word"]
    return re.sub(r"^connection.*? failed: (?!connection to )(?:FATAL:\s+)?", "", first)


def mend(error: Exception) -> str:
    """Return what to do so that there is a connection."""
    why = reason(error)
    return next((mend for words, mend in MENDS.items() if re.search(words, why)), OTHERWISE)
