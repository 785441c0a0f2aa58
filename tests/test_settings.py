import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from jobq import RetryPolicy
from jobq.errors import SettingsInvalid
from jobq.settings import Settings, load_settings, origins

DAY = "a number of seconds from 0.001 to 86,400 (a day)"
YEAR = "31,536,000 (a year)"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start each test in an empty folder, without a variable of ours."""
    for name in os.environ:
        if name.startswith("JOBQ_") or name == "LEASE_SECONDS":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def faults(**overrides: object) -> list[str]:
    """Return the lines of the error."""
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(**overrides)
    return str(caught.value).splitlines()


def test_without_anything_the_defaults_hold() -> None:
    """The defaults are the lesson's, and those of RetryPolicy."""
    settings = load_settings()
    assert settings.model_dump() == {
        "url": "sqlite:///jobs.db",
        "synchronous": "FULL",
        "host": "127.0.0.1",
        "port": 8718,
        "token": None,
        "allowed_hosts": (),
        "keep_keys_seconds": 604_800.0,
        "max_body_bytes": 64_000,
        "lease_seconds": 30.0,
        "heartbeat_seconds": None,
        "grace_seconds": 30.0,
        "poll_seconds": 1.0,
        "isolate": False,
        "max_payload_bytes": 1_000_000,
        "max_attempts": 3,
        "retry_base": 0.5,
        "retry_factor": 2.0,
        "retry_cap": 3600.0,
        "retry_jitter": "none",
    }
    assert settings.retry_policy() == RetryPolicy()


def test_every_setting_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting's variable is JOBQ_ and its name in capitals."""
    chosen = {
        "url": "sqlite:///other.db",
        "synchronous": "NORMAL",
        "host": "0.0.0.0",  # noqa: S104 - nothing listens here
        "port": 8000,
        "token": "correct-horse-battery",
        "allowed_hosts": ("jobs.example.org", "10.0.0.7"),
        "keep_keys_seconds": 60.0,
        "max_body_bytes": 1_000,
        "lease_seconds": 2.0,
        "heartbeat_seconds": 0.5,
        "grace_seconds": 3.0,
        "poll_seconds": 0.5,
        "isolate": True,
        "max_payload_bytes": 1_000,
        "max_attempts": 5,
        "retry_base": 0.0,
        "retry_factor": 1.5,
        "retry_cap": 60.0,
        "retry_jitter": "full",
    }
    for name, value in chosen.items():
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        monkeypatch.setenv(f"JOBQ_{name.upper()}", text)
    settings = load_settings()
    assert settings.model_dump() == chosen
    assert settings.retry_policy() == RetryPolicy(base=0.0, factor=1.5, cap=60.0, jitter="full")


