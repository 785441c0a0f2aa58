"""The timeline as text of fixed width: a lane for each worker, in plain ASCII. Pure.

`text` has a column for each step. Nothing in it depends on a clock, so a notebook's output can be
compared with it. `text_to_scale` has seconds along its width.
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence

from jobq.job import EventName, Outcome
from jobq.lab.story import Deed
from jobq.lab.timeline import Bar, Step, Timeline

COLUMN = 10  # characters of a step: the longest word is "continued"
TICK = 8  # characters between two ticks, at the least
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

BEGINS, WORKS, HEARTBEAT, IDLE, STILL_RUNS, WAITS = "[=*.>-"
LETTERS: dict[str, str] = {  # by word: the event that ends an attempt is called as its outcome
    Deed.KILLED: "X",
    Deed.PAUSED: "P",
    Deed.CONTINUED: "G",
    Deed.STOPPED: "S",
    Deed.EXITED: "E",
    Outcome.CRASHED: "C",
    Outcome.FAILED: "F",
    Outcome.RELEASED: "R",
    Outcome.CANCELLED: "N",
    Outcome.DONE: "D",
    EventName.CANCEL_REQUESTED: "?",
}
TITLES: dict[str, str] = {
    EventName.CANCEL_REQUESTED: "cancel?"
}  # of steps whose name is longer than a column
CRASHES = {True: "the lease ran out", False: "the process died"}
MEANINGS = {
    BEGINS: "attempt begins",
    WORKS: "works",
    HEARTBEAT: "heartbeat",
    IDLE: "leased, but nobody works",
    STILL_RUNS: "still runs",
    WAITS: "waits in the queue",
    **{letter: str(word) for word, letter in LETTERS.items()},
    "?": "to be cancelled",
}


def text(timeline: Timeline, *, width: int = 78) -> str:
    """Return the picture with a column for each step; where the width ends it goes on below."""
    margin = _margin(timeline.lanes)
    steps = timeline.steps
    rows = [
        ("", "".join(f"{TITLES.get(step.name, step.name):{COLUMN}}" for step in steps)),
        ("", "".join(f"{step.job or '':{COLUMN}.{COLUMN - 1}}" for step in steps)),
        *((lane, _cells(lane, steps)) for lane in timeline.lanes),
    ]
    per_block = max(1, (width - margin) // COLUMN) * COLUMN
    blocks = [
        [f"{label:{margin}}{row[left : left + per_block]}".rstrip() for label, row in rows]
        for left in range(0, len(steps) * COLUMN, per_block)
    ]
    return "\n\n".join(["\n".join(block) for block in blocks] + _legend(timeline, set(), width))


def _cells(lane: str, steps: Sequence[Step]) -> str:
    """Return a lane's row: at each step that concerns it a sign, and then what goes on."""
    row, goes_on = "", " "
    for step in steps:
        sign = goes_on
        if step.worker == lane:
            sign, goes_on = _sign(step), _after(step, goes_on)
        row += sign[:COLUMN].ljust(COLUMN, goes_on)
    return row if goes_on != WORKS else row[:-1] + STILL_RUNS


def _sign(step: Step) -> str:
    if step.name is EventName.CLAIMED:
        return BEGINS + _title(step.job, step.attempt)
    return LETTERS[step.name]


def _after(step: Step, before: str) -> str:
    """Return what goes on in a worker's lane after a step that concerns it."""
    if step.name is EventName.CLAIMED:
        return WORKS
    if step.name is EventName.CANCEL_REQUESTED:
        return before
    if isinstance(step.name, Deed) and before != " ":
        return WORKS if step.name is Deed.CONTINUED else IDLE
    return " "


def text_to_scale(timeline: Timeline, *, width: int = 78) -> str:
    """Return the picture with the seconds since the first happening along its width."""
    margin = _margin([*timeline.lanes, "queue"])
    columns = width - margin
    scale = (columns - 1) / (timeline.span or 1.0)

    def column(at: float) -> int:
        return round(at * scale)

    rows = [("", row) for row in _ruler(timeline.span, columns, column)]
    queue = _queue(timeline, columns, column)
    if WAITS in queue:
        rows.append(("queue", queue))
    rows += [(lane, _scaled(lane, timeline, columns, column)) for lane in timeline.lanes]
    picture = "\n".join(f"{label:{margin}}{row}".rstrip() for label, row in rows)
    signs = {HEARTBEAT for bar in timeline.bars if bar.heartbeats} | ({WAITS} & set(queue))
    return "\n\n".join([picture, *_legend(timeline, signs, width)])


