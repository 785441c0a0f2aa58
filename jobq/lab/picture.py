"""A picture for paper, projector and notebook: white face, dark letters, no time stamp."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jobq.errors import LabError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DARK = "#222222"
DPI = 110
FONT = 13  # points: readable from the last row
SIGNATURE = "jobq lab"  # in the file, by which we know it for our own
STYLE = {
    "font.size": FONT,
    "legend.fontsize": FONT,
    "axes.titlesize": FONT + 4,
    "axes.titleweight": "bold",
    "text.color": DARK,
    "axes.edgecolor": DARK,
    "axes.labelcolor": DARK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": DARK,
    "ytick.color": DARK,
    "hatch.linewidth": 1.2,
}


@contextmanager
def plain_style() -> Iterator[None]:
    """Draw in our own style, whatever the reader has set; also a decorator.

    Raises LabError if matplotlib is not installed.
    """
    try:
        import matplotlib.style  # noqa: PLC0415 - an extra brings it; a plain install has none
    except ImportError as error:
        raise LabError(
            "a picture needs matplotlib, which is not installed: pip install 'jobq[course]'"
        ) from error
    with matplotlib.style.context(["default", STYLE]):
        yield


class Picture:
    """One drawing; it shows itself as the value of a notebook's cell.

    `size` is in inches; `axes` is the first of the `panels` beside one another. `text`, if it is
    set, tells the same in words, within the file. The figure has nothing to do with pyplot, which
    keeps global state.
    """

    @plain_style()
    def __init__(self, title: str, size: tuple[float, float], *, panels: int = 1) -> None:
        from matplotlib.figure import Figure  # noqa: PLC0415 - as above

        self.title = title
        self.text = ""
        self.figure = Figure(figsize=size, dpi=DPI, facecolor="white", layout="constrained")
        self.panels: list[Axes] = [
            self.figure.add_subplot(1, panels, number + 1) for number in range(panels)
        ]
        self.axes = self.panels[0]
        if panels == 1:
            self.axes.set_title(title, loc="left", pad=14)
        else:
            place = {"x": 0.01, "ha": "left"}
            self.figure.suptitle(title, fontsize=FONT + 4, fontweight="bold", **place)

    def __repr__(self) -> str:
        return f"Picture({self.title!r})"

    def _repr_png_(self) -> bytes:
        """Answer IPython's question for an image."""
        return self.png()

    @plain_style()
    def png(self) -> bytes:
        """Return the picture as PNG, the same bytes for the same drawing."""
        buffer = io.BytesIO()
        metadata = {"Software": SIGNATURE} | ({"Description": self.text} if self.text else {})
        self.figure.savefig(buffer, format="png", metadata=metadata)
        return buffer.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the picture, over an older one of ours too, but over no other file.

        Raises LabError if the file is not a picture of the lab.
        """
        path = Path(path)
        check_ours(path)
        path.write_bytes(self.png())


def check_ours(path: Path) -> None:
    """Raise LabError if there is a file that is not a picture of the lab."""
    if path.exists() and SIGNATURE.encode() not in path.read_bytes()[:1_000]:
        raise LabError(f"{path} is not a picture that jobq made: move it away, it is kept")
