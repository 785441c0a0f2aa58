# mypy: untyped-calls-exclude=nbformat
# (nbformat gives its functions no types)
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

CELL_LINES = 12
EXCEPTIONS = 2  # cells of the whole course that are not compared
NOT_COMPARED = "# not compared:"  # begins the comment that says why
SECTIONS = ("Predict", "Break it", "See it", "Why", "Your turn", "Recap")
FIRST_TO_WARM_UP = 3
SHOWN = {"text/plain", "image/png"}
DIFFERS = {
    "an address in memory": r"\b0x[0-9a-fA-F]+",
    "an absolute path": r"(?<!\w)/(?:Users|home|mnt|opt|private|root|tmp|usr|var|work)/",
    "an id": r"\b(?:[0-9a-f]{32}|(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8})\b",
    "a process id": r"\bworker-\d+|\bpid \d+",
    "a port": r"\b(?:localhost|127\.0\.0\.1):\d+",
    "a date": r"\b\d{4}-\d\d-\d\d\b",
    "a time": r"\b\d\d:\d\d:\d\d\b",
}
BANNED = {
    "clear_output": "nbval compares the first state, and the file holds the last",
    "tqdm": "nbval compares the first state, and the file holds the last",
    "ipywidgets": "a page without a kernel cannot show it",
    "os.system": "its output is shown in Lab and missing under nbval",
}

Rule = Callable[[NotebookNode], Iterator[str]]


def code(notebook: NotebookNode) -> list[tuple[str, NotebookNode]]:
    """Return the code cells, each with a name for messages."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [(f"code cell {number}", cell) for number, cell in enumerate(cells, 1)]


def outputs(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """Yield every output, with its cell's name."""
    for name, cell in code(notebook):
        for output in cell.outputs:
            yield name, output


def text_of(output: NotebookNode) -> str:
    """Return what a reader without pictures is given."""
    if output.output_type == "stream":
        return str(output.text)
    return str(output.get("data", {}).get("text/plain", ""))


def says_something(cell: NotebookNode) -> bool:
    """Whether a cell prints text that is more than the name of a picture."""
    return any(text_of(o) and "image/png" not in o.get("data", {}) for o in cell.outputs)


def headings(notebook: NotebookNode) -> list[str]:
    """Return the headings below the title."""
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.findall(r"^##+ (.*)$", prose, re.MULTILINE)


def tags(cell: NotebookNode) -> set[str]:
    """Return what nbval is told about a cell, by tag or by comment, in one spelling."""
    comments = re.findall(r"^\s*#\s*(NBVAL_\w+|PYTEST_VALIDATE_\w+)", cell.source, re.MULTILINE)
    return {word.lower().replace("_", "-") for word in [*cell.metadata.get("tags", []), *comments]}


def not_compared(notebook: NotebookNode) -> list[tuple[str, NotebookNode]]:
    """Return the code cells that nbval skips, or whose outputs it ignores."""
    words = ("skip", "ignore")
    return [(n, c) for n, c in code(notebook) if any(w in tag for tag in tags(c) for w in words)]


# ── the rules: each yields the faults of a notebook ──────────────────────────────────────────────


def is_a_notebook(notebook: NotebookNode) -> Iterator[str]:
    """Keep to the file format."""
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        yield f"not valid: {str(error).splitlines()[0]}"


def runs_anywhere(notebook: NotebookNode) -> Iterator[str]:
    """Ask for the kernel that every machine has."""
    if (kernel := notebook.metadata.get("kernelspec", {}).get("name")) != "python3":
        yield f"kernel {kernel}: use python3"


def was_run_from_top_to_bottom(notebook: NotebookNode) -> Iterator[str]:
    """Run every code cell once, in order: nbval does not compare a cell that was not."""
    for number, (name, cell) in enumerate(code(notebook), 1):
        if cell.execution_count != number:
            yield f"{name} has count {cell.execution_count}: restart and run all"


