"""jobq.api.operating: jobs are listed, retried, cancelled, deleted and counted."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from jobq import Job, Progress, Status, Store
from jobq.api import create_app, problems
from jobq.api.operating import LONGEST_PAGE

if TYPE_CHECKING:
    from tests.conftest import Clock, Refused

DAY = 86_400.0


def queued(store: Store) -> Job:
    """Return a new job that waits."""
    return store.enqueue("noop", {}).job


def claimed(store: Store, kind: str = "noop", **options: Any) -> Job:
    """Return a new job that runs."""
    store.enqueue(kind, {}, **options)
    job = store.claim("w1")
    assert job is not None
    return job


def failed(store: Store, kind: str = "noop") -> Job:
    """Return a new job that has failed."""
    return store.fail(claimed(store, kind), "no such year", final=True)


def done(store: Store, key: str | None = None) -> Job:
    """Return a new job that is done."""
    return store.finish(claimed(store, idempotency_key=key), {})


# Listing.


def test_a_list_tells_all_of_a_job_but_its_payload(
    client: httpx.Client, store: Store, clock: "Clock"
) -> None:
    """The lesson's fields come first; times are RFC 3339 in UTC, with microseconds."""
    job = claimed(store, priority=2, max_attempts=4)
    clock.move(0.25)
    store.heartbeat(job, 30, Progress(1, 3, "one"))
    store.cancel(job.id)
    (listed,) = client.get("/jobs").json()["jobs"]
    assert list(listed)[:5] == ["id", "status", "attempts", "result", "error"]
    assert listed == {
        "id": job.id,
        "status": "running",
        "attempts": 1,
        "result": None,
        "error": None,
        "progress": {"done": 1, "total": 3, "message": "one"},
        "cancel_requested": True,
        "kind": "noop",
        "max_attempts": 4,
        "priority": 2,
        "worker": "w1",
        "created_at": "1970-01-12T13:46:40.000000Z",
        "run_after": None,
        "started_at": "1970-01-12T13:46:40.000000Z",
        "finished_at": None,
    }


@pytest.mark.parametrize(("jobs", "limit"), [(0, 2), (1, 2), (4, 2), (5, 2), (3, 3)])
def test_the_pages_hold_every_job_once(
    client: httpx.Client, store: Store, jobs: int, limit: int
) -> None:
    """Newest first, and `next` leads on as long as there is more, jobs that come or not."""
    ids = [store.enqueue("noop", {}).job.id for _ in range(jobs)]
    seen: list[str] = []
    page: dict[str, Any] = {"next": f"/jobs?limit={limit}&kind=noop"}
    while page["next"] is not None:
        page = client.get(page["next"]).json()
        assert len(page["jobs"]) == limit or page["next"] is None
        assert page["jobs"] or not seen, "a page that was promised is empty"
        seen += [job["id"] for job in page["jobs"]]
        store.enqueue("noop", {})
    assert seen == ids[::-1]


def test_a_list_may_be_of_a_kind_and_a_status(client: httpx.Client, store: Store) -> None:
    """The filters hold together, and go on in `next`."""
    for kind in ("noop", "nap", "noop", "nap"):
        failed(store, kind)
    store.enqueue("nap", {})
    page = client.get("/jobs", params={"kind": "nap", "status": "failed", "limit": 1}).json()
    rest = client.get(page["next"]).json()
    jobs = page["jobs"] + rest["jobs"]
    assert [(job["kind"], job["status"]) for job in jobs] == [("nap", "failed")] * 2
    assert rest["next"] is None


def test_next_is_on_the_host_that_was_called(client: httpx.Client, store: Store) -> None:
    """A client that follows `next` comes to the server that it called."""
    for _ in range(2):
        store.enqueue("noop", {})
    page = client.get("/jobs?limit=1", headers={"Host": "127.0.0.1:99"}).json()
    assert page["next"].startswith("http://127.0.0.1:99/jobs?limit=1&before=")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/jobs?limit=0", "limit"),
        (f"/jobs?limit={LONGEST_PAGE + 1}", "limit"),
        ("/jobs?limit=x", "limit"),
        ("/jobs?status=broken", "status"),
        ("/jobs?kind=", "kind"),
        ("/jobs?knid=nap", "knid"),
    ],
)
def test_a_faulty_parameter_is_named(
    client: httpx.Client, refused: "Refused", path: str, field: str
) -> None:
    """A parameter that breaks a rule, or that nobody reads, is refused by name."""
    assert field in refused(client.get(path), problems.INVALID_FIELDS)


@pytest.mark.parametrize("kind", ["%00", "%20", "x%00"])
def test_a_kind_that_is_no_name_is_refused(
    client: httpx.Client, refused: "Refused", kind: str
) -> None:
    """What no kind can be called is the client's fault, not the server's."""
    for method, path in (("GET", "/jobs"), ("POST", "/jobs/retry")):
        answer = client.request(method, f"{path}?kind={kind}")
        assert "kind" in refused(answer, problems.INVALID_INPUT)


