"""The store of a command, made by those that put something in, and by no other."""

from pathlib import Path

from jobq.errors import StoreError
from jobq.settings import Settings
from jobq.store import Store, open_store


def store_for(settings: Settings) -> Store:
    """Open the store, and make it if it is not there. Raises InvalidInput and StoreError."""
    return open_store(settings.url, synchronous=settings.synchronous, retry=settings.retry_policy())


def existing_store(settings: Settings) -> Store:
    """Open the store for a look. Raises StoreError where there is none, and makes none."""
    path = settings.url.removeprefix("sqlite:///")
    if "://" not in path and not Path(path).exists():
        raise StoreError(
            f"there is no store at {settings.url}: `jobq enqueue` makes one; "
            "if yours lies elsewhere, name it with --url or JOBQ_URL"
        )
    return store_for(settings)