def ends_without_error(notebook: NotebookNode) -> Iterator[str]:
    """Commit no error and expect none: a cell that may raise passes if it does not."""
    for name, output in outputs(notebook):
        if output.output_type == "error":
            yield f"{name} ended with {output.ename}"
    for name, cell in code(notebook):
        if any("raises-exception" in tag for tag in tags(cell)):
            yield f"{name} may raise: catch the error and print what was refused"


def writes_nothing_to_stderr(notebook: NotebookNode) -> Iterator[str]:
    """Leave warnings and logs out of the story."""
    for name, output in outputs(notebook):
        if output.output_type == "stream" and output.name == "stderr":
            yield f"{name} writes to stderr: {output.text.strip()[:60]!r}"


def shows_text_and_pictures_alone(notebook: NotebookNode) -> Iterator[str]:
    """Show no widgets, HTML, SVG or JSON: they drift with versions."""
    if "widgets" in notebook.metadata:
        yield "metadata.widgets: clear the state of the widgets"
    for name, output in outputs(notebook):
        for kind in sorted(output.get("data", {}).keys() - SHOWN):
            yield f"{name} shows {kind}: use one of {', '.join(sorted(SHOWN))}"


def prints_the_same_everywhere(notebook: NotebookNode) -> Iterator[str]:
    """Print nothing that differs from run to run or from machine to machine."""
    for name, output in outputs(notebook):
        for what, pattern in DIFFERS.items():
            if found := re.search(pattern, text_of(output)):
                yield f"{name} prints {what}: {found[0]}"


def keeps_no_times(notebook: NotebookNode) -> Iterator[str]:
    """Keep no times of a run: each would change the file."""
    for name, cell in code(notebook):
        if "execution" in cell.metadata:
            yield f"{name} keeps metadata.execution: strip it"


def excuses_its_exceptions(notebook: NotebookNode) -> Iterator[str]:
    """Say of each cell that is not compared why it is not."""
    for name, cell in not_compared(notebook):
        if NOT_COMPARED not in cell.source:
            yield f"{name} is not compared and gives no reason: say it after {NOT_COMPARED!r}"


def has_short_cells(notebook: NotebookNode) -> Iterator[str]:
    """Give a cell at most 12 lines; longer code belongs into the package, with a test."""
    for name, cell in code(notebook):
        if (lines := len(cell.source.strip().splitlines())) > CELL_LINES:
            yield f"{name} has {lines} lines: {CELL_LINES} at most"


def avoids_the_traps(notebook: NotebookNode) -> Iterator[str]:
    """Use nothing that nbval and JupyterLab show differently."""
    for name, cell in code(notebook):
        for word, why in BANNED.items():
            if word in cell.source:
                yield f"{name} uses {word}: {why}"
        if cell.source.rstrip().endswith(";"):
            yield f"{name} ends in a semicolon, which nbval does not heed: write _ = …"


def says_what_it_is(notebook: NotebookNode) -> Iterator[str]:
    """Begin with a title, what the learner will do, learn and need, and the minutes."""
    first = notebook.cells[0]
    wanted = [r"\A# \w", r"\*do\*", r"\*learn\*", r"\bneed\b", r"\d+ minutes?"]
    for pattern in wanted:
        if first.cell_type != "markdown" or not re.search(pattern, first.source):
            yield f"the first cell has no {pattern}"


def has_every_section(notebook: NotebookNode) -> Iterator[str]:
    """Tell the whole story."""
    for section in SECTIONS:
        if not any(heading.startswith(section) for heading in headings(notebook)):
            yield f"no section {section!r}"


def gives_pictures_a_text_twin(notebook: NotebookNode) -> Iterator[str]:
    """Print what a picture shows, in the same cell or in the next."""
    cells = code(notebook)
    followers = [cell for _, cell in cells[1:]] + [new_code_cell()]
    for (name, cell), follower in zip(cells, followers, strict=True):
        pictures = any("image/png" in output.get("data", {}) for output in cell.outputs)
        if pictures and not says_something(cell) and not says_something(follower):
            yield f"{name} shows a picture and prints nothing of it"


