"""The picture of scaling: what more workers bring, on each engine.

The engines differ in colour, in marker and in dashes, and each line is named where it ends. The
colours are those of Okabe and Ito, which colour-blind people can tell apart.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jobq.lab.folders import fresh_folder
from jobq.lab.picture import DARK, FONT, Picture, check_ours, plain_style
from jobq.lab.scaling import (
    NAMES,
    SAYS,
    Say,
    Scaling,
    check_measurement,
    how_measured,
    measure_scaling,
    text_scaling,
    write_scaling,
)
from jobq.lab.throughput import WAIT, Way

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASUREMENT, PICTURE = "scaling.json", "scaling.png"
GREY = "#DDDDDD"
SIZE = (14.0, 6.2)  # inches
ROOM = 1.68  # of the width of the lines, for them and for the names beside their ends
HEADROOM = 1.08
APART = 0.16  # of a panel's height: between the middles of two names of two lines each


class Look(NamedTuple):
    """How a line looks."""

    colour: str
    marker: str
    dashes: str


LOOKS = {"sqlite": Look("#D55E00", "o", "-"), "postgresql": Look("#0072B2", "s", "--")}
NO_OVERHEAD = Look("#777777", "", ":")


class Line(NamedTuple):
    """A line of a panel: jobs a second, with the fewest workers first."""

    name: str
    look: Look
    heights: list[float]


@plain_style()
def plot_scaling(scaling: Scaling, *, title: str = "What more workers bring") -> Picture:
    """Return the picture with a panel for each kind of job, and a line for each engine in it."""
    picture = Picture(title, SIZE, panels=len(Way))
    picture.text = text_scaling(scaling)
    numbers = sorted({run.workers for run in scaling.runs})
    for axes, way in zip(picture.panels, Way, strict=True):
        axes.set_title(SAYS[way].replace(", ", ",\n"), loc="left", fontsize=FONT + 1)
        _draw(axes, numbers, _lines(scaling, way, numbers))
        axes.set_xticks(numbers)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("workers")
        axes.grid(axis="y", color=GREY)
        axes.set_axisbelow(True)
    picture.axes.set_ylabel("jobs a second")
    picture.figure.supxlabel("\n".join(how_measured(scaling)), fontsize=FONT - 3, x=0.01, ha="left")
    return picture


def _lines(scaling: Scaling, way: Way, numbers: list[int]) -> list[Line]:
    lines = [
        Line(NAMES[engine], look, [run.per_second for run in scaling.of(engine, way)])
        for engine, look in LOOKS.items()
    ]
    if way is Way.WAITING:
        lines.append(Line("the waits alone", NO_OVERHEAD, [number / WAIT for number in numbers]))
    return lines


def _draw(axes: "Axes", numbers: list[int], lines: list[Line]) -> None:
    """Draw the lines from zero up, and name each where it ends."""
    for line in lines:
        colour, marker, dashes = line.look
        axes.plot(numbers, line.heights, dashes, color=colour, marker=marker, ms=9, lw=2.5)
    top = HEADROOM * max(max(line.heights) for line in lines)
    axes.set_xlim(0, ROOM * numbers[-1])
    axes.set_ylim(0, top)
    rising = sorted(lines, key=lambda line: line.heights[-1])
    places = _spread([line.heights[-1] / top for line in rising])
    for line, place in zip(rising, places, strict=True):
        axes.annotate(
            f"{line.name}\n{line.heights[-1]:,.0f}",
            (numbers[-1], place),
            (12, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="center",
            color=DARK if line.look is NO_OVERHEAD else line.look.colour,
            fontweight="bold",
        )


def _spread(heights: list[float]) -> list[float]:
    """Return the heights, lowest first, moved so far that none is too near to another one."""
    placed: list[float] = []
    for height in heights:  # upwards
        placed.append(max(height, placed[-1] + APART if placed else APART / 2))
    ceiling = 1.0
    for at in reversed(range(len(placed))):  # and down again, below the top
        placed[at] = min(placed[at], ceiling)
        ceiling = placed[at] - APART
    return placed


def show_scaling(say: Say, folder: Path, *, rounds: int) -> None:
    """Measure what more workers bring, tell it, and leave `scaling.json` and `scaling.png`.

    Raises LabError if a run lost a job or ran one twice, and NoServer without a PostgreSQL.
    """
    check_measurement(folder / MEASUREMENT)  # now, and not after some minutes
    check_ours(folder / PICTURE)
    files = fresh_folder()
    try:
        found = measure_scaling(files, say, rounds=rounds)
    finally:
        shutil.rmtree(files, ignore_errors=True)
    say(f"\n{text_scaling(found)}\n")
    write_scaling(found, folder / MEASUREMENT)
    plot_scaling(found).save(folder / PICTURE)
    say(f"measurement: {MEASUREMENT}; picture: {PICTURE}")
