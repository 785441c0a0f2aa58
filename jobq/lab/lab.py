"""The lab: a fresh queue with real workers, to be killed, paused and looked at."""

import shutil
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from jobq.errors import LabError, UnknownJob
from jobq.job import Event, EventName, Job, Status
from jobq.lab.folders import fresh_folder
from jobq.lab.names import Names
from jobq.lab.processes import Process, ctrl_c_held
from jobq.lab.programs import ApiProcess, MailServerProcess, WorkerProcess
from jobq.lab.story import Deed, Mark, sentence, tell
from jobq.lab.timeline import Timeline, build
from jobq.lab.waiting import wait_until
from jobq.store import LONGEST_LOG, Store, open_store
from jobq.store.fairlock import FairLock

ENDS = frozenset({Deed.KILLED, Deed.STOPPED, Deed.EXITED})
WRITE_SECONDS = 10.0  # for a write that is under way to end

Started = TypeVar("Started", WorkerProcess, ApiProcess, MailServerProcess)


@dataclass(frozen=True, slots=True)
class LabJob:
    """A job of the lab: J1, J2, … in the order in which they come."""

    id: str = field(repr=False)
    name: str

    def __repr__(self) -> str:
        return self.name


class Lab:
    """A queue in a folder of its own, and the processes that work on it.

    `lease` and `poll` are seconds, and every worker's unless told otherwise. What a lab tells
    depends on no id, clock or process number. A lab is over when it is closed, when the next one
    of this process opens, and when this process ends, however it ends: its processes are gone
    then, and its folder is removed.
    """

    _open: ClassVar["Lab | None"] = None

    def __init__(self, lease: float = 2.0, poll: float = 1.0) -> None:
        if Lab._open is not None:
            Lab._open.close()
        self.lease = lease
        self.poll = poll
        self.folder = fresh_folder()
        self._end = ExitStack()  # what is to be done at the end, the last first
        self._end.callback(shutil.rmtree, self.folder, ignore_errors=True)
        weakref.finalize(self, self._end.close)  # also when the interpreter exits
        self.url = f"sqlite:///{(self.folder / 'jobs.db').as_posix()}"
        self.store: Store = open_store(self.url)
        self._end.callback(self.store.close)
        self._names = Names()
        self._processes: list[Process] = []
        self._marks: list[Mark] = []
        Lab._open = self

    def __repr__(self) -> str:
        states = (f"{process}: {process.ending or 'running'}" for process in self._processes)
        return f"Lab({', '.join(states)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove the folder. A second call does nothing."""
        self._end.close()

    def start_worker(self, *words: str, lease: float | None = None) -> WorkerProcess:
        """Start a worker and wait until it is ready to claim.

        `words` are further ones of the command line of `jobq worker`. Raises LabError if the
        worker ends at once.
        """
        times = ["--lease", str(self.lease if lease is None else lease), "--poll", str(self.poll)]
        words = (*times, *words)
        name = self._names.next_worker()
        worker = self._start(lambda: WorkerProcess(name, self.folder, self.url, words))
        self._names.worker(worker.worker)
        return worker

    def start_api(self, *, naive: bool = False) -> ApiProcess:
        """Start an API and wait until it answers; a naive one keeps its jobs in memory."""
        name = "naive api" if naive else "api"
        words = ["jobq.lab.naive"] if naive else ["jobq", "serve", "--owned", "--port"]
        api = self._start(lambda: ApiProcess(name, self.folder, words, self.url))
        self._names.call(api.url, "http://api")
        return api

    def start_mail_server(self, *, port: int | None = None) -> MailServerProcess:
        """Start a mail server and wait until it answers; `port` is that of an earlier one.

        One that was killed can so be started again, and knows what it had taken.
        """
        return self._start(lambda: MailServerProcess("mail server", self.folder, port))

    def kill(self, process: Process) -> None:
        """End a process as `kill -9` does, and wait until it is gone; one that is gone stays so."""
        if process.ending is None:
            process.kill()
            self._note(process, Deed.KILLED, "SIGKILL")

    def pause(self, process: Process) -> None:
        """Stop a process in its tracks, but not in the middle of a write: none could write then."""
        writing = FairLock(self.folder / "jobs.db-lock")
        writing.acquire(WRITE_SECONDS)
        try:
            process.pause()
        finally:
            writing.close()
        self._note(process, Deed.PAUSED, "SIGSTOP")

    def resume(self, process: Process) -> None:
        """Let a paused process go on where it was."""
        before = self.store.now()  # what the process does then comes after
        process.resume()
        self._note(process, Deed.CONTINUED, "SIGCONT", before)

    def stop(self, process: Process, seconds: float = 30.0) -> None:
        """Ask a process to end (SIGTERM), and wait until it has; one that is gone stays so."""
        if process.ending is None:
            process.stop(seconds)
            self._note(process, Deed.STOPPED, "SIGTERM")

    def wait_for_exit(self, process: Process, seconds: float = 30.0) -> None:
        """Wait until a process has ended by itself."""
        process.wait_for_exit(seconds)
        self._note(process, Deed.EXITED, str(process.ending))

    def enqueue(self, kind: str, payload: dict[str, Any], **options: Any) -> LabJob:
        """Record a job; the options are those of `Store.enqueue`."""
        return self.name_job(self.store.enqueue(kind, payload, **options).job.id)

    def name_job(self, job_id: str) -> LabJob:
        """Return the job with that id by its name, such as one that was made over HTTP."""
        return LabJob(job_id, self._names.job(job_id))

    def job(self, job: LabJob) -> Job:
        """Return the job as it stands now. Raises UnknownJob."""
        found = self.store.get(job.id)
        if found is None:
            raise UnknownJob(job.id)
        return found

    def wait_for(self, job: LabJob, status: Status | str, seconds: float = 30.0) -> Job:
        """Wait until the job has that status, and return it.

        Raises WaitTimedOut, and LabError once the job has another status that is final.
        """
        wanted = Status(status)

        def reached() -> bool:
            now = self.job(job)
            if now.status.final and now.status is not wanted:
                raise LabError(f"{job} is {now.status} and will not be {wanted}: {now.error}")
            return now.status is wanted

        self.wait_until(reached, f"{job} to be {wanted}", seconds)
        return self.job(job)

    def wait_for_event(
        self, job: LabJob, name: EventName | str, *, count: int = 1, seconds: float = 30.0
    ) -> Event:
        """Wait for the event of that name, or the `count`th of them, and return it.

        Raises WaitTimedOut, and LabError once the job is final without that event.
        """
        wanted = EventName(name)

        def found() -> list[Event]:
            events = self.store.events(job.id, limit=LONGEST_LOG)
            of_name = [event for event in events if event.name is wanted]
            if len(of_name) < count and events[-1].status.final:
                raise LabError(f"{job} is {events[-1].status}, with {len(of_name)} events {wanted}")
            return of_name

        what = f"{job} to have {count} of the event {wanted}"
        self.wait_until(lambda: len(found()) >= count, what, seconds)
        return found()[count - 1]

    def wait_until(self, condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
        """Wait until `condition()` is true; WaitTimedOut names `what`, and shows the logs."""
        wait_until(condition, what, seconds, clues=self._tails)

    def story(self, job: LabJob | None = None) -> str:
        """Tell what happened, to one job or to all, in plain words."""
        events, marks = self._happenings(job)
        names = self._names
        return tell(events, name_job=names.job, name_worker=names.worker, marks=marks)

    def timeline(self, job: LabJob | None = None) -> Timeline:
        """Return what happened, to one job or to all, for the pictures."""
        events, marks = self._happenings(job)
        names = self._names
        known = [p.worker for p in self._processes if isinstance(p, WorkerProcess) and p.worker]
        seen = {event.worker for event in events}
        return build(
            events,
            name_job=names.job,
            name_worker=names.worker,
            marks=marks,
            lanes=[worker for worker in known if job is None or worker in seen],
            until=self.store.now(),
        )

    def sentence(self, event: Event) -> str:
        """Return one event in plain words."""
        return sentence(event, self._names.job, self._names.worker)

    def running(self) -> tuple[Process, ...]:
        """Return the processes of the lab that have not ended."""
        return tuple(process for process in self._processes if process.ending is None)

    def named(self, text: str) -> str:
        """Return a text, such as a log or an answer, with J1, w1 or http://api for what varies."""
        return self._names.in_text(text)

    def _start(self, make: Callable[[], Started]) -> Started:
        with ctrl_c_held():  # an interruption in between would leave a process that nobody knows
            process = make()
            self._processes.append(process)
            self._end.callback(process.kill)
        try:
            process.wait_until_started()
        except BaseException:
            process.kill()
            self._processes.remove(process)  # its name is free again
            raise
        return process

    def _note(self, process: Process, deed: Deed, how: str, at: float | None = None) -> None:
        """Remember what was done to a worker; its end once, so that a cell can be run twice."""
        if not isinstance(process, WorkerProcess):
            return
        over = {mark.worker for mark in self._marks if mark.deed in ENDS}
        if process.worker not in over:
            now = self.store.now() if at is None else at
            self._marks.append(Mark(now, process.worker, deed, how))

    def _happenings(self, job: LabJob | None) -> tuple[list[Event], list[Mark]]:
        """Return the events and marks; of one job, those of its workers while it was not final."""
        events = list(self.store.events(limit=LONGEST_LOG))
        for event in events:
            self._names.job(event.job_id)  # so that the numbers follow the log
        if job is None:
            return events, self._marks
        own = [event for event in events if event.job_id == job.id]
        workers = {event.worker for event in own}
        first = own[0].at
        last = own[-1].at if own[-1].status.final else float("inf")
        marks = [m for m in self._marks if m.worker in workers and first <= m.at <= last]
        return own, marks

    def _tails(self) -> str:
        return "\n".join(process.tail for process in self._processes)
