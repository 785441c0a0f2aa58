"""The store against a plain model: whatever is done in whatever order, both hold the same jobs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobq import (
    IdempotencyConflict,
    Job,
    LeaseLost,
    NotStrictJson,
    RetryPolicy,
    Status,
    Store,
    WriteFailed,
)
from jobq.errors import UnknownJob, WrongStatus
from jobq.job import Progress
from jobq.store import endings, operating

if TYPE_CHECKING:
    from tests.conftest import Clock

# Quarters of a second, which floats hold exactly: the model and the store must agree to the bit.
steps = st.sampled_from([0.25, 1.0, 5.0, 60.0, 300.0])
leases = st.sampled_from([1.0, 5.0, 60.0])
workers = st.sampled_from(["w1", "w2", "w3"])
keys = st.sampled_from(["mail-1", "mail-2"])
progresses = st.sampled_from([None, Progress(1), Progress(2.5, 10, "half way")])
policies = st.sampled_from([None, RetryPolicy(base=4.0), RetryPolicy(base=0.25, cap=0.5)])
ends = st.sampled_from([Status.FAILED, Status.CANCELLED])
KEYS_KEPT = 90.0  # seconds
requests = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["nap", "report"]),
        "idempotency_key": st.sampled_from([None, None, None, "a", "b"]),
        "max_attempts": st.sampled_from([1, 2, 3]),
        "priority": st.sampled_from([-1, 0, 0, 2]),
        "run_after": st.sampled_from([0.0, 0.0, 0.0, 999_990.0, 1_000_005.0, 1_000_060.0]),
        "retry": policies,
    }
)


class Model:
    """A queue in a dictionary, for one thread: what each operation of the store has to do."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}  # in the order of arrival
        self.releases: Counter[str] = Counter()
        self.marks: set[tuple[str, str]] = set()

    def of_key(self, key: str | None) -> Job | None:
        """Return the job of an idempotency key."""
        return next((j for j in self.jobs.values() if key and j.idempotency_key == key), None)

    def owns(self, ticket: Job) -> bool:
        """Say whether the job is still under the lease of this ticket."""
        job = self.jobs.get(ticket.id)
        return job is not None and job.status == "running" and job.token == ticket.token

    def change(self, job: Job, **fields: Any) -> Job:
        """Change a job, and return it."""
        self.jobs[job.id] = replace(self.jobs[job.id], **fields)
        return self.jobs[job.id]

    def end(self, job: Job, status: Status, now: float, **fields: Any) -> Job:
        """End the lease of a job."""
        finished_at = now if status.final else None
        fields |= {"status": status, "worker": None, "locked_until": None}
        return self.change(job, finished_at=finished_at, cancel_requested=False, **fields)

    def stop(self, job: Job, now: float, *, final: bool, wait: float, error: str) -> Job:
        """End an attempt that did not succeed: cancelled if asked for, else failed, else again."""
        job = self.jobs[job.id]
        if job.cancel_requested:
            return self.end(job, Status.CANCELLED, now, error=error)
        if final or job.attempts == job.max_attempts:
            return self.end(job, Status.FAILED, now, error=error)
        return self.end(job, Status.QUEUED, now, error=error, run_after=now + wait)

    def release(self, job: Job, now: float) -> Job:
        """Give a job back, the attempt not counted, but the release."""
        job = self.change(job, attempts=job.attempts - 1)
        self.releases[job.id] += 1
        if job.cancel_requested:
            return self.end(job, Status.CANCELLED, now)
        if self.releases[job.id] == endings.MAX_RELEASES:
            return self.end(job, Status.FAILED, now, error="given back")
        return self.end(job, Status.QUEUED, now)

    def cancel(self, job: Job, now: float) -> Job:
        """Cancel a job, or ask its worker to."""
        if job.status == "queued":
            return self.change(job, status=Status.CANCELLED, finished_at=now)
        if job.status == "running":
            return self.change(job, cancel_requested=True)
        return job

    def retry(self, job: Job) -> Job:
        """Queue a final job again, as if it had not been tried."""
        del self.releases[job.id]
        fields = {"status": Status.QUEUED, "attempts": 0, "run_after": 0.0, "finished_at": None}
        return self.change(job, **fields)

    def prune(self, age: float, status: Status | None, now: float) -> int:
        """Forget old jobs that are final, but not those whose key is young."""
        old = [
            job
            for job in self.jobs.values()
            if job.finished_at is not None
            and job.finished_at < now - age
            and status in {None, job.status}
            and (job.idempotency_key is None or job.created_at < now - KEYS_KEPT)
        ]
        for job in old:
            del self.jobs[job.id]
        return len(old)

    def claim(self, worker: str, lease: float, now: float) -> Job | None:
        """Close what ran out; take the most urgent, then oldest job whose time has come."""
        for job in list(self.jobs.values()):
            if job.locked_until is not None and job.locked_until < now:
                if job.cancel_requested:
                    self.end(job, Status.CANCELLED, now)
                elif job.attempts == job.max_attempts:
                    self.end(job, Status.FAILED, now, error="crashed")
                else:
                    self.end(job, Status.QUEUED, now)
        runnable = [j for j in self.jobs.values() if j.status == "queued" and j.run_after <= now]
        if not runnable:
            return None
        job = min(runnable, key=lambda job: job.created_at - 60 * job.priority)
        return self.change(
            job,
            status=Status.RUNNING,
            attempts=job.attempts + 1,
            token=job.token + 1,
            worker=worker,
            locked_until=now + lease,
            started_at=now,
        )


