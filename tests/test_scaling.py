"""jobq.lab.scaling and scalingplot: many runs, their file, their table and their picture."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from jobq.errors import LabError
from jobq.lab.pgserver import NoServer
from jobq.lab.scaling import (
    NAMES,
    SAYS,
    WORKERS,
    Scaling,
    measure_scaling,
    read_scaling,
    text_scaling,
    write_scaling,
)
from jobq.lab.scalingplot import MEASUREMENT, PICTURE, plot_scaling, show_scaling
from jobq.lab.throughput import WAIT, Throughput, Way

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def measured(**rates: float) -> Scaling:
    """Return a measurement: jobs a second and worker on each engine, alike for every way."""
    runs = [
        Throughput(engine, way, workers, round(rate * workers), 1.0)
        for engine, rate in rates.items()
        for way, workers in itertools.product(Way, WORKERS)
    ]
    return Scaling("2 cores", "synchronous=FULL", 3, tuple(runs))


USUAL = measured(sqlite=1_000.0, postgresql=1_500.0)


def test_a_measurement_is_kept_in_a_file(tmp_path: Path) -> None:
    """What is read back is what was written, and it may be written anew."""
    path = tmp_path / MEASUREMENT
    for measurement in (USUAL, measured(sqlite=1.5, postgresql=2.5)):
        write_scaling(measurement, path)
        assert read_scaling(path) == measurement


@pytest.mark.parametrize("content", ["a holiday", "[]", "{}", '{"runs": [{"way": "single"}]}'])
def test_a_file_of_somebody_else_is_no_measurement(tmp_path: Path, content: str) -> None:
    """It is not read as one, and not overwritten by one."""
    path = tmp_path / MEASUREMENT
    path.write_text(content, encoding="utf-8")
    for use in (read_scaling, lambda path: write_scaling(USUAL, path)):
        with pytest.raises(LabError, match=r"scaling\.json is no measurement of scaling"):
            use(path)
    assert path.read_text(encoding="utf-8") == content


def test_the_table_has_every_run() -> None:
    """A row for each kind of job on each engine, a column for each number of workers."""
    head, *rows, day, machine, durable = text_scaling(USUAL).splitlines()
    assert head.split()[-4:] == ["1", "2", "4", "8"]
    assert len(rows) == len(Way) * len(NAMES)
    assert rows[0].endswith("SQLite        1,000    2,000    4,000    8,000")
    assert (day, machine, durable) == (
        "PostgreSQL in a day: 1,037 million jobs one at a time, 1,037 in batches",
        "2 cores; best of 3 runs, all processes on one machine",
        "synchronous=FULL",
    )


def test_each_line_of_the_picture_has_its_runs() -> None:
    """A panel for each way; in it the points of each engine are the measured ones."""
    picture = plot_scaling(USUAL)
    for axes, way in zip(picture.panels, Way, strict=True):
        drawn = [np.asarray(line.get_xydata()).tolist() for line in axes.lines]
        for engine in NAMES:
            assert [[r.workers, r.per_second] for r in USUAL.of(engine, way)] in drawn
        ideal = [[workers, workers / WAIT] for workers in WORKERS]
        assert (ideal in drawn) is (way is Way.WAITING)


def test_a_line_is_named_where_it_ends_in_its_colour() -> None:
    """No legend to look up: engine and figure stand beside the last point."""
    [axes, *_] = plot_scaling(USUAL).panels
    names = {text.get_text(): text.get_color() for text in axes.texts}
    assert names.keys() == {"SQLite\n8,000", "PostgreSQL\n12,000"}
    assert sorted(names.values()) == sorted(to_hex(line.get_color()).upper() for line in axes.lines)


def test_the_lines_differ_without_colours() -> None:
    """Engines can be told apart by marker and by dashes too."""
    for axes in plot_scaling(USUAL).panels:
        looks = [(line.get_marker(), line.get_linestyle()) for line in axes.lines]
        for part in zip(*looks, strict=True):
            assert len(set(part)) == len(looks)


def test_the_picture_says_what_the_figures_hold_for() -> None:
    """Machine, rounds and durable settings stand beneath it."""
    found = plot_scaling(USUAL).figure.findobj(lambda artist: isinstance(artist, Text))
    words = "\n".join(text.get_text() for text in found if isinstance(text, Text))
    for part in ("2 cores", "best of 3 runs", "synchronous=FULL", *SAYS.values()):
        assert part.replace(", ", ",\n") in words or part in words
    once = replace(USUAL, rounds=1)
    assert "one run each" in text_scaling(once)


@pytest.mark.usefixtures("pg_server")  # which skips where there is no PostgreSQL
def test_every_kind_is_measured_on_both_engines(tmp_path: Path) -> None:
    """A short measurement has a figure for each, with the settings that the server has."""
    said: list[str] = []
    found = measure_scaling(tmp_path, said.append, workers=(2,), scale=0.005)
    kinds = {(run.engine, run.way, run.workers) for run in found.runs}
    assert kinds == set(itertools.product(NAMES, Way, (2,)))
    assert len(said) == len(kinds) == len(found.runs)
    assert found.durable.endswith("PostgreSQL: fsync=on, synchronous_commit=on")


def test_the_picture_of_the_readme_is_that_of_its_table() -> None:
    """What README shows, picture and table, was drawn from the one measurement in data/."""
    table = text_scaling(read_scaling(DATA / MEASUREMENT))
    assert table.encode("ascii") in (DATA / PICTURE).read_bytes()
    assert f"(data/{PICTURE})" in README
    assert f"```text\n{table}\n```" in README


def test_the_command_leaves_measurement_and_picture(tmp_path: Path) -> None:
    """A file of somebody else stays as it is, and is found before anything is measured."""
    for name in (MEASUREMENT, PICTURE):
        folder = tmp_path / name.partition(".")[2]
        folder.mkdir()
        (folder / name).write_text("a holiday", encoding="utf-8")
        with pytest.raises(LabError, match=name):
            show_scaling(pytest.fail, folder, rounds=1)
        assert (folder / name).read_text(encoding="utf-8") == "a holiday"


def test_without_psycopg_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain install cannot reach PostgreSQL: the error names the mend."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(NoServer, match=r"pip install 'jobq\[course\]'"):
        measure_scaling(tmp_path, pytest.fail)
