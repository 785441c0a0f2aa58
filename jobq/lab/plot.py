"""The pictures of the lab: which worker had which job when, and how long recovery takes.

Outcomes differ in colour, in hatching and in words. The colours are those of Okabe and Ito
(jfly.uni-koeln.de/color), which colour-blind people can tell apart.
"""

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from jobq.job import EventName, Outcome
from jobq.lab.picture import DARK, FONT, Picture, plain_style
from jobq.lab.recovery import Recovery
from jobq.lab.story import Deed
from jobq.lab.timeline import Bar, Interval, Step, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 11.0  # inches
LETTER = 0.6 * FONT / 72  # inches, about
AXES_WIDTH = WIDTH - 1.2  # inches, about
HEIGHT = 0.42  # of a bar, where a lane is 1
LEGEND_ROW, LEGEND_COLUMNS = 4, 3  # entries that fit beside one another, and in several rows
RED = "#B00020"
SHORTEST = 1 / 200  # of the width: a bar that can be seen
GREY = "#DDDDDD"


class Look(NamedTuple):
    """How an attempt with some outcome looks."""

    colour: str
    hatch: str


LOOKS: dict[Outcome | None, Look] = {
    Outcome.DONE: Look("#009E73", ""),
    Outcome.CRASHED: Look("#E69F00", "//"),
    Outcome.FAILED: Look("#D55E00", "xx"),
    Outcome.RELEASED: Look("#56B4E9", ".."),
    Outcome.CANCELLED: Look("#CC79A7", "\\\\"),
    None: Look("#F0E442", "-"),
}
SIGNS: dict[EventName | Deed, tuple[str, str]] = {  # what comes to a worker from outside
    Deed.KILLED: ("X", "kill -9"),
    Deed.PAUSED: ("s", "paused"),
    Deed.CONTINUED: (">", "continued"),
    Deed.STOPPED: ("o", "stopped"),
    Deed.EXITED: ("o", "exited"),
    EventName.CANCEL_REQUESTED: ("D", "cancel"),
}


@plain_style()
def plot_timeline(timeline: Timeline, *, title: str = "Who had which job, and when") -> Picture:
    """Return the picture with a lane for each worker; `text` draws the same in letters.

    With one job alone, the times that it waited in the queue have a lane too.
    """
    one_job = len({wait.job for wait in timeline.waits}) == 1
    waits = [w for w in timeline.waits if one_job and w.end - w.start > timeline.span / 100]
    lanes = (["queue"] if waits else []) + list(timeline.lanes)
    picture = Picture(title, (WIDTH, 2.2 + 1.05 * len(lanes)))
    axes = picture.axes
    for wait in waits:
        _box(axes, 0, (wait.start, wait.end), color=GREY, label="waits in the queue")
    for bar in timeline.bars:
        _draw_bar(axes, lanes.index(bar.worker), bar, timeline)
    for step in timeline.steps:
        if step.within and step.worker is not None:
            _draw_sign(axes, lanes.index(step.worker), step)
    axes.set_yticks(range(len(lanes)), lanes, fontsize=FONT + 2, fontweight="bold")
    axes.set_ylim(len(lanes) - 0.35, -0.6)
    axes.set_xlim(0, _right_end(timeline))
    axes.set_xlabel("seconds since the first event")
    axes.grid(axis="x", color=GREY)
    axes.set_axisbelow(True)
    _add_legend(picture)
    return picture


@plain_style()
def plot_recovery(
    recoveries: Sequence[Recovery], *, title: str = "A shorter lease, a quicker recovery"
) -> Picture:
    """Return the picture of the lease against the time to recovery, and the promise as a band."""
    picture = Picture(title, (WIDTH, 5.5))
    axes = picture.axes
    longest = max(recovery.lease for recovery in recoveries) * 1.1
    poll = recoveries[0].poll
    axes.fill_between(
        (0, longest),
        (poll, longest + poll),
        color=LOOKS[Outcome.RELEASED].colour,
        alpha=0.35,
        label="promised: at most lease + poll",
    )
    axes.plot((0, longest), (0, longest), color=DARK, linestyle="dashed", label="the lease alone")
    axes.plot(
        [r.lease for r in recoveries],
        [r.seconds for r in recoveries],
        "o",
        markersize=11,
        color=LOOKS[Outcome.FAILED].colour,
        markeredgecolor=DARK,
        label="measured",
    )
    axes.set_xlim(0, longest)
    axes.set_ylim(0, max([longest + poll] + [r.seconds * 1.05 for r in recoveries]))
    axes.set_xlabel("lease, in seconds")
    axes.set_ylabel("from the kill until it runs again,\nin seconds")
    axes.tick_params(pad=8)  # else the two zeros touch
    axes.grid(color=GREY)
    axes.set_axisbelow(True)
    _add_legend(picture)
    return picture


