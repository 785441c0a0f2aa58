"""What the notebooks import to teach: predictions, exercises, and the code behind what was seen."""

from jobq.course.exercise import Exercise, Grade, Verdict, ex
from jobq.course.predictions import observe, predict
from jobq.course.reading import show_source, show_sql
from jobq.course.setup import check_setup

__all__ = [
    "Exercise",
    "Grade",
    "Verdict",
    "check_setup",
    "ex",
    "observe",
    "predict",
    "show_source",
    "show_sql",
]
