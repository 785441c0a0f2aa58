"""jobq.lab.plot, scalingplot and picture: the pictures, and how they show themselves."""

import subprocess
import sys
from dataclasses import replace
from itertools import chain, combinations, product
from pathlib import Path

import matplotlib.style
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.text import Text

from jobq import Event, EventName, Outcome
from jobq.errors import LabError
from jobq.lab.picture import Picture
from jobq.lab.plot import LOOKS, plot_recovery, plot_timeline
from jobq.lab.recovery import Recovery
from jobq.lab.scaling import WORKERS, Scaling
from jobq.lab.scalingplot import plot_scaling
from jobq.lab.story import Deed, Mark
from jobq.lab.throughput import Throughput, Way
from jobq.lab.timeline import Bar, Step, Timeline, build

Crash = tuple[tuple[Event, ...], list[Mark]]

RECOVERIES = [Recovery(lease, 1.0, lease * 0.99) for lease in (0.5, 1.0, 2.0)]


@pytest.fixture
def crashed(crash: Crash) -> Timeline:
    """Return the timeline of a job that was recovered from a crash."""
    events, marks = crash
    return build(events, name_job=lambda _: "J1", name_worker=str, marks=marks)


def bar(worker: str, start: float, end: float, outcome: Outcome | None, number: int) -> Bar:
    """Return an attempt at job J1."""
    return Bar(worker, "J1", number, start, end, outcome, heartbeats=(start,), idle=())


def dense() -> Timeline:
    """Return a crowded timeline: short attempts of every outcome, and every deed."""
    outcomes = [*Outcome, None]
    bars = [bar(f"w{n % 3}", n / 4, n / 4 + 0.2, outcomes[n % 6], n) for n in range(40)]
    bars += [bar("w3", 0.0, 0.0, Outcome.FAILED, 41), bar("w3", 2.0, 2.5, Outcome.CRASHED, 42)]
    signs = [Step(3.0 + 1.7 * n, deed, "w3", None) for n, deed in enumerate(Deed)]
    signs.append(Step(4.0, EventName.CANCEL_REQUESTED, "w4", "J1", 43))
    return Timeline(("w0", "w1", "w2", "w3", "w4"), tuple(bars), (), tuple(signs), 10.0)


def texts(picture: Picture) -> list[Text]:
    """Return every text that can be read in the picture, after placing it."""
    picture.figure.draw_without_rendering()
    outside = set()  # numbers beyond the end of an axis are there, but not drawn
    for axis in chain.from_iterable((panel.xaxis, panel.yaxis) for panel in picture.panels):
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
        outside |= {tick.label1 for tick in ticks}
    found = picture.figure.findobj(lambda artist: isinstance(artist, Text))
    return [
        text
        for text in found
        if isinstance(text, Text) and text.get_text() and text.get_visible() and text not in outside
    ]


def test_the_crash_is_told_in_words(crashed: Timeline) -> None:
    """Who, what, the kill, the end of the lease and the outcomes can be read, not only seen."""
    assert {text.get_text() for text in texts(plot_timeline(crashed))} >= {
        *("worker-1", "worker-2", "queue", "kill -9", "the lease runs out"),
        *("J1 attempt 1: crashed", "J1 attempt 2: done", "seconds since the first event"),
        *("attempt: crashed", "attempt: done", "heartbeat", "leased, but nobody works"),
    }


def test_only_a_lease_that_ran_out_is_marked_as_one() -> None:
    """A process that was seen to die ended the attempt itself: no red line stands there."""
    crash = bar("w1", 0.0, 2.0, Outcome.CRASHED, 1)
    for ran_out in (True, False):
        bars = (replace(crash, ran_out=ran_out),)
        words = {t.get_text() for t in texts(plot_timeline(Timeline(("w1",), bars, (), (), 9.0)))}
        assert ("the lease runs out" in words) is ran_out


def scaling(sqlite: float, postgresql: float) -> Scaling:
    """Return a measurement: jobs a second and worker on each engine, alike for every way."""
    rates = {"sqlite": sqlite, "postgresql": postgresql}
    runs = [
        Throughput(engine, way, workers, 1_000_000, 1_000_000 / (rate * workers))
        for (engine, rate), way, workers in product(rates.items(), Way, WORKERS)
    ]
    return Scaling("2 cores, and so on", "synchronous=FULL", 3, tuple(runs))


