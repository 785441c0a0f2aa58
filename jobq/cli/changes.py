"""What has happened since the last look, a line for each change."""

import time
from collections.abc import Iterator

from jobq.cli.lines import ID_SHOWN
from jobq.job import Event, EventName, Progress
from jobq.lab.story import sentence
from jobq.oneline import in_words
from jobq.store import Store

PAGE = 1_000  # events of one read


class Changes:
    """The changes of one job from its beginning, or those of the whole queue from now on.

    `after` is the `seq` of the last event that nobody wants to see. Without `progress` no
    heartbeat is told. `over` is whether the job was final when the lines were last asked for.
    """

    def __init__(
        self,
        store: Store,
        job_id: str | None = None,
        *,
        after: int | None = None,
        progress: bool = True,
    ) -> None:
        self._store = store
        self._job_id = job_id
        begin = 0 if job_id is not None else store.last_event()
        self._seen = begin if after is None else after
        self._progress = progress
        self._first: float | None = None
        self._told: dict[str, Progress] = {}  # the last that was told of each job that runs
        self.over = False

    def lines(self) -> Iterator[str]:
        """Yield a line for each change since the last time."""
        while page := self._store.events(self._job_id, after=self._seen, limit=PAGE):
            for event in page:
                if self._worth_telling(event):
                    yield f"{self._when(event)}  {describe(event)}"
            self._seen = page[-1].seq
            self.over = self._job_id is not None and page[-1].status.final

    def skip(self, most: int) -> None:
        """Leave out all but so many of the events that are still to be told."""
        self._seen = max(self._seen, self._store.last_event() - most)

    def _worth_telling(self, event: Event) -> bool:
        """Whether this is no heartbeat, or one that brings other progress than the one before."""
        if event.name is not EventName.HEARTBEAT:
            self._told.pop(event.job_id, None)
            return True
        known = not self._progress or event.progress == self._told.get(event.job_id)
        if event.progress is None or known:
            return False
        self._told[event.job_id] = event.progress
        return True

    def _when(self, event: Event) -> str:
        """Return the seconds since the job's first event; for the whole queue, the time of day."""
        if self._job_id is None:
            return clock(event.at)
        if self._first is None:
            self._first = event.at
        return f"{event.at - self._first:7.2f} s"


def describe(event: Event) -> str:
    """Return what happened as a sentence, with the first characters of the job's id."""
    if event.progress is not None:
        return f"{event.job_id[:ID_SHOWN]} is at {in_words(event.progress)}"
    return sentence(event, lambda job_id: job_id[:ID_SHOWN], str, waits=True)


def clock(at: float) -> str:
    """Return the time of day where this machine stands."""
    return time.strftime("%H:%M:%S", time.localtime(at))