# Drawn from what the machine has at the time: most often a ticket that is still good.
tickets = st.runner().flatmap(lambda machine: machine.some_tickets())
jobs = st.runner().flatmap(lambda machine: st.sampled_from(list(machine.model.jobs.values())))
if_tickets = precondition(lambda machine: machine.tickets)
if_jobs = precondition(lambda machine: machine.model.jobs)


class StoreMachine(RuleBasedStateMachine):
    """Do the same to a store and to the model; tickets are kept, so that many are stale."""

    def __init__(self, store: Store, clock: "Clock") -> None:
        super().__init__()
        self.store, self.clock, self.model = store, clock, Model()
        self.tickets: list[Job] = []

    def some_tickets(self) -> st.SearchStrategy[Job]:
        """Return a choice among the tickets: those that are good have the better chance."""
        good = [ticket for ticket in self.tickets if self.model.owns(ticket)]
        return st.sampled_from(self.tickets + 4 * len(self.tickets) * good)

    @initialize(requests=st.lists(requests, min_size=3, max_size=6))
    def begin(self, requests: list[dict[str, Any]]) -> None:
        """Begin with some jobs, so that there is something to do."""
        for request in requests:
            self.enqueue(request)

    @rule(request=requests)
    def enqueue(self, request: dict[str, Any]) -> None:
        """Enqueue a job, or meet the one that has its key."""
        known = self.model.of_key(request["idempotency_key"])
        if known is None:
            job, created = self.store.enqueue(payload={}, **request)
            assert created
            assert {name: getattr(job, name) for name in request} == request
            assert (job.status, job.created_at) == ("queued", self.clock.now)
            self.model.jobs[job.id] = job
        elif known.kind == request["kind"]:
            job, created = self.store.enqueue(payload={}, **request)
            assert (plain(job), created) == (known, False)
        else:
            with pytest.raises(IdempotencyConflict):
                self.store.enqueue(payload={}, **request)

    @rule(step=st.just(0.0) | steps, worker=workers, lease=leases)
    def claim(self, step: float, worker: str, lease: float) -> None:
        """Let time go on, and claim what the model claims, or nothing."""
        self.take(step, worker, lease)

    @rule(step=steps, worker=workers, end=st.sampled_from(["finish", "fail", "release"]))
    def work(self, step: float, worker: str, end: str) -> None:
        """Claim a job and end it at once, so that many become final."""
        job = self.take(step, worker, 60.0)
        if job is not None and end == "finish":
            self.finish(job)
        elif job is not None and end == "release":
            self.release(job)
        elif job is not None:
            self.fail(job, final=True, after=None, crashed=False, policy=None)

    @if_tickets
    @rule(ticket=tickets, lease=leases, progress=progresses)
    def heartbeat(self, ticket: Job, lease: float, progress: Progress | None) -> None:
        """Extend a lease, if it is still there; what it tells is kept, and what it told before."""
        told = {} if progress is None else {"progress": progress}
        self.write(
            ticket,
            lambda: self.store.heartbeat(ticket, lease, progress),
            lambda now: self.model.change(ticket, locked_until=now + lease, **told),
        )

    @if_tickets
    @rule(ticket=tickets)
    def finish(self, ticket: Job) -> None:
        """End an attempt well."""
        result = {"by": ticket.worker, "token": ticket.token}
        self.write(
            ticket,
            lambda: self.store.finish(ticket, result),
            lambda now: self.model.end(ticket, Status.DONE, now, result=result),
        )

    @if_tickets
    @rule(
        ticket=tickets,
        final=st.sampled_from([False, False, False, True]),
        after=st.sampled_from([None, None, None, 0.0, 2.0]),
        crashed=st.booleans(),
        policy=policies,
    )
    def fail(
        self,
        ticket: Job,
        *,
        final: bool,
        after: float | None,
        crashed: bool,
        policy: RetryPolicy | None,
    ) -> None:
        """End an attempt badly: for good, or until the wait is over."""
        chosen = ticket.retry or policy or RetryPolicy()
        wait = chosen.delay(ticket.attempts, lambda: 0.0) if after is None else after
        how: dict[str, Any] = {"final": final, "after": after, "crashed": crashed, "policy": policy}
        self.write(
            ticket,
            lambda: self.store.fail(ticket, "no", **how),
            lambda now: self.model.stop(ticket, now, final=final, wait=wait, error="no"),
        )

    @if_tickets
    @rule(ticket=tickets)
    def release(self, ticket: Job) -> None:
        """Give a job back, the attempt not counted."""
        self.write(
            ticket,
            lambda: self.store.release(ticket),
            lambda now: self.model.release(ticket, now),
        )

    @if_tickets
    @rule(ticket=tickets)
    def confirm_cancel(self, ticket: Job) -> None:
        """End an attempt that was stopped."""
        self.write(
            ticket,
            lambda: self.store.confirm_cancel(ticket),
            lambda now: self.model.end(ticket, Status.CANCELLED, now),
        )

    @if_tickets
    @rule(ticket=tickets, key=keys)
    def mark_done(self, ticket: Job, key: str) -> None:
        """Mark something as done for every later attempt, and only as the owner."""
        if self.model.owns(ticket):
            assert self.store.is_done(ticket, key) == ((ticket.id, key) in self.model.marks)
            self.store.mark_done(ticket, key)
            self.model.marks.add((ticket.id, key))
        else:
            for refused in (self.store.is_done, self.store.mark_done):
                with pytest.raises(LeaseLost):
                    refused(ticket, key)

    @if_jobs
    @rule(job=jobs)
    def cancel(self, job: Job) -> None:
        """Cancel any job, as an operator."""
        if job.status in {"done", "failed"}:
            with pytest.raises(WrongStatus):
                self.store.cancel(job.id)
        else:
            cancelled = self.store.cancel(job.id)
            assert plain(cancelled) == self.model.cancel(job, self.clock.now)

    @if_tickets
    @rule(ticket=tickets, end=st.sampled_from(["finish", "fail", "release", "confirm_cancel"]))
    def cancel_and_end(self, ticket: Job, end: str) -> None:
        """Cancel a job of a worker's, which then ends its attempt in one way or another."""
        if self.model.owns(ticket):
            self.cancel(self.model.jobs[ticket.id])
            if end == "fail":
                self.fail(ticket, final=False, after=0.0, crashed=True, policy=None)
            else:
                getattr(self, end)(ticket)

    @if_jobs
    @rule(job=jobs)
    def retry(self, job: Job) -> None:
        """Retry any job, as an operator."""
        if job.status in {"failed", "cancelled"}:
            assert plain(self.store.retry(job.id)) == self.model.retry(job)
        else:
            with pytest.raises(WrongStatus):
                self.store.retry(job.id)

    @rule(status=ends, kind=st.sampled_from([None, "nap"]))
    def retry_all(self, status: Status, kind: str | None) -> None:
        """Retry all of one status, of one kind or any."""
        jobs = [
            job
            for job in self.model.jobs.values()
            if job.status == status and kind in {None, job.kind}
        ]
        assert self.store.retry_all(status=status, kind=kind) == len(jobs)
        for job in jobs:
            self.model.retry(job)

    @rule(
        step=steps,
        age=st.sampled_from([0.0, 1.0, 60.0]),
        status=st.sampled_from([None, None, Status.FAILED, Status.CANCELLED]),
    )
    def prune(self, step: float, age: float, status: Status | None) -> None:
        """Delete what is old, and see that nothing is left of it."""
        self.clock.move(step)
        before = set(self.model.jobs)
        pruned = self.model.prune(age, status, self.clock.now)
        assert self.store.prune(age, status=status, keys_kept_seconds=KEYS_KEPT) == pruned
        gone = before - set(self.model.jobs)
        assert not gone & {event.job_id for event in self.store.events()}
        for job_id in gone:
            with pytest.raises(UnknownJob):
                self.store.attempts(job_id)

    @if_tickets
    @rule(ticket=tickets)
    def finish_with_a_write_that_fails(self, ticket: Job) -> None:
        """Finish together with a write that raises: nothing changes, and the attempt goes on."""
        error = WriteFailed if self.model.owns(ticket) else LeaseLost
        with pytest.raises(error):
            self.store.finish(ticket, 1, also=lambda tx: tx.execute("no SQL"))

    @if_tickets
    @rule(ticket=tickets)
    def finish_with_what_is_no_json(self, ticket: Job) -> None:
        """Finish with a result that is refused, whoever asks."""
        with pytest.raises(NotStrictJson):
            self.store.finish(ticket, {"at": float("nan")})

    @rule(step=steps)
    def the_clock_steps_back(self, step: float) -> None:
        """Move the clock back, as after a correction."""
        self.clock.move(-step)

    @invariant()
    def both_hold_the_same_jobs(self) -> None:
        """After every step each field of each job is the model's."""
        found = [plain(job) for job in self.store.list(limit=1_000)]
        assert found[::-1] == [plain(job) for job in self.model.jobs.values()]

    def take(self, step: float, worker: str, lease: float) -> Job | None:
        """Claim in both, and keep the ticket."""
        self.clock.move(step)
        expected = self.model.claim(worker, lease, self.clock.now)
        job = self.store.claim(worker, lease)
        assert plain(job) == plain(expected)
        if job is not None:
            self.tickets.append(job)
        return job

    def write(self, ticket: Job, store: Callable[[], Job], model: Callable[[float], Job]) -> None:
        """Do one write to both if the ticket is still good; else see the store refuse it."""
        if self.model.owns(ticket):
            assert plain(store()) == plain(model(self.clock.now))
        else:
            with pytest.raises(LeaseLost):
                store()


def plain(job: Job | None) -> Job | None:
    """Return the job with a word for each error whose wording is the store's."""
    if job is not None and job.error is not None:
        for words, word in {"ran out": "crashed", "given back": "given back"}.items():
            if words in job.error:
                return replace(job, error=word)
    return job


def test_the_store_does_what_a_plain_model_does(
    new_url: Callable[[], str],
    opened: Callable[..., Store],
    fast: dict[str, str],
    clock: "Clock",
    assert_consistent: Callable[[Store], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever happens in whatever order, jobs are the model's and the log tells their story."""
    monkeypatch.setattr(endings, "MAX_RELEASES", 3)  # so that it is met
    for batch in ("BATCH", "ROWS"):
        monkeypatch.setattr(operating, batch, 2)  # so that there are several

    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(opened(new_url(), clock=clock, **fast), clock)

        def teardown(self) -> None:
            assert_consistent(self.store)
            self.store.close()

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=100,
            stateful_step_count=50,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
        ),
    )
