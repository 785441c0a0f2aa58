"""The parameters of SQL, and where one statement ends."""

import pytest

from jobq.store.placeholders import for_psycopg, is_one_statement


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT :a, :b_2", "SELECT %(a)s, %(b_2)s"),
        ("SELECT :a::json", "SELECT %(a)s::json"),
        ("SELECT 10 % 3", "SELECT 10 %% 3"),
        ("SELECT ':a', 'it''s :b', \":c\"", "SELECT ':a', 'it''s :b', \":c\""),
        ("SELECT E'\\':a', :b", "SELECT E'\\':a', %(b)s"),
        ("SELECT 1 -- :a\n, :b", "SELECT 1 -- :a\n, %(b)s"),
        ("SELECT /* :a\n :b */ :c", "SELECT /* :a\n :b */ %(c)s"),
        ("SELECT $$ :a $$, $x$ :b $$ $x$, :c", "SELECT $$ :a $$, $x$ :b $$ $x$, %(c)s"),
        ("SELECT 'a%' WHERE b ? 'c'", "SELECT 'a%%' WHERE b ? 'c'"),
        ("SELECT 'größe :a', :b", "SELECT 'größe :a', %(b)s"),
    ],
)
def test_a_name_behind_a_colon_is_a_parameter_where_sql_has_one(sql: str, expected: str) -> None:
    """Not in text, in names, in comments or in a cast."""
    assert for_psycopg(sql, marks=False) == expected


def test_a_question_mark_is_a_parameter_when_they_are_given_in_order() -> None:
    """Otherwise it is an operator of PostgreSQL's."""
    assert for_psycopg("VALUES (?, '?')", marks=True) == "VALUES (%s, '?')"


@pytest.mark.parametrize(
    "sql",
    ["SELECT 1", "SELECT 1;", "SELECT ';'; -- a; b\n /* ; */ ;", "SELECT $$ ; $$", ""],
)
def test_one_statement_is_one(sql: str) -> None:
    """Whatever semicolons stand in its text, and behind it."""
    assert is_one_statement(sql)


@pytest.mark.parametrize(
    "sql",
    ["SELECT 1; COMMIT", "SELECT ';';SELECT 2", "SELECT 1; 'a'", ";SELECT 1", "SELECT 1; -- a\n b"],
)
def test_two_statements_are_two(sql: str) -> None:
    """The second could end the transaction."""
    assert not is_one_statement(sql)
