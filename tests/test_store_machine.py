"""The store against a plain model: whatever is done in whatever order, both hold the same jobs."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from jobq import IdempotencyConflict, Job, LeaseLost, NotStrictJson, Status, Store

if TYPE_CHECKING:
    from tests.conftest import Clock

# Quarters of a second, which floats hold exactly: the model and the store must agree to the bit.
steps = st.sampled_from([0.25, 1.0, 5.0, 60.0, 300.0])
leases = st.sampled_from([1.0, 5.0, 60.0])
workers = st.sampled_from(["w1", "w2", "w3"])
requests = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["nap", "report"]),
        "idempotency_key": st.sampled_from([None, None, None, None, "a", "b"]),
        "max_attempts": st.sampled_from([1, 2, 3]),
        "priority": st.sampled_from([-1, 0, 0, 2]),
        "run_after": st.sampled_from([0.0, 0.0, 0.0, 999_990.0, 1_000_005.0, 1_000_060.0]),
    }
)


class Model:
    """A queue in a dictionary, for one thread: what each operation of the store has to do."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}  # in the order of arrival

    def of_key(self, key: str | None) -> Job | None:
        """Return the job of an idempotency key."""
        return next((j for j in self.jobs.values() if key and j.idempotency_key == key), None)

    def owns(self, ticket: Job) -> bool:
        """Say whether the job is still under the lease of this ticket."""
        job = self.jobs[ticket.id]
        return job.status == "running" and job.token == ticket.token

    def change(self, job: Job, **fields: Any) -> Job:
        """Change a job, and return it."""
        self.jobs[job.id] = replace(self.jobs[job.id], **fields)
        return self.jobs[job.id]

    def end(self, job: Job, status: Status, now: float, **fields: Any) -> Job:
        """End the lease of a job."""
        finished_at = now if status.final else None
        fields |= {"status": status, "worker": None, "locked_until": None}
        return self.change(job, finished_at=finished_at, **fields)

    def claim(self, worker: str, lease: float, now: float) -> Job | None:
        """Close what ran out; take the most urgent, then oldest job whose time has come."""
        for job in list(self.jobs.values()):
            if job.locked_until is not None and job.locked_until < now:
                if job.attempts == job.max_attempts:
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
        )


class StoreMachine(RuleBasedStateMachine):
    """Do the same to a store and to the model; tickets are kept, so that many are stale."""

    tickets = Bundle("tickets")

    def __init__(self, store: Store, clock: "Clock") -> None:
        super().__init__()
        self.store, self.clock, self.model = store, clock, Model()

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

    @rule(target=tickets, step=st.just(0.0) | steps, worker=workers, lease=leases)
    def claim(self, step: float, worker: str, lease: float) -> Any:
        """Let time go on, and claim what the model claims, or nothing."""
        self.clock.move(step)
        expected = self.model.claim(worker, lease, self.clock.now)
        job = self.store.claim(worker, lease)
        assert plain(job) == plain(expected)
        return multiple() if job is None else job

    @rule(ticket=tickets, lease=leases)
    def heartbeat(self, ticket: Job, lease: float) -> None:
        """Extend a lease, if it is still there."""
        self.write(
            ticket,
            lambda: self.store.heartbeat(ticket, lease),
            lambda now: self.model.change(ticket, locked_until=now + lease),
        )

    @rule(ticket=tickets)
    def finish(self, ticket: Job) -> None:
        """End an attempt well."""
        result = {"by": ticket.worker, "token": ticket.token}
        self.write(
            ticket,
            lambda: self.store.finish(ticket, result),
            lambda now: self.model.end(ticket, Status.DONE, now, result=result),
        )

    @rule(ticket=tickets, final=st.booleans())
    def fail(self, ticket: Job, *, final: bool) -> None:
        """End an attempt badly: for good, or until the wait is over."""

        def failed(now: float) -> Job:
            if final or ticket.attempts == ticket.max_attempts:
                return self.model.end(ticket, Status.FAILED, now, error="no")
            run_after = now + 0.25 * 2**ticket.attempts
            return self.model.end(ticket, Status.QUEUED, now, error="no", run_after=run_after)

        self.write(ticket, lambda: self.store.fail(ticket, "no", final=final), failed)

    @rule(ticket=tickets)
    def release(self, ticket: Job) -> None:
        """Give a job back, the attempt not counted."""
        self.write(
            ticket,
            lambda: self.store.release(ticket),
            lambda now: self.model.end(ticket, Status.QUEUED, now, attempts=ticket.attempts - 1),
        )

    @rule(ticket=consumes(tickets))
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

    def write(self, ticket: Job, store: Callable[[], Job], model: Callable[[float], Job]) -> None:
        """Do one write to both if the ticket is still good; else see the store refuse it."""
        if self.model.owns(ticket):
            assert plain(store()) == plain(model(self.clock.now))
        else:
            with pytest.raises(LeaseLost):
                store()


def plain(job: Job | None) -> Job | None:
    """Return the job with a word for the error of a crash, whose wording is the store's."""
    crashed = job is not None and job.error is not None and "ran out" in job.error
    return replace(job, error="crashed") if job is not None and crashed else job


def test_the_store_does_what_a_plain_model_does(
    new_url: Callable[[], str],
    opened: Callable[..., Store],
    fast: dict[str, str],
    clock: "Clock",
    assert_consistent: Callable[[Store], None],
) -> None:
    """Whatever happens in whatever order, jobs are the model's and the log tells their story."""

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
