"""Break a queue on purpose, with real processes, and see what happens.

`Lab` starts and kills the processes. `text`, `plot_timeline` and `plot_recovery` draw what
happened.
"""

from jobq.lab.lab import Lab, LabJob
from jobq.lab.plot import plot_recovery, plot_timeline
from jobq.lab.recovery import Recovery, measure_recovery, text_recovery
from jobq.lab.text import text, text_to_scale

__all__ = [
    "Lab",
    "LabJob",
    "Recovery",
    "measure_recovery",
    "plot_recovery",
    "plot_timeline",
    "text",
    "text_recovery",
    "text_to_scale",
]
