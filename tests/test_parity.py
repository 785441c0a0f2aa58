"""Every engine gives the same answers, and the right ones: `edges.py` has what is asked."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal

from jobq import StoreError, open_store
from jobq.oneline import short

if TYPE_CHECKING:
    from jobq.lab.pgserver import Server
    from tests.edges import Ask, Case

pytest_plugins = ["edges", "edges_values", "edges_steps", "edges_http"]

TABLE = Path(__file__).with_name("parity.txt")
HEAD = """\
What every engine answers to the edge cases of edges.py: one a line, long ones shortened.
test_parity.py makes this table anew with each engine, and holds the whole answers against each
other and against what is right.

"""
Answers = dict[str, str]  # by the name of the case


@pytest.fixture(scope="module")
def asked() -> dict[str, Answers]:
    """Return what the engines have answered so far."""
    return {}


@pytest.fixture
def answers(
    asked: dict[str, Answers], engine: str, url: str, fast: dict[str, str], ask: "Ask"
) -> Answers:
    """Return the answers of an engine."""
    if engine not in asked:
        asked[engine] = ask(url, **fast)
    return asked[engine]


@pytest.fixture
def reference(asked: dict[str, Answers], tmp_path: Path, ask: "Ask") -> Answers:
    """Return the answers of SQLite."""
    if "sqlite" not in asked:
        asked["sqlite"] = ask(f"sqlite:///{tmp_path / 'reference.db'}", synchronous="NORMAL")
    return asked["sqlite"]


def test_every_case_has_a_name_of_its_own(edge_cases: "list[Case]") -> None:
    """Else one would stand for another in the table."""
    assert {n: times for n, times in Counter(c.name for c in edge_cases).items() if times > 1} == {}


def test_every_answer_is_right(answers: Answers, edge_cases: "list[Case]") -> None:
    """What goes in is kept exactly, or refused for the right reason, through every door."""
    wrong = [
        f"{case.name}: {answers[case.name][:400]!r}, not {case.right[:200]!r}"
        for case in edge_cases
        if not case.holds(answers[case.name])
    ]
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong])


@pytest.mark.parametrize("engine", ["postgresql"])  # beside SQLite, which it is held against
def test_engines_do_not_differ(answers: Answers, reference: Answers) -> None:
    """The same inputs have the same answers, to the last character of an error's document."""
    differing = [
        f"{name}:\n  {difference(answer, reference[name])}"
        for name, answer in answers.items()
        if answer != reference[name]
    ]
    assert not differing, "\n".join([f"{len(differing)} differ", *differing])


def difference(one: str, other: str) -> str:
    """Return two texts from where they begin to differ."""
    pairs = enumerate(zip(one, other, strict=False))
    start = next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
    return f"{one[start - 40 : start + 200]!r}\n  {other[start - 40 : start + 200]!r}"


def test_the_table_is_up_to_date(answers: Answers, tmp_path: Path) -> None:
    """Whoever reads the table reads what the engines answer."""
    width = max(map(len, answers))
    lines = (f"{short(name):{width}} | {short(answer)}" for name, answer in answers.items())
    table = HEAD + "".join(f"{line.rstrip()}\n" for line in lines)
    new = tmp_path / TABLE.name
    new.write_text(table, encoding="utf-8")
    same = TABLE.exists() and TABLE.read_text(encoding="utf-8") == table
    assert same, f"the answers are others now; if they are right: cp {new} {TABLE}"


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_has_not_every_character_is_refused(
    pg_server: "Server", encoding: str
) -> None:
    """It would refuse some jobs and keep others, by the letters in them; so it is left alone."""
    name = f"parity_{encoding.lower()}"
    make = SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0")
    with psycopg.connect(pg_server.url(), autocommit=True) as connection:
        connection.execute(make.format(Identifier(name), Literal(encoding)))
    with pytest.raises(StoreError, match=f"keeps its text as {encoding}"):
        open_store(pg_server.url(name))