def test_a_page_after_an_unknown_job_is_refused(client: httpx.Client, refused: "Refused") -> None:
    """The job at which a page began may have been deleted; a guess would leave jobs out."""
    assert "abc" in refused(client.get("/jobs?before=abc"), problems.UNKNOWN_JOB)


def test_the_longest_page_is_served(client: httpx.Client, store: Store) -> None:
    """The limit that the description promises is one that the store takes."""
    store.enqueue("noop", {})
    assert len(client.get(f"/jobs?limit={LONGEST_PAGE}").json()["jobs"]) == 1


SPOILT = [  # as each engine lets a row be spoilt
    "created_at = 1e300",
    "created_at = -1e300",
    {
        "sqlite": "run_after = 9e999, started_at = 9e999, finished_at = -9e999",
        "postgresql": "run_after = 'inf', started_at = 'inf', finished_at = '-inf'",
    },
    {
        "sqlite": "payload = '{', result = '{', progress = '['",
        "postgresql": "payload = '[]', progress = '[]', retry = '1'",
    },
    {
        "sqlite": "kind = CAST(x'FF' AS TEXT), error = CAST(x'FF' AS TEXT)",
        "postgresql": "kind = '', error = '', attempts = -1, token = -1",
    },
]


@pytest.mark.parametrize("change", SPOILT, ids=str)
def test_a_spoilt_row_does_not_spoil_the_page(
    client: httpx.Client,
    store: Store,
    engine: str,
    outside: Callable[[str], object],
    change: str | dict[str, str],
) -> None:
    """What another program wrote into one job leaves the others to be seen, and polled for."""
    ids = [store.enqueue("noop", {}).job.id for _ in range(3)]
    changed = change if isinstance(change, str) else change[engine]
    outside(f"UPDATE jobs SET {changed} WHERE id = '{ids[1]}'")  # noqa: S608 - no input
    assert [job["id"] for job in client.get("/jobs").json()["jobs"]] == ids[::-1]
    answers = [client.get(f"/jobs/{job_id}") for job_id in ids]
    assert [answers[0].status_code, answers[2].status_code] == [200, 200]
    if answers[1].status_code != 200:
        assert answers[1].json()["type"] == problems.UNREADABLE_JOB.uri
    assert client.get("/stats").status_code == client.get("/metrics").status_code == 200


# Retrying.


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_job_that_ended_badly_is_queued_again(
    client: httpx.Client, store: Store, status: Status
) -> None:
    """Its attempts begin anew; its last error is kept."""
    job = failed(store) if status is Status.FAILED else store.cancel(store.enqueue("a", {}).job.id)
    answer = client.post(f"/jobs/{job.id}/retry")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["attempts"]) == ("queued", 0)
    present = store.get(job.id)
    assert present is not None
    assert present.status is Status.QUEUED


@pytest.mark.parametrize("make", [queued, claimed, done])
def test_other_jobs_are_not_retried(
    client: httpx.Client, store: Store, refused: "Refused", make: Callable[[Store], Job]
) -> None:
    """409 tells where the job stands and what can be retried; nothing is changed."""
    job = make(store)
    rule = "only a failed or cancelled job can be retried"
    detail = refused(client.post(f"/jobs/{job.id}/retry"), problems.WRONG_STATUS)
    assert detail == f"job {job.id} is {job.status}: {rule}"
    assert store.get(job.id) == job


def test_many_jobs_are_retried_at_once(client: httpx.Client, store: Store) -> None:
    """Failed ones by default, of all kinds or of one; cancelled ones if that is said."""
    for kind in ("noop", "nap", "nap"):
        failed(store, kind)
    store.cancel(store.enqueue("noop", {}).job.id)

    def retried(**which: str) -> int:
        answer = client.post("/jobs/retry", params=which)
        assert list(answer.json()) == ["retried"]
        return int(answer.json()["retried"])

    assert retried(kind="nap") == 2
    assert retried() == 1
    assert retried() == 0
    assert retried(status="cancelled") == 1


@pytest.mark.parametrize("query", ["status=done", "status=queued", "kidn=nap", "status=", "all=1"])
def test_a_bulk_retry_that_is_misspelt_changes_nothing(
    client: httpx.Client, store: Store, refused: "Refused", query: str
) -> None:
    """A filter that is not understood must not mean that there is none."""
    job = failed(store)
    refused(client.post(f"/jobs/retry?{query}"), problems.INVALID_FIELDS)
    assert store.get(job.id) == job


# Cancelling.


def test_a_queued_job_is_cancelled_at_once(client: httpx.Client, store: Store) -> None:
    """200 says that it is done with; again is the same."""
    job = store.enqueue("noop", {}).job
    for _ in range(2):
        answer = client.post(f"/jobs/{job.id}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")


