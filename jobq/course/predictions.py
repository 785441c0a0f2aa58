"""Predict, then observe: what was expected is kept, and held against what happened."""

_NOT_ANSWERED = "not answered"
_predictions: dict[str, str] = {}


def predict(number: str, text: object) -> None:
    """Keep what the learner expects; the `...` of the notebook means that nothing was written."""
    _predictions[number] = _NOT_ANSWERED if text is ... else str(text).strip() or _NOT_ANSWERED
    print(f"prediction {number}: {_predictions[number]}")


def observe(number: str, did: str, because: str) -> None:
    """Print what was expected beside what happened and why."""
    print(f"you said: {_predictions.get(number, _NOT_ANSWERED)}")
    print(f"it did:   {did}")
    print(f"because:  {because}")
