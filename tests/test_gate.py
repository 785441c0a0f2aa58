import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = ("course", "test")

# Modules that another's test speaks for.
TESTED_BY = {
    "jobq.__main__": "test_cli",  # every process there is started through it
}


@pytest.mark.parametrize(
    "tool", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=" ".join
)
def test_tool_finds_nothing(tool: list[str]) -> None:
    """The code passes every rule that pyproject.toml asks for."""
    command = [sys.executable, "-m", *tool]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    code, faults = run.returncode, run.stdout + run.stderr
    assert code == 0, faults


def installed() -> dict[str, str]:
    """Return name and version of all that `jobq[course,test]` pulls in on this machine."""
    found: dict[str, str] = {}
    todo = [("jobq", extra) for extra in EXTRAS]
    seen = set(todo)
    while todo:
        name, extra = todo.pop()
        package = distribution(name)
        found[name] = package.version
        for requirement in map(Requirement, package.requires or []):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            other = canonicalize_name(requirement.name)
            new = {(other, wanted) for wanted in ("", *requirement.extras)} - seen
            seen |= new
            todo += new
    return {name: version for name, version in found.items() if name != "jobq"}


def pinned(text: str) -> dict[str, str]:
    """Return name and version of every pin that holds on this machine."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    pins = [Requirement(line) for line in lines if line]
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }


def differences(have: dict[str, str], pins: dict[str, str]) -> list[str]:
    """Return what is installed otherwise than pinned."""
    return [
        f"{name} {version} is installed, and pinned is {pins.get(name, 'none')}"
        for name, version in sorted(have.items())
        if pins.get(name) != version
    ]


def test_what_is_installed_is_what_is_pinned() -> None:
    """The tests have run with the versions that constraints.txt gives to everybody."""
    try:
        have = installed()
    except PackageNotFoundError as missing:
        pytest.fail(f"{missing.name} is required and not installed")
    assert differences(have, pinned(CONSTRAINTS.read_text())) == []


def test_the_check_of_pins_convicts() -> None:
    """A package without a pin and one of another version are named; a foreign marker is none."""
    pins = pinned("a==1\nb==2  # why\nc==3 ; python_version < '3'\n")
    assert pins == {"a": "1", "b": "2"}
    assert differences({"a": "1", "b": "2.1", "c": "3"}, pins) == [
        "b 2.1 is installed, and pinned is 2",
        "c 3 is installed, and pinned is none",
    ]


def test_pins_are_names_and_versions_alone() -> None:
    """No address of where a package came from is in constraints.txt."""
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    pin = re.compile(r"[\w.-]+==[\w.!+-]+( ; [^/]+)?")
    assert [line for line in lines if line and not pin.fullmatch(line)] == []


def untested(modules: set[str], tests: set[str]) -> set[str]:
    """Return the modules whose name, or whose package's name, is in no test's name."""
    return {
        module
        for module in modules
        if not any(
            test == f"test_{part}" or test.startswith(f"test_{part}_")
            for part in module.split(".")[1:]
            for test in tests
        )
    }


def test_tests_mirror_modules() -> None:
    """Each module has a test file named after it, or one that is said to speak for it."""
    paths = [path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("jobq/**/*.py")]
    modules = {".".join(path.parts).removesuffix(".__init__") for path in paths} - {"jobq"}
    tests = {path.stem for path in (ROOT / "tests").glob("test_*.py")}
    assert untested(modules, tests) == TESTED_BY.keys() & modules
    assert set(TESTED_BY.values()) <= tests


def test_the_check_of_mirrors_convicts() -> None:
    """A module of which no test file speaks is named."""
    assert untested({"jobq.retry", "jobq.store.rows"}, {"test_store"}) == {"jobq.retry"}