def _ruler(span: float, columns: int, column: Callable[[float], int]) -> Iterator[str]:
    """Give two rows: round numbers of a fitting unit, and a tick below each."""
    size, unit = next(((s, u) for s, u in UNITS if span >= 3 * s), UNITS[-1])
    least = max(span, 0.001) / size * TICK / columns
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= least)
    numbers, ticks = [" "] * columns, [" "] * columns
    for n in range(int(span / size / step + 0.001) + 1):  # floats lose a little
        left, label = column(n * step * size), f"{n * step:g} {unit}"
        ticks[left] = "|"
        begin = min(left, columns - len(label))
        if not "".join(numbers[max(0, begin - 1) :]).strip():
            numbers[begin:] = label.ljust(columns - begin)
    yield "".join(numbers)
    yield "".join(ticks)


def _scaled(lane: str, timeline: Timeline, columns: int, column: Callable[[float], int]) -> str:
    """Return a lane's row; where two signs fall on one place, the later in this order stays."""
    row = [" "] * columns
    for bar in timeline.bars:
        if bar.worker == lane:
            _draw(row, bar, column)
    for step in timeline.steps:
        if step.worker == lane and step.within:
            row[column(step.at)] = LETTERS[step.name]
    return "".join(row)


def _draw(row: list[str], bar: Bar, column: Callable[[float], int]) -> None:
    left, right = column(bar.start), min(column(bar.end), len(row) - 1)
    row[left:right] = WORKS * (right - left)
    row[left] = BEGINS
    for begin, end in bar.idle:
        row[column(begin) : column(end)] = IDLE * (column(end) - column(begin))
    for at in bar.heartbeats:
        row[column(at)] = HEARTBEAT
    title = _title(bar.job, bar.number)
    if row[left + 1 : left + 2 + len(title)] == [WORKS] * (len(title) + 1):
        row[left + 1 : left + 1 + len(title)] = title
    if bar.outcome:
        row[right] = LETTERS[bar.outcome]
    elif _still_runs(bar):
        row[right] = STILL_RUNS


def _queue(timeline: Timeline, columns: int, column: Callable[[float], int]) -> str:
    """Return the row of the waits, blank with several jobs: theirs would lie on one another."""
    row = [" "] * columns
    if len({wait.job for wait in timeline.waits}) == 1:
        for wait in timeline.waits:
            left, right = column(wait.start), column(wait.end)
            row[left:right] = WAITS * (right - left)
    return "".join(row)


def _title(job: str | None, attempt: int) -> str:
    return f"{job}#{attempt}"


def _margin(lanes: Sequence[str]) -> int:
    return max((len(lane) for lane in lanes), default=0) + 2


def _legend(timeline: Timeline, signs: set[str], width: int) -> list[str]:
    """Return a paragraph that tells the meaning of the signs, and of those in every picture."""
    if not timeline.bars:
        return []
    used = signs | {BEGINS, WORKS} | {LETTERS[s.name] for s in timeline.steps if s.name in LETTERS}
    used |= {IDLE for bar in timeline.bars if bar.idle}
    used |= {STILL_RUNS for bar in timeline.bars if _still_runs(bar)}
    # A space that textwrap does not break at holds a sign and its meaning together.
    entries = [
        f"{sign} {meaning}".replace(" ", "\N{NO-BREAK SPACE}")
        for sign, meaning in (MEANINGS | _crash(timeline)).items()
        if sign in used
    ]
    lines = textwrap.wrap("   ".join(entries), width, break_long_words=False)
    return ["\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")]


def _crash(timeline: Timeline) -> dict[str, str]:
    """Return the meaning of a crash in this picture."""
    crashes = {bar.ran_out for bar in timeline.bars if bar.outcome is Outcome.CRASHED}
    words = " or ".join(words for ran_out, words in CRASHES.items() if ran_out in crashes)
    return {LETTERS[Outcome.CRASHED]: f"crashed: {words}"}


def _still_runs(bar: Bar) -> bool:
    return bar.outcome is None and not (bar.idle and bar.idle[-1][1] >= bar.end)