def warms_up(notebook: NotebookNode) -> Iterator[str]:
    """Begin with questions on what was before."""
    if not any(heading.startswith("Warm up") for heading in headings(notebook)):
        yield "no section 'Warm up'"


# ── the notebooks ────────────────────────────────────────────────────────────────────────────────

RULES: tuple[Rule, ...] = (
    is_a_notebook,
    runs_anywhere,
    was_run_from_top_to_bottom,
    ends_without_error,
    writes_nothing_to_stderr,
    shows_text_and_pictures_alone,
    prints_the_same_everywhere,
    keeps_no_times,
    excuses_its_exceptions,
    has_short_cells,
    avoids_the_traps,
    says_what_it_is,
    has_every_section,
    gives_pictures_a_text_twin,
)


def read(path: Path) -> NotebookNode:
    """Return the notebook as it is stored."""
    notebook: NotebookNode = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    return notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_notebook(rule: Rule, path: Path) -> None:
    """Each notebook keeps each rule."""
    assert list(rule(read(path))) == []


def test_there_are_notebooks_and_later_ones_warm_up() -> None:
    """The course is there; from the third on, a notebook begins with earlier ones."""
    assert NOTEBOOKS, "no notebooks in notebooks/"
    later = [path for path in NOTEBOOKS if int(path.stem[:2]) >= FIRST_TO_WARM_UP]
    assert {p.name: faults for p in later if (faults := list(warms_up(read(p))))} == {}


def test_few_cells_of_the_course_are_not_compared() -> None:
    """There are at most two in all notebooks together."""
    assert sum(len(not_compared(read(path))) for path in NOTEBOOKS) <= EXCEPTIONS


# ── the rules can tell: a good notebook passes each, and a change that breaks one is found ───────