def test_an_override_comes_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of several places that give a setting, the one nearest to the command wins."""
    Path(".env").write_text("JOBQ_PORT=1\nJOBQ_HOST=file\nJOBQ_URL=file\n")
    monkeypatch.setenv("JOBQ_PORT", "2")
    monkeypatch.setenv("JOBQ_HOST", "environment")
    monkeypatch.setenv("LEASE_SECONDS", "2")
    settings = load_settings(port=3, lease_seconds=3, host=None)
    assert settings.lease_seconds == 3
    assert (settings.port, settings.host, settings.url) == (3, "environment", "file")


@pytest.mark.parametrize(
    ("environment", "file", "seconds"),
    [
        ({"LEASE_SECONDS": "2"}, "", 2),
        ({"LEASE_SECONDS": "2", "JOBQ_LEASE_SECONDS": "3"}, "", 3),
        ({"LEASE_SECONDS": "2"}, "JOBQ_LEASE_SECONDS=4", 2),
        ({}, "LEASE_SECONDS=4", 4),
    ],
)
def test_the_lease_has_the_name_of_the_lesson_too(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], file: str, seconds: float
) -> None:
    """LEASE_SECONDS gives the lease; of two names in one place the one with JOBQ_ wins."""
    Path(".env").write_text(file)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert load_settings().lease_seconds == seconds


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        *((name, value, DAY) for name in ("LEASE_SECONDS", "JOBQ_GRACE_SECONDS")
          for value in ("0", "-1", "nan", "inf", "30s", "", "86401")),
        ("JOBQ_POLL_SECONDS", "0", DAY),
        ("JOBQ_PORT", "0", "a port from 1 to 65,535"),
        ("JOBQ_PORT", "65536", "a port from 1 to 65,535"),
        ("JOBQ_PORT", "80.5", "a port from 1 to 65,535"),
        ("JOBQ_MAX_ATTEMPTS", "0", "a whole number from 1 to 1,000,000"),
        ("JOBQ_RETRY_BASE", "-1", f"a number of seconds from 0 to {YEAR}"),
        ("JOBQ_RETRY_FACTOR", "0.5", "a number of at least 1"),
        ("JOBQ_RETRY_FACTOR", "inf", "a number of at least 1"),
        ("JOBQ_RETRY_CAP", "0.4", f"a number of seconds from JOBQ_RETRY_BASE to {YEAR}"),
        ("JOBQ_RETRY_CAP", "nan", f"a number of seconds from JOBQ_RETRY_BASE to {YEAR}"),
        ("JOBQ_RETRY_JITTER", "some", "none or full"),
        ("JOBQ_SYNCHRONOUS", "off", "FULL or NORMAL"),
        ("JOBQ_ISOLATE", "maybe", "true or false"),
        ("JOBQ_KEEP_KEYS_SECONDS", "-1", f"a number of seconds from 0 to {YEAR}"),
        ("JOBQ_MAX_BODY_BYTES", "99", "a whole number of bytes from 100 to 100,000,000"),
        *(("JOBQ_MAX_PAYLOAD_BYTES", value, "a whole number of bytes from 100 to 100,000,000")
          for value in ("99", "1MB", "100000001")),
        ("JOBQ_URL", "", "some text"),
        ("JOBQ_HOST", "", "some text"),
    ],
)  # fmt: skip
def test_a_fault_names_the_variable_the_value_and_the_rule(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, rule: str
) -> None:
    """A value that breaks a rule is refused in words, with the default."""
    monkeypatch.setenv(name, value)
    field = name.removeprefix("JOBQ_").lower()
    default = Settings.model_fields[field].default
    assert faults() == [f"{name} is {value!r}: use {rule}; the default is {default}"]


def test_a_cap_is_held_against_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base above the cap is a fault of the cap, also when only the base was given."""
    monkeypatch.setenv("JOBQ_RETRY_BASE", "4000")
    rule = f"a number of seconds from JOBQ_RETRY_BASE to {YEAR}"
    assert faults() == [f"JOBQ_RETRY_CAP is 3600.0: use {rule}; the default is 3600.0"]


HEARTBEAT = (
    "use a number of seconds from 0.001 to a third of JOBQ_LEASE_SECONDS, so that a lease lasts "
    "at least 3 heartbeats; the default is a third of the lease"
)


@pytest.mark.parametrize("value", ["10.1", "0", "-1", "nan", "inf", "often", ""])
def test_a_heartbeat_is_held_against_the_lease(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """A lease that is hardly longer than its heartbeat would be lost while its worker lives."""
    monkeypatch.setenv("JOBQ_HEARTBEAT_SECONDS", value)
    assert faults() == [f"JOBQ_HEARTBEAT_SECONDS is {value!r}: {HEARTBEAT}"]


@pytest.mark.parametrize(("lease", "beat"), [(30, 10), (0.3, 0.1), (0.6, 0.2), (3, 0.001)])
def test_a_third_of_the_lease_is_often_enough(lease: float, beat: float) -> None:
    """Exactly a third is allowed, although floats make three times 0.1 more than 0.3."""
    settings = load_settings(lease_seconds=lease, heartbeat_seconds=beat)
    assert settings.heartbeat_seconds == beat


def test_a_shorter_lease_makes_the_heartbeat_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two may come from different places; a lease that is none has its own fault alone."""
    monkeypatch.setenv("JOBQ_HEARTBEAT_SECONDS", "1")
    assert faults(lease_seconds=2) == [f"JOBQ_HEARTBEAT_SECONDS is '1': {HEARTBEAT}"]
    assert faults(lease_seconds="x") == [f"lease_seconds is 'x': use {DAY}; the default is 30.0"]


@pytest.mark.parametrize("token", ["", "too-short", "all very secret words", "geheimer-schlüssel"])
def test_a_bad_token_is_told_of_and_not_told(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    """A secret stands in no message, whatever is wrong with it."""
    monkeypatch.setenv("JOBQ_TOKEN", token)
    rule = "use at least 16 printable ASCII characters without a blank; the default is none"
    assert faults() == [f"JOBQ_TOKEN is (hidden): {rule}"]


def test_a_token_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the settings' own text nor their origins hold it."""
    monkeypatch.setenv("JOBQ_TOKEN", "correct-horse-battery")
    assert load_settings().token == "correct-horse-battery"  # noqa: S105 - it opens nothing
    assert "correct-horse" not in f"{load_settings()!r} {load_settings()}"
    (token,) = (origin for origin in origins() if origin.name == "token")
    assert token[1:] == ("JOBQ_TOKEN", "environment", "(hidden)")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://jobq:hunter2@db.example.org/jobq",
        "postgresql://db.example.org/jobq?user=jobq&password=hunter2",
        "postgresql://jobq:hunt@er2@db.example.org/jobq",
        "mysql://jobq:hunter2@db.example.org/jobq",
    ],
)
def test_the_password_of_a_store_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """The URL is shown, with *** for its password; whoever opens the store gets all of it."""
    monkeypatch.setenv("JOBQ_URL", url)
    settings = load_settings()
    assert settings.url == url
    (origin,) = (origin for origin in origins() if origin.name == "url")
    for text in (repr(settings), str(settings), str(origin)):
        assert "db.example.org/jobq" in text
        assert "***" in text
        assert "er2" not in text