def test_a_running_job_is_to_be_cancelled(client: httpx.Client, store: Store) -> None:
    """202 says that its worker is told with its next heartbeat; again is the same."""
    job = claimed(store)
    for _ in range(2):
        answer = client.post(f"/jobs/{job.id}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (202, "running")
        assert answer.json()["cancel_requested"] is True
    assert store.heartbeat(job, 30).cancel_requested
    assert client.get(f"/jobs/{job.id}").json()["cancel_requested"] is True


@pytest.mark.parametrize("make", [done, failed])
def test_what_is_over_cannot_be_cancelled(
    client: httpx.Client, store: Store, refused: "Refused", make: Callable[[Store], Job]
) -> None:
    """409 tells that it came too late."""
    job = make(store)
    detail = refused(client.post(f"/jobs/{job.id}/cancel"), problems.WRONG_STATUS)
    assert detail.startswith(f"job {job.id} is {job.status}: ")


@pytest.mark.parametrize("deed", ["retry", "cancel"])
@pytest.mark.parametrize("job_id", ["none", "%00", "abc", "%F0%9F%98%80"])
def test_an_unknown_job_is_not_found(
    client: httpx.Client, refused: "Refused", deed: str, job_id: str
) -> None:
    """Whatever stands in the place of an id, the answer is a 404."""
    refused(client.post(f"/jobs/{job_id}/{deed}"), problems.UNKNOWN_JOB)


# Deleting.


def test_old_jobs_are_deleted(client: httpx.Client, store: Store, clock: "Clock") -> None:
    """Those that ended longer ago than that go, with their attempts; others stay."""
    old = done(store)
    waiting = store.enqueue("noop", {}).job
    clock.move(DAY)
    new = done(store)  # the one that waited
    assert new.id == waiting.id
    answer = client.delete("/jobs", params={"older_than_seconds": DAY / 2})
    assert answer.json() == {"deleted": 1}
    assert client.get(f"/jobs/{old.id}").status_code == 404
    assert client.get(f"/jobs/{old.id}/attempts").status_code == 404
    assert client.get(f"/jobs/{new.id}").status_code == 200


def test_only_jobs_of_a_status_are_deleted(
    client: httpx.Client, store: Store, clock: "Clock"
) -> None:
    """A filter by status spares the rest."""
    spared, _ = done(store), failed(store)
    clock.move(1)
    answer = client.delete("/jobs", params={"older_than_seconds": 0, "status": "failed"})
    assert answer.json() == {"deleted": 1}
    assert [job.id for job in store.list()] == [spared.id]


def test_a_key_outlives_its_time_only(
    serve: Callable[[FastAPI], httpx.Client], store: Store, clock: "Clock"
) -> None:
    """A job with an idempotency key stays as long as the server says, so that the key holds."""
    client = serve(create_app(store, keep_keys_seconds=3 * DAY))
    done(store, "k")
    for days, deleted in ((2, 0), (2, 1)):
        clock.move(days * DAY)
        answer = client.delete("/jobs", params={"older_than_seconds": 0})
        assert answer.json() == {"deleted": deleted}


@pytest.mark.parametrize(
    "query",
    [
        "",
        "older_than_seconds=",
        "older_than_seconds=-1",
        "older_than_seconds=nan",
        "older_than_seconds=inf",
        "older_than_seconds=1e300",
        "older_than_seconds=0&status=queued",
        "older_than_seconds=0&status=",
        "older_than_seconds=0&staus=failed",
        "older_than_seconds=0&kind=nap",
    ],
)
def test_a_deletion_that_is_misspelt_deletes_nothing(
    client: httpx.Client, store: Store, clock: "Clock", refused: "Refused", query: str
) -> None:
    """An age has to be given, and a filter that is not understood must not mean none."""
    job = done(store)
    clock.move(1)
    refused(client.delete(f"/jobs?{query}"), problems.INVALID_FIELDS)
    assert store.get(job.id) == job


# Counting.


def test_the_counts_are_of_all_and_of_each_kind(
    client: httpx.Client, store: Store, clock: "Clock"
) -> None:
    """Every status has its number; the oldest that waits has its age."""
    done(store)
    failed(store, "nap")
    store.enqueue("nap", {})
    clock.move(2.5)
    none = dict.fromkeys(map(str, Status), 0)
    assert client.get("/stats").json() == {
        "counts": none | {"done": 1, "failed": 1, "queued": 1},
        "oldest_waiting_seconds": 2.5,
        "finished_last_minute": 2,
        "kinds": {"noop": none | {"done": 1}, "nap": none | {"failed": 1, "queued": 1}},
    }


def test_an_empty_store_is_counted(client: httpx.Client) -> None:
    """Without a job there is nothing that waits."""
    assert client.get("/stats").json() == {
        "counts": dict.fromkeys(map(str, Status), 0),
        "oldest_waiting_seconds": None,
        "finished_last_minute": 0,
        "kinds": {},
    }