def good() -> NotebookNode:
    """Return a small notebook that keeps every rule."""
    title = "# Kill a worker\n\nYou will *do* it, and *learn* why. You need 10 minutes."
    sections = "\n".join(f"## {section}" for section in ("Warm up", *SECTIONS))
    picture = new_output("display_data", data={"image/png": "", "text/plain": "<Figure>"})
    cells = [
        new_markdown_cell(title),
        new_markdown_cell(sections),
        new_code_cell(
            "1 + 1",
            execution_count=1,
            outputs=[new_output("execute_result", data={"text/plain": "2"}, execution_count=1)],
        ),
        new_code_cell("show()", execution_count=2, outputs=[picture]),
        new_code_cell(
            "print('w1 [==D')",
            execution_count=3,
            outputs=[new_output("stream", name="stdout", text="w1 [==D\n")],
        ),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook: NotebookNode = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    return notebook


Change = Callable[[NotebookNode], object]

PICTURE = 3  # the cell that shows one; the next prints its twin
LAST = -1


def source(text: str) -> Change:
    """Return the change that gives the last cell another source."""
    return lambda notebook: notebook.cells[LAST].update(source=text)


def shows(kind: str, **fields: object) -> Change:
    """Return the change that gives the last cell another output."""
    return lambda notebook: notebook.cells[LAST].update(outputs=[new_output(kind, **fields)])


def prints(text: str) -> Change:
    """Return the change that lets the last cell print something else."""
    return shows("stream", name="stdout", text=text)


def tag(word: str) -> Change:
    """Return the change that tags the last cell."""
    return lambda notebook: notebook.cells[LAST].metadata.update(tags=[word])


def without(text: str) -> Change:
    """Return the change that takes a piece out of the prose."""

    def change(notebook: NotebookNode) -> None:
        for cell in notebook.cells[:2]:
            cell.source = cell.source.replace(text, "")

    return change


CHANGES: list[tuple[Rule, Change, str]] = [
    (is_a_notebook, lambda n: n.cells[LAST].update(cell_type="song"), "not valid"),
    (runs_anywhere, lambda n: n.metadata.kernelspec.update(name="mine"), "kernel mine"),
    (was_run_from_top_to_bottom, lambda n: n.cells[LAST].update(execution_count=None), "None"),
    (was_run_from_top_to_bottom, lambda n: n.cells[LAST].update(execution_count=7), "7"),
    (ends_without_error, shows("error", ename="KeyError", evalue="", traceback=[]), "KeyError"),
    (ends_without_error, tag("raises-exception"), "may raise"),
    (ends_without_error, tag("nbval-raises-exception"), "may raise"),
    (ends_without_error, source("# NBVAL_RAISES_EXCEPTION\n1 / 0"), "may raise"),
    (writes_nothing_to_stderr, shows("stream", name="stderr", text="oh"), "'oh'"),
    (shows_text_and_pictures_alone, lambda n: n.metadata.update(widgets={}), "widgets"),
    (shows_text_and_pictures_alone, shows("display_data", data={"text/html": "x"}), "text/html"),
    (prints_the_same_everywhere, prints("<object at 0x7f01>"), "0x7f01"),
    (prints_the_same_everywhere, prints("see /usr/lib/jobs.db"), "/usr/"),
    (prints_the_same_everywhere, prints("job " + "0af3" * 8), "0af3"),
    (prints_the_same_everywhere, prints("took 97e0a08d"), "97e0a08d"),
    (prints_the_same_everywhere, prints("worker-812 started"), "worker-812"),
    (prints_the_same_everywhere, prints("http://127.0.0.1:8718/jobs"), "127.0.0.1:8718"),
    (prints_the_same_everywhere, prints("on 2026-12-01"), "2026-12-01"),
    (prints_the_same_everywhere, prints("at 09:30:00"), "09:30:00"),
    (keeps_no_times, lambda n: n.cells[LAST].metadata.update(execution={}), "execution"),
    (excuses_its_exceptions, tag("nbval-ignore-output"), "no reason"),
    (excuses_its_exceptions, source("# NBVAL_SKIP\nrun()"), "no reason"),
    (has_short_cells, source("x = 1\n" * 13), "13 lines"),
    (avoids_the_traps, source("os.system('ls')"), "os.system"),
    (avoids_the_traps, source("plot();"), "semicolon"),
    (says_what_it_is, without("# Kill a worker"), "# "),
    (says_what_it_is, without("*learn*"), "learn"),
    (says_what_it_is, without("minutes"), "minutes"),
    (has_every_section, without("## Break it"), "'Break it'"),
    (gives_pictures_a_text_twin, lambda n: n.cells.pop(), "prints nothing"),
    (warms_up, without("## Warm up"), "'Warm up'"),
]


@pytest.mark.parametrize("rule", [*RULES, warms_up], ids=lambda rule: rule.__name__)
def test_a_good_notebook_passes(rule: Rule) -> None:
    """No rule convicts a notebook that keeps them all."""
    assert list(rule(good())) == []


@pytest.mark.parametrize(("rule", "change", "words"), CHANGES)
def test_a_bad_notebook_is_convicted(rule: Rule, change: Change, words: str) -> None:
    """The change breaks one rule, and the message says what is wrong."""
    notebook = good()
    change(notebook)
    assert words in "\n".join(rule(notebook))


def test_every_rule_has_convicted() -> None:
    """No rule stands there that could not fail."""
    assert {rule for rule, _, _ in CHANGES} == {*RULES, warms_up}


def test_an_excuse_is_heard() -> None:
    """A cell that is not compared passes with its reason, and is still counted."""
    notebook = good()
    source(f"# NBVAL_SKIP\n{NOT_COMPARED} it needs a browser")(notebook)
    assert list(excuses_its_exceptions(notebook)) == []
    assert len(not_compared(notebook)) == 1
