"""jobq.store.addresses and jobq.store.presence: what a URL names, and what of it is shown."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobq import InvalidInput, Store, StoreError, StoreUnreachable, open_store
from jobq.store.addresses import engine_of, shown
from jobq.store.presence import is_there


@pytest.mark.parametrize(
    ("url", "engine"),
    [
        ("jobs.db", "sqlite"),
        (Path("jobs.db"), "sqlite"),
        ("sqlite:///jobs.db", "sqlite"),
        ("sqlite:////srv/a:b@c.db", "sqlite"),
        ("postgresql://jobq:p%40ss@localhost:5432/jobq?options=-csearch_path%3Da", "postgresql"),
        ("postgres://localhost/jobq", "postgresql"),
        ("postgresql:///jobq?user=me@here&host=/run/postgresql", "postgresql"),
    ],
)
def test_a_url_names_its_engine(url: str | Path, engine: str) -> None:
    """What is no URL is a file's path."""
    assert engine_of(url) == engine


@pytest.mark.parametrize(
    "url", ["mysql://u:hunter2@localhost/jobs", "sqlite://jobs.db", "postgresql+psycopg://h/d"]
)
def test_another_engine_is_refused(url: str) -> None:
    """The message names the forms that there are, and no password."""
    with pytest.raises(InvalidInput, match="is not one of sqlite:///") as caught:
        engine_of(url)
    assert "postgresql://user:password@" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("password", ["hunt@er2", "hunt/er2@", "hunt%er2", "hunt/er2"])
def test_a_password_that_would_be_cut_is_refused(password: str) -> None:
    """Libpq would take the rest of it for the host, and show that in its error."""
    with pytest.raises(InvalidInput, match="write @ as %40") as caught:
        engine_of(f"postgresql://jobq:{password}@localhost/jobq")
    assert "hunt" not in str(caught.value)
    assert "er2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqlite:////srv/a:b@c.db", "sqlite:////srv/a:b@c.db"),
        (Path("jobs.db"), "jobs.db"),
        ("postgresql://jobq@h:5432/d", "postgresql://jobq@h:5432/d"),
        ("postgresql://jobq:x@h:5432/d", "postgresql://jobq:***@h:5432/d"),
        ("postgresql://:x@h/d", "postgresql://:***@h/d"),
        ("postgresql://h/d?password=x&sslpassword=y&a=b",
         "postgresql://h/d?password=***&sslpassword=***&a=b"),
        ("host=h password='a b\\' c' user=u", "host=h password=*** user=u"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_password(url: str | Path, text: str) -> None:
    """All else stays as it was written."""
    assert shown(url) == text


def test_a_store_is_there_once_somebody_made_it(url: str, opened: Callable[..., Store]) -> None:
    """To look for it makes none."""
    assert not is_there(url)
    assert not is_there(url)
    opened(url).list()
    assert is_there(url)


def test_without_psycopg_it_is_left_to_the_opening_to_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An install for SQLite alone cannot look, and its message names the extra."""
    for name in ("psycopg", "jobq.store.pgconnection", "jobq.store.postgres"):
        monkeypatch.setitem(sys.modules, name, None)
    assert is_there("postgresql://jobq:x@localhost/jobq")
    with pytest.raises(StoreError, match=r"pip install 'jobq\[postgres\]'"):
        open_store("postgresql://jobq:x@localhost/jobq")


def test_a_server_that_is_away_is_not_a_store_that_is_away() -> None:
    """Nobody knows what is there."""
    with pytest.raises(StoreUnreachable):
        is_there("postgresql://jobq:x@127.0.0.1:1/jobq")