@pytest.mark.parametrize(
    "case", ["crash", "dense", "recovery", "scaling", "scaling together", "scaling apart"]
)
def test_no_words_overlap_or_are_cut(crashed: Timeline, case: str) -> None:
    """Every text lies within the picture, and on no other text."""
    pictures = {
        "crash": lambda: plot_timeline(crashed),
        "dense": lambda: plot_timeline(dense()),
        "recovery": lambda: plot_recovery(RECOVERIES),
        "scaling": lambda: plot_scaling(scaling(1_000.0, 1_500.0)),
        "scaling together": lambda: plot_scaling(scaling(50.0, 50.0)),
        "scaling apart": lambda: plot_scaling(scaling(1.0, 100_000.0)),
    }
    picture = pictures[case]()
    places = [(text.get_text(), text.get_window_extent()) for text in texts(picture)]
    width, height = picture.figure.bbox.size
    cut = [w for w, p in places if p.x0 < 0 or p.y0 < 0 or p.x1 > width or p.y1 > height]
    overlapping = [(a, b) for (a, p), (b, q) in combinations(places, 2) if p.overlaps(q)]
    assert (cut, overlapping) == ([], [])


def test_outcomes_differ_in_colour_and_in_hatching() -> None:
    """Each outcome, and none, has a look of its own, with and without colours."""
    assert LOOKS.keys() == {*Outcome, None}
    assert len({look.colour for look in LOOKS.values()}) == len(LOOKS)
    assert len({look.hatch for look in LOOKS.values()}) == len(LOOKS)


def test_an_attempt_of_no_length_can_be_seen() -> None:
    """A bar is some pixels wide at the least."""
    short = Timeline(("w1",), (bar("w1", 0.0, 0.0, Outcome.FAILED, 1),), (), (), 100.0)
    (patch,) = plot_timeline(short).axes.patches
    assert patch.get_window_extent().width > 3


def test_the_readers_style_changes_nothing(crashed: Timeline) -> None:
    """On a dark theme too the face is white and the letters are dark: it is the same picture."""
    plain = plot_timeline(crashed).png()
    with matplotlib.style.context("dark_background"):
        assert plot_timeline(crashed).png() == plain


def test_a_picture_has_no_time_stamp(crashed: Timeline) -> None:
    """The same drawing is the same file, byte for byte, with no date in it."""
    png = plot_timeline(crashed).png()
    assert png == plot_timeline(crashed).png()
    assert b"Creation" not in png
    assert b"tIME" not in png


def test_a_notebook_shows_the_picture(crashed: Timeline) -> None:
    """As the value of a cell it is an image; its text is the same in every run."""
    shown, _ = DisplayFormatter().format(  # type: ignore[no-untyped-call] # IPython has no types here
        plot_timeline(crashed, title="A crash")
    )
    assert shown["image/png"].startswith(b"\x89PNG")
    assert shown["text/plain"] == "Picture('A crash')"


def test_a_picture_replaces_an_older_one_of_ours(tmp_path: Path, crashed: Timeline) -> None:
    """A file that the lab wrote may be written anew."""
    path = tmp_path / "crash.png"
    plot_timeline(crashed).save(str(path))  # as a cell of a notebook names it
    longer = plot_timeline(replace(crashed, span=9.0))
    longer.save(path)
    assert path.read_bytes() == longer.png()


def test_a_file_of_somebody_else_is_kept(tmp_path: Path, crashed: Timeline) -> None:
    """A file that is no picture of the lab is not overwritten, and the error names it."""
    path = tmp_path / "crash.png"
    path.write_bytes(b"a holiday")
    with pytest.raises(LabError, match=r"crash\.png is not a picture that jobq made"):
        plot_timeline(crashed).save(path)
    assert path.read_bytes() == b"a holiday"


def test_recovery_has_a_point_for_each_experiment() -> None:
    """The points are the leases and the seconds; the words say what is promised."""
    picture = plot_recovery(RECOVERIES)
    (points,) = (line for line in picture.axes.lines if line.get_label() == "measured")
    drawn = np.asarray(points.get_xydata()).tolist()
    assert drawn == [[recovery.lease, recovery.seconds] for recovery in RECOVERIES]
    assert "promised: at most lease + poll" in {text.get_text() for text in texts(picture)}


def test_a_broken_promise_is_in_the_picture() -> None:
    """A point above the band is not cut off."""
    _, top = plot_recovery([Recovery(1.0, 1.0, 9.0)]).axes.get_ylim()
    assert top > 9.0


def test_pyplot_is_left_alone() -> None:
    """Drawing touches no global state of pyplot: it is not even imported."""
    code = (
        "import sys; from jobq.lab import Recovery, plot_recovery; "
        "plot_recovery([Recovery(1, 1, 1)]).png(); print('matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "False\n"


def test_without_matplotlib_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, crashed: Timeline
) -> None:
    """A plain install has no matplotlib: the error names the mend."""
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(LabError, match=r"pip install 'jobq\[course\]'"):
        plot_timeline(crashed)
