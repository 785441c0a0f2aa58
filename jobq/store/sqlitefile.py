"""What a file must be before SQLite is let at it."""

from pathlib import Path

import psutil

from jobq.errors import ForeignFile, InvalidInput, StoreError, UnsafeFilesystem
from jobq.store.addresses import FORMS, shown

APPLICATION_ID = 0x6A6F6271  # "jobq": in the header of each of our files
# fmt: off
NETWORK = frozenset({
    "9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "fuse.davfs2", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs3",
    "nfs4", "ocfs2", "prl_fs", "smb", "smb2", "smb3", "smbfs", "vboxsf", "webdav",
})
# fmt: on


def path_of(url: str | Path) -> Path:
    """Return the path of the file that a URL such as `sqlite:///jobs.db` names.

    `sqlite:///` is followed by the path, as in SQLAlchemy: four slashes begin an absolute one.
    What is no URL is the path itself. Raises InvalidInput for any other URL.
    """
    scheme, separator, rest = str(url).partition("://")
    if not separator:
        return Path(url)
    if scheme == "sqlite" and rest.startswith("/"):
        return Path(rest[1:])
    raise InvalidInput(f"store URL {shown(url)!r} is not one of {FORMS}")


def check_file(path: Path) -> None:
    """Raise InvalidInput or StoreError if the file cannot be, or become, a store.

    No byte of it is changed, and no file appears beside it.
    """
    if str(path) in {"", ".", ":memory:"}:
        raise InvalidInput(f"{str(path)!r} is no file: a durable queue needs one, such as jobs.db")
    if path.is_dir():
        raise StoreError(f"{path} is a folder: name a file in it, such as {path / 'jobs.db'}")
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} does not exist: make it, or choose another")
    _refuse_network_filesystem(path)


def _refuse_network_filesystem(path: Path) -> None:
    """Raise UnsafeFilesystem if the file lies, or would lie, on a network file system.

    "WAL does not work over a network filesystem": the processes of all connections must share
    memory (sqlite.org/wal.html, section 1).
    """
    file = path.resolve()
    mounts = {
        Path(disk.mountpoint): disk.fstype.lower() for disk in psutil.disk_partitions(all=True)
    }
    holding = max(
        (mount for mount in mounts if file.is_relative_to(mount)),
        key=lambda mount: len(mount.parts),
        default=None,
    )
    if holding is not None and mounts[holding] in NETWORK:
        raise UnsafeFilesystem(
            f"{path} lies on {holding}, a network file system ({mounts[holding]}), where a "
            "write-ahead log can be corrupted: use a local disk, or PostgreSQL for many machines"
        )


def foreign(path: Path) -> ForeignFile:
    """Return the error for a file that is not a store."""
    return ForeignFile(f"{path} is not a jobq store: move it away, or name another file")
