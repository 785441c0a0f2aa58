"""Refuse to keep a write-ahead log where it is not safe.

"WAL does not work over a network filesystem": the processes of all connections must share memory
(sqlite.org/wal.html, section 1).
"""

from pathlib import Path

import psutil

from jobq.errors import UnsafeFilesystem

# fmt: off
NETWORK = frozenset({
    "9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gfs2",
    "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "smb", "smb2", "smb3",
    "smbfs", "webdav",
})
# fmt: on


def refuse_network_filesystem(path: Path) -> None:
    """Raise UnsafeFilesystem if the file lies, or would lie, on a network file system."""
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
