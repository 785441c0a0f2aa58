import ast
import importlib
import re
import subprocess
import types
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import jobq

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "jobq"

# What may import what: down or to the side, never up, and never in a circle.
LEVELS = {
    "cli": 5,
    "__main__": 5,
    "course": 4,
    "lab": 3,
    "worker": 2,
    "attendant": 2,
    "heartbeat": 2,
    "isolate": 2,
    "outcomes": 2,
    "recording": 2,
    "signals": 2,
    "api": 2,
    "client": 2,
    "doctor": 2,
    "jobq": 2,  # the public names
    "store": 1,
    "context": 1,
    "handlers": 1,
    "kinds": 1,
    "mail": 1,
    "sales": 1,
    "checks": 0,
    "errors": 0,
    "job": 0,
    "oneline": 0,
    "owned": 0,
    "retry": 0,
    "settings": 0,
    "strictjson": 0,
}
NEVER_MEET = (
    ("worker", "attendant", "heartbeat", "isolate", "outcomes", "recording", "signals"),
    ("api", "client"),
)
READ_SETTINGS = {"cli", "api"}
READ_ENVIRONMENT = {"settings", "cli", "lab"}  # a lab hands an environment to its processes
MODULE_LINES = 300
FUNCTION_LINES = 40
TOP_LEVEL = {
    *(".ci", ".github", ".gitignore", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"),
    *("data", "jobq", "notebooks", "tests"),
}
# Put together here, so that this file does not hold what it looks for.
HOSTS = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "anaconda" + ".org"]
FOLDERS = ["/" + name + "/" for name in ("root", "work", "home", "Users")]
NOT_FOR_THE_PUBLIC = re.compile(
    "|".join([*map(re.escape, HOSTS), rf"(?<![\w.:/])(?:{'|'.join(FOLDERS)})\w"])
)


def modules() -> dict[str, Path]:
    """Return the package's modules by dotted name."""
    paths = {path: path.relative_to(ROOT).with_suffix("") for path in PACKAGE.rglob("*.py")}
    return {".".join(p.parts).removesuffix(".__init__"): path for path, p in paths.items()}


MODULES = modules()


def unit(module: str) -> str:
    """Return the row of the table that a module belongs to."""
    return module.split(".")[1] if "." in module else module


def imports(source: str, known: set[str]) -> set[str]:
    """Return the modules of ours that a source imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "relative imports hide where they lead"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known
            found |= {node.module} if names - known else set()
    return found & known


def upward(levels: dict[str, int], graph: dict[str, set[str]]) -> list[str]:
    """Return the imports that lead up."""
    return [
        f"{module} (level {levels[unit(module)]}) imports {other} (level {levels[unit(other)]})"
        for module, others in graph.items()
        for other in others
        if levels[unit(module)] < levels[unit(other)]
    ]


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import one another in turn, if there are such."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def tracked() -> Iterator[Path]:
    """Yield the files that a commit would hold."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: nothing says which files belong to the project")
    # A clone made by another user is one too.
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    yield from (ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file())


GRAPH = {
    name: imports(path.read_text(encoding="utf-8"), set(MODULES)) for name, path in MODULES.items()
}


def test_every_module_has_a_level() -> None:
    """A new module is put into the table, and one that is gone is taken out."""
    assert {unit(module) for module in MODULES} == set(LEVELS)


def test_imports_point_down() -> None:
    """No module imports one of a higher level, lazily or for its types either."""
    assert upward(LEVELS, GRAPH) == []


def test_imports_make_no_circle() -> None:
    """Read in the right order, every module builds on modules that were read before."""
    assert circle(GRAPH) == []


def test_the_checks_of_imports_convict() -> None:
    """A lazy import that leads up is found, and so are two modules that import one another."""
    source = "def late():\n    from jobq import job\n    from jobq.worker import Worker"
    found = imports(source, {"jobq", "jobq.job", "jobq.worker"})
    assert found == {"jobq.job", "jobq.worker"}
    assert upward(LEVELS, {"jobq.store": found}) == [
        "jobq.store (level 1) imports jobq.worker (level 2)"
    ]
    assert set(circle({"a": {"b"}, "b": {"a"}})) == {"a", "b"}


def test_worker_and_api_never_meet() -> None:
    """The store is the only thing that both know."""
    for these, those in (NEVER_MEET, NEVER_MEET[::-1]):
        reached = {
            unit(other) for module in MODULES if unit(module) in these for other in reach(module)
        }
        assert not reached & set(those)


def reach(module: str) -> set[str]:
    """Return the modules that a module imports, directly or through others."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        new = GRAPH[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def test_only_entry_points_read_settings() -> None:
    """Everything else is given values."""
    readers = {unit(module) for module, others in GRAPH.items() if "jobq.settings" in others}
    assert readers <= READ_SETTINGS


def test_only_entry_points_read_the_environment() -> None:
    """`os.environ` and `os.getenv` stand nowhere else."""
    readers = {
        unit(module)
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute | ast.alias)
        and (node.attr if isinstance(node, ast.Attribute) else node.name)
        in {"environ", "environb", "getenv"}
    }
    assert readers <= READ_ENVIRONMENT


@pytest.mark.parametrize("module", MODULES)
def test_module_can_be_read_in_an_evening(module: str) -> None:
    """A module has at most 300 lines and says what it is; a function has at most 40."""
    source = MODULES[module].read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert ast.get_docstring(tree)
    assert len(source.splitlines()) <= MODULE_LINES
    assert long_functions(tree) == []


def long_functions(tree: ast.AST) -> list[str]:
    """Return the functions over the budget, with their lengths."""
    return [
        f"{node.name} has {length} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    ]


def test_the_budget_convicts() -> None:
    """A function of 41 lines is found."""
    source = "def long():\n" + "    pass\n" * FUNCTION_LINES
    assert long_functions(ast.parse(source)) == ["long has 41 lines"]


def test_public_names_are_sorted_and_complete() -> None:
    """`jobq.__all__` names all that `jobq` gives, in order."""
    given = {
        name
        for name, value in vars(jobq).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    late = {"Client"}  # imported when it is first asked for
    assert jobq.__all__ == sorted(given | late)


@pytest.mark.parametrize("name", jobq.__all__)
def test_public_name_is_documented(name: str) -> None:
    """Each public name can be imported and has a docstring of its own."""
    public = getattr(importlib.import_module("jobq"), name)
    assert vars(public).get("__doc__") if isinstance(public, type) else public.__doc__


def test_top_level_is_fixed() -> None:
    """The first look at the project finds a readable number of things."""
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= TOP_LEVEL


def test_text_speaks_of_the_project_alone() -> None:
    """No file names a folder of somebody's machine, or a host that packages came from."""
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        found += [f"{path.relative_to(ROOT)}: {m[0]}" for m in NOT_FOR_THE_PUBLIC.finditer(text)]
    assert found == []


def test_the_check_of_text_convicts() -> None:
    """A path and a host are found; an address of a project and a path in it are not."""
    assert NOT_FOR_THE_PUBLIC.search("see /ho" + "me/ann/notes.txt")
    assert NOT_FOR_THE_PUBLIC.search("https://files." + HOSTS[1] + "/x")
    assert not NOT_FOR_THE_PUBLIC.search("https://example.org/work/x and ./work/x and tests/work/")
