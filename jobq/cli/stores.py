"""The store of a command, made by those that put something in, and by no other; and its jobs."""

from jobq.errors import InvalidInput, StoreError, UnknownJob
from jobq.job import Job
from jobq.settings import Settings
from jobq.store import Store, open_store
from jobq.store.addresses import shown
from jobq.store.presence import is_there

ID_LEAST = 4  # characters of an id, as for git's commits
MANY = 10  # ids that an error names


def store_for(settings: Settings) -> Store:
    """Open the store, and make it if it is not there. Raises InvalidInput and StoreError."""
    return open_store(
        settings.url,
        synchronous=settings.synchronous,
        retry=settings.retry_policy(),
        max_bytes=settings.max_payload_bytes,
    )


def existing_store(settings: Settings) -> Store:
    """Open the store for a look. Raises StoreError where there is none, and makes none."""
    if not is_there(settings.url):
        raise StoreError(
            f"there is no store at {shown(settings.url)}: `jobq enqueue` makes one; "
            "if yours lies elsewhere, name it with --url or JOBQ_URL"
        )
    return store_for(settings)


def find_job(store: Store, start: str) -> Job:
    """Return the one job whose id begins so. Raises UnknownJob and InvalidInput."""
    if job := store.get(start):
        return job
    if len(start) < ID_LEAST:
        raise InvalidInput(f"id {start!r} is short: give its first {ID_LEAST} characters or more")
    found = store.find(start, limit=MANY)
    if not found:
        raise UnknownJob(start)
    if len(found) > 1:
        ids = ", ".join(job.id for job in found)
        raise InvalidInput(f"several ids begin with {start!r}: {ids}; give more characters")
    return found[0]