def _draw_bar(axes: "Axes", lane: int, bar: Bar, timeline: Timeline) -> None:
    look, label = LOOKS[bar.outcome], f"attempt: {bar.outcome or 'runs'}"
    least = (timeline.span or 1.0) * SHORTEST
    edges = [bar.start, *chain.from_iterable(bar.idle), bar.end]
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        if begin < end or begin == bar.start:
            box = begin, max(end, begin + least)
            _box(axes, lane, box, color=look.colour, hatch=look.hatch, edgecolor=DARK, label=label)
    for begin, end in bar.idle:
        if begin < end:
            label = "leased, but nobody works"
            _box(
                axes,
                lane,
                (begin, end),
                color="white",
                edgecolor=DARK,
                linestyle=":",
                linewidth=2,
                label=label,
            )
    top, bottom = lane - HEIGHT / 2, lane + HEIGHT / 2
    if bar.heartbeats:
        axes.vlines(bar.heartbeats, bottom, bottom + 0.12, DARK, linewidth=3.5, label="heartbeat")
    if bar.ran_out:
        end, words = bottom + 0.31, "the lease runs out"
        axes.vlines(bar.end, top, end, RED, "dashed", linewidth=2.5, label=words)
        alone = len([b for b in timeline.bars if b.ran_out]) == 1
        if alone and bar.end > _length(words, timeline):  # else there is no room
            _say(axes, words, (bar.end, end), (-6, 0), ha="right", color=RED)
    _say(axes, _title(bar, timeline), (bar.start, top), (3, 5))


def _box(axes: "Axes", lane: int, interval: Interval, **look: Any) -> None:
    begin, end = interval
    axes.barh(lane, end - begin, HEIGHT, begin, **look)


def _title(bar: Bar, timeline: Timeline) -> str:
    """Return what fits above a bar, up to the next one of its lane."""
    following = [b.start for b in timeline.bars if b.worker == bar.worker and b.start > bar.start]
    room = min([*following, _right_end(timeline)]) - bar.start
    short, word = f"{bar.job}#{bar.number}", bar.outcome or "runs"
    titles = f"{bar.job} attempt {bar.number}: {word}", f"{short} {word}", short
    return next((title for title in titles if _length(title, timeline) < room), "")


def _draw_sign(axes: "Axes", lane: int, step: Step) -> None:
    marker, word = SIGNS[step.name]
    axes.plot(
        step.at,
        lane,
        marker,
        markersize=20,
        color="black",
        markeredgecolor="white",
        markeredgewidth=1.5,
        clip_on=False,
        zorder=5,
    )
    back = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 2}
    _say(axes, word, (step.at, lane), (14, 0), va="center", fontweight="bold", bbox=back)


def _say(
    axes: "Axes", words: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
) -> None:
    """Write words so many points away from a place."""
    axes.annotate(words, at, offset, textcoords="offset points", **style)


def _right_end(timeline: Timeline) -> float:
    """Return where the seconds end: after the last bar, and the words beside the last sign."""
    words = [
        step.at + _length(SIGNS[step.name][1] + "    ", timeline)
        for step in timeline.steps
        if step.within
    ]
    return max([(timeline.span or 1.0) * 1.02, *words])


def _length(words: str, timeline: Timeline) -> float:
    """Return about how many seconds of the axis are as long as the words."""
    return len(words) * LETTER / AXES_WIDTH * (timeline.span or 1.0)


def _add_legend(picture: Picture) -> None:
    """Explain each look once, beneath the axis."""
    handles, labels = picture.axes.get_legend_handles_labels()
    entries = dict(sorted(zip(labels, handles, strict=True), key=itemgetter(0)))
    picture.figure.legend(
        entries.values(),
        entries,
        loc="outside lower center",
        ncols=LEGEND_COLUMNS if len(entries) > LEGEND_ROW else LEGEND_ROW,
        frameon=False,
    )
