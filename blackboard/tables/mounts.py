"""Which file system a path lies on, and whether SQLite's locks and shared memory work there.

WAL needs memory that all processes share, so a file reached over a network is refused: it would
work in every test and be damaged one day.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

NETWORK = frozenset(
    [
        "9p",
        "acfs",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fhgfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "vmhgfs",
        "webdav",
    ]
)
"""Kinds of file system that live on another machine. Of FUSE the part behind `fuse.` counts."""

_NETWORK_FUSE = frozenset(
    [
        "blobfuse",
        "blobfuse2",
        "ceph",
        "davfs",
        "davfs2",
        "gcsfuse",
        "glusterfs",
        "goofys",
        "juicefs",
        "mount-s3",
        "rclone",
        "s3fs",
        "sshfs",
        "vmhgfs-fuse",
    ]
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of the mount table."""

    point: str
    kind: str


def network_kind(path: Path, mounts: Sequence[Mount]) -> str:
    """The kind of network file system that `path` (absolute, resolved) lies on, or ""."""
    found = Mount("/", "")
    for mount in mounts:
        # A later line of the same depth is mounted over the earlier one.
        if PurePath(path).is_relative_to(mount.point) and _depth(mount) >= _depth(found):
            found = mount
    kind, _, fuse = found.kind.partition(".")
    return found.kind if kind in NETWORK or fuse in _NETWORK_FUSE else ""


def mount_table() -> list[Mount]:
    """The mounts of this host; none where that cannot be told."""
    try:
        if sys.platform == "darwin":
            return from_mount_command(_darwin())
        return from_mountinfo(Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape"))
    except (OSError, subprocess.SubprocessError):
        return []


def from_mountinfo(text: str) -> list[Mount]:
    """Linux: proc(5), fields 5 and the first behind the dash."""
    mounts = []
    for line in text.splitlines():
        before, dash, behind = line.partition(" - ")
        if dash:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
            mounts.append(Mount(point, behind.split()[0]))
    return mounts


def from_mount_command(text: str) -> list[Mount]:
    """macOS: `//ann@nas/share on /Volumes/share (smbfs, nodev)`."""
    lines = re.finditer(r"^.+? on (/.*) \((\w+)[,)]", text, re.MULTILINE)
    return [Mount(line[1], line[2]) for line in lines]


def _depth(mount: Mount) -> int:
    return len(PurePath(mount.point).parts)


def _darwin() -> str:
    return subprocess.run(
        ["/sbin/mount"], check=True, capture_output=True, text=True, timeout=10
    ).stdout