def test_origins_name_the_place_that_won(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several places it is the one whose value holds; case does not matter."""
    Path(".env").write_text("JOBQ_PORT=1\njobq_host=file\nLEASE_SECONDS=4\n")
    monkeypatch.setenv("JOBQ_PORT", "2")
    found = {origin.name: origin[1:] for origin in origins()}
    assert found["port"] == ("JOBQ_PORT", "environment", 2)
    assert found["host"] == ("JOBQ_HOST", ".env", "file")
    assert found["lease_seconds"] == ("LEASE_SECONDS", ".env", 4.0)
    assert found["url"] == ("JOBQ_URL", "default", "sqlite:///jobs.db")
    assert list(found) == list(Settings.model_fields)


def test_origins_of_faulty_settings_are_the_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing holds while a rule is broken."""
    monkeypatch.setenv("JOBQ_PORT", "http")
    with pytest.raises(SettingsInvalid, match="JOBQ_PORT is 'http'"):
        origins()


def test_all_faults_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever mends the settings is told once, not once for each fault, and where each one is."""
    Path(".env").write_text("LEASE_SECONDS=long\nJOBQ_POLL=1\nJOBQ_HOST=\n")
    monkeypatch.setenv("JOBQ_LEASE_SECOND", "2")
    monkeypatch.setenv("JOBQ_PORT", "http")
    assert faults(max_attempts=0) == [
        "JOBQ_LEASE_SECOND is no setting: use JOBQ_LEASE_SECONDS, or unset it",
        "JOBQ_POLL in .env is no setting: use JOBQ_POLL_SECONDS, or unset it",
        "JOBQ_HOST in .env is '': use some text; the default is 127.0.0.1",
        "JOBQ_PORT is 'http': use a port from 1 to 65,535; the default is 8718",
        f"LEASE_SECONDS in .env is 'long': use {DAY}; the default is 30.0",
        "max_attempts is 0: use a whole number from 1 to 1,000,000; the default is 3",
    ]


def test_an_unknown_variable_like_no_other_gets_the_whole_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no known name is near, all are named."""
    monkeypatch.setenv("JOBQ_QQ", "1")
    (fault,) = faults()
    assert fault.startswith("JOBQ_QQ is no setting: use one of JOBQ_URL, ")
    assert "LEASE_SECONDS" in fault


def test_the_variables_of_other_programs_are_left_alone() -> None:
    """A `.env` may hold what others read, and a byte order mark."""
    Path(".env").write_text("JOBQ_PORT=8000\nPORT=x\nURL=y\n", encoding="utf-8-sig")
    assert load_settings().port == 8000


def test_a_file_that_is_no_text_is_a_fault_of_its_own() -> None:
    """A `.env` that cannot be decoded is named."""
    Path(".env").write_bytes(b"JOBQ_URL=\xff\n")
    (fault,) = faults()
    assert fault.startswith(".env cannot be read: ")
    assert fault.endswith("; save it as UTF-8 text")


def test_settings_do_not_change() -> None:
    """Settings are one frozen value."""
    settings = load_settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1


def test_an_override_that_is_no_setting_is_a_mistake_of_the_program() -> None:
    """A misspelt override is not silently ignored."""
    with pytest.raises(TypeError, match="lease"):
        load_settings(lease=2)
