"""Break a queue on purpose, with real processes, and see what happens.

`Lab` starts and kills the processes. `text`, `plot_timeline` and `plot_recovery` draw what
happened, `plot_scaling` what more workers bring.
"""

from jobq.lab.lab import Lab, LabJob
from jobq.lab.mailing import Mailing, measure_mailing, text_mailings
from jobq.lab.plot import plot_recovery, plot_timeline
from jobq.lab.recovery import Recovery, measure_recovery, text_recovery
from jobq.lab.scaling import Scaling, measure_scaling, text_scaling
from jobq.lab.scalingplot import plot_scaling
from jobq.lab.text import text, text_to_scale

__all__ = [
    "Lab",
    "LabJob",
    "Mailing",
    "Recovery",
    "Scaling",
    "measure_mailing",
    "measure_recovery",
    "measure_scaling",
    "plot_recovery",
    "plot_scaling",
    "plot_timeline",
    "text",
    "text_mailings",
    "text_recovery",
    "text_scaling",
    "text_to_scale",
]
