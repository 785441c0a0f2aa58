"""Exercises are code with a contract: unsolved must not pass, solved must, and wrong says why."""

import re

import pytest

from jobq.course import Exercise, Grade, check_setup, ex, observe, predict, show_source, show_sql
from jobq.course.exercise import exercises_of
from jobq.errors import InvalidInput
from jobq.store.endings import after_crash

NOTEBOOKS = [f"{number:02d}" for number in range(100)]
ALL = {n: e for notebook in NOTEBOOKS for n, e in exercises_of(notebook).items()}

# For each exercise, typical wrong answers and words that name the mistake.
WRONG = {
    "00.1": [
        ("answer = (200, 'Location')", "only written down"),
        ("answer = (202, 'Retry-After')", "when to look"),
        ("answer = (404, 'Location')", "not what the server sent"),
        ("answer = (202, 'Server')", "does not hold the address"),
    ],
    "00.2": [
        ("answer = {'done', 'failed'}", "one is missing"),
        ("answer = {'done', 'failed', 'cancelled', 'running'}", "can still change"),
        ("answer = {'done', 'failed', 'cancelled', 'lost'}", "no status"),
    ],
    "00.3": [
        ("def answer(get, sleep):\n    return get()[0]", "stopped looking"),
        (
            (
                "def answer(get, sleep):\n    while (look := get())[0] != 'done':\n"
                "        sleep(look[1] or 1)\n    return 'done'"
            ),
            "failed is final",
        ),
        (
            (
                "def answer(get, sleep):\n    while (look := get())[0] in {'queued', 'running'}:\n"
                "        sleep(0.2)\n    return look[0]"
            ),
            "Retry-After asked",
        ),
        (
            (
                "def answer(get, sleep):\n    while (look := get())[0] in {'queued', 'running'}:\n"
                "        sleep(look[1])\n    return True"
            ),
            "returned True",
        ),
    ],
    "04.1": [
        ("answer = 30", "counts from the last heartbeat"),
        ("answer = 31", "counts from the last heartbeat"),
        ("answer = 26", "somebody still has to look"),
        ("answer = 34", "count from the last heartbeat"),
    ],
    "04.2": [
        ("answer = 6", "a healthy job runs twice"),
        ("answer = 900", "over the 60 s promised"),
    ],
    "04.3": [
        (
            "def answer(recipients, sent, send):\n    for r in recipients:\n        send(r)",
            "killed after the mail to ben: ana and ben got more than one mail",
        ),
        (
            (
                "def answer(recipients, sent, send):\n    for r in recipients:\n"
                "        if r not in sent:\n            sent.add(r)\n            send(r)"
            ),
            "ana never gets a mail",
        ),
        (
            (
                "def answer(recipients, sent, send):\n"
                "    todo = [r for r in recipients if r not in sent]\n"
                "    for r in todo:\n        send(r)\n    for r in todo:\n        sent.add(r)"
            ),
            "more than one mail",
        ),
        ("def answer(recipients, sent, send):\n    pass", "without any kill"),
    ],
}
STRANGE = {
    "None": None,
    "word": "twelve",
    "3.5": 3.5,
    "list": ["a"],
    "function that raises": lambda *_: 1 / 0,
}


def run(code: str) -> object:
    """Return what the code leaves in `answer`."""
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 - solutions are code
    return names["answer"]


@pytest.mark.parametrize("exercise", ALL.values(), ids=list(ALL))
def test_unsolved_is_not_attempted(exercise: Exercise) -> None:
    """The `...` of the notebook is neither right nor wrong."""
    assert exercise.check(...).grade is Grade.NOT_ATTEMPTED


@pytest.mark.parametrize("exercise", ALL.values(), ids=list(ALL))
def test_the_shipped_solution_is_right(exercise: Exercise) -> None:
    """What `.solution()` prints passes `.check()`."""
    assert exercise.check(run(exercise.solution_code)).grade is Grade.RIGHT


@pytest.mark.parametrize("exercise", ALL.values(), ids=list(ALL))
def test_typical_wrong_answers_are_named(exercise: Exercise) -> None:
    """At least two wrong answers are called wrong, in words that name the mistake."""
    answers = WRONG[exercise.number]
    assert len(answers) >= 2
    for code, words in answers:
        verdict = exercise.check(run(code))
        assert verdict.grade is Grade.WRONG, (code, verdict)
        assert words in verdict.reason, (code, verdict)


@pytest.mark.parametrize("exercise", ALL.values(), ids=list(ALL))
@pytest.mark.parametrize("answer", STRANGE.values(), ids=STRANGE)
def test_a_strange_answer_is_told_not_thrown(exercise: Exercise, answer: object) -> None:
    """Whatever is handed in, the learner gets a verdict with a reason, and never a traceback."""
    verdict = exercise.check(answer)
    assert verdict.grade in {Grade.WRONG, Grade.CANNOT_TELL}
    assert verdict.reason


@pytest.mark.parametrize("exercise", ALL.values(), ids=list(ALL))
def test_hints_are_there_and_numbered(
    exercise: Exercise, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each exercise has at least two hints; asking for one too many is a clear error."""
    assert len(exercise.hints) >= 2
    exercise.hint()
    exercise.hint(2)
    told = capsys.readouterr().out.splitlines()
    assert [re.match(r"hint \d of \d: .{20,}", line) is not None for line in told] == [True, True]
    with pytest.raises(InvalidInput, match="there are 1 to"):
        exercise.hint(len(exercise.hints) + 1)


def test_a_function_that_is_not_written_is_not_attempted() -> None:
    """A stub that raises NotImplementedError is no wrong answer."""

    def stub(*_: object) -> None:
        raise NotImplementedError

    assert ex("00.3").check(stub).grade is Grade.NOT_ATTEMPTED


@pytest.mark.parametrize("number", ["4.1", "04.9", "99.1", "04.1; import os", ""])
def test_an_unknown_number_is_a_clear_error(number: str) -> None:
    """A mistyped number of an exercise is named."""
    with pytest.raises(InvalidInput, match="there is no exercise"):
        ex(number)


def test_a_prediction_is_held_against_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    """The observing cell repeats the prediction; an untouched one is not answered."""
    predict("99.1", "it hangs")
    observe("99.1", "it ran", "reasons")
    predict("99.2", ...)
    observe("99.2", "it ran", "reasons")
    assert capsys.readouterr().out.splitlines() == [
        "prediction 99.1: it hangs",
        "you said: it hangs",
        "it did:   it ran",
        "because:  reasons",
        "prediction 99.2: not answered",
        "you said: not answered",
        "it did:   it ran",
        "because:  reasons",
    ]


def test_the_code_shown_is_the_code_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """show_source and show_sql print from the package itself, with the file's name."""
    show_source(after_crash)
    show_sql("heartbeat")
    told = capsys.readouterr().out
    assert told.startswith("# jobq/store/endings.py\ndef after_crash(")
    assert "-- jobq/store/sqlite.sql\nUPDATE jobs SET locked_until = :locked_until" in told


def test_the_setup_of_the_test_machine_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the tests run, the course runs: every need is met."""
    check_setup()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(line.endswith(": yes") for line in lines), lines
