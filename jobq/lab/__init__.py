"""Break a queue on purpose, with real processes, and see what happens.

`Lab` starts and kills the processes. `text`, `plot_timeline` and `plot_recovery` draw what
happened.
"""

from jobq.lab.lab import Lab, LabJob
from jobq.lab.mailing import Mailing, measure_mailing, text_mailings
from jobq.lab.plot import plot_recovery, plot_timeline
from jobq.lab.recovery import Recovery, measure_recovery, text_recovery
from jobq.lab.text import text, text_to_scale

__all__ = [
    "Lab",
    "LabJob",
    "Mailing",
    "Recovery",
    "measure_mailing",
    "measure_recovery",
    "plot_recovery",
    "plot_timeline",
    "text",
    "text_mailings",
    "text_recovery",
    "text_to_scale",
]
