"""Where a board's file may be: on a file system of this host, under one name.

WAL needs memory that all processes share, so a file on a network file system, or on one that is
shared between a virtual machine and its host, is refused: it would work in every test and be
damaged one day. The same is assumed of FUSE. `trust_filesystem=1` opens a board there nevertheless.

SQLite keeps new writes beside the file, in `NAME-wal`, which it finds by the name. A file with two
names has two logs, and two workers that do not see each other's writes. Symbolic links are followed
to the one name that they mean; a hard link, or a file that is mounted by itself at another path, is
a second name. So a file with more than one link is refused, and so is one that is itself a mount
point. No option allows them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from stat import S_ISREG

from msgspec import Struct

from blackboard.errors import StoreProblem

Identity = tuple[int, int]
"""The device and the inode of a file."""


def identity(file: str | Path) -> Identity:
    """Which file a path leads to. Raises OSError."""
    status = os.stat(file)  # noqa: PTH116 - a third of the time of Path.stat
    return status.st_dev, status.st_ino


class Mount(Struct, frozen=True):
    """A line of the mount table."""

    point: str
    kind: str
    id: int = 0
    """0 where the table has no ids."""
    parent: int = 0
    """The id of the mount that it is mounted on."""
    root: str = "/"
    """The path, within its file system, of what is shown at `point`."""


def mount_at(path: Path, mounts: Sequence[Mount]) -> Mount:
    """The mount that `path` (absolute, resolved) is on; without a kind if it is unknown."""
    place = f"{path}/"
    within = [mount for mount in mounts if place.startswith(f"{mount.point.rstrip('/')}/")]
    nearest = _root(within)
    if nearest.id:
        # The kernel goes down the path and enters each mount that it meets. A mount on a mount that
        # is hidden by now is not met.
        while inner := [mount for mount in within if mount.parent == nearest.id]:
            nearest = min(inner, key=_depth)
            within = [mount for mount in within if mount is not nearest]
        return nearest
    for mount in within:
        if _depth(mount) >= _depth(nearest):  # a later one of the same depth hides the earlier one
            nearest = mount
    return nearest


def _root(mounts: Sequence[Mount]) -> Mount:
    """The mount that is on no other mount of the table. A process that has changed its root to a
    folder sees no such line: then the mount of the root is unknown.
    """
    ids = {mount.id for mount in mounts}
    tops = [mount for mount in mounts if mount.id and mount.parent not in ids]
    unknown = Mount("/", "", id=tops[0].parent if tops else 0)
    return next((mount for mount in tops if mount.point == "/"), unknown)


def mount_table() -> list[Mount]:
    """The mounts of this host; none where they cannot be read."""
    try:
        if sys.platform == "darwin":
            return from_mount_command(_darwin())
        return from_mountinfo(Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape"))
    except (OSError, subprocess.SubprocessError):
        return []


def from_mountinfo(text: str) -> list[Mount]:
    """Linux: proc(5), fields 1, 2, 4 and 5, and the first behind the dash."""
    mounts = []
    for line in text.split("\n"):
        before, dash, behind = line.partition(" - ")
        if dash:
            own, parent, _, root, point = before.split(" ")[:5]
            kind = behind.split(" ")[0]
            mounts.append(Mount(_plain(point), kind, int(own), int(parent), _plain(root)))
    return mounts


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)


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


SHARED = frozenset(
    {
        *("9p", "acfs", "afpfs", "afs", "applevirtiofs", "auristorfs", "beegfs", "ceph"),
        *("cifs", "coda", "cvfs", "davfs", "drvfs", "fakeowner", "fhgfs", "gfs", "gfs2"),
        *("glusterfs", "gpfs", "grpcfuse", "hgfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"),
        *("orangefs", "osxfs", "panfs", "prl_fs", "pvfs2", "smb", "smb2", "smb3", "smbfs"),
        *("vboxsf", "virtiofs", "vmhgfs", "webdav", "wekafs"),
    }
)
"""Kinds of file system, in lower case, that other kernels write too: those of other machines, or
of the host of a virtual machine."""

FUSE = frozenset(["fuse", "fusefs", "macfuse", "osxfuse"])
"""FUSE names a kind `fuse.PROGRAM`. `fuseblk` is not here: that is on a disk of this host."""

SIDE_FILES = ("-wal", "-shm", "-journal")
"""The ends of the names of the files that SQLite keeps beside the file."""
FRESH = ".blackboard-"
"""The beginning of the name under which a new file is filled."""
TRUST = "sqlite:PATH?trust_filesystem=1"


def shared_kind(path: Path, mounts: Sequence[Mount]) -> str:
    """The kind of file system that `path` (absolute, resolved) is on, if it is refused; else ""."""
    kind = mount_at(path, mounts).kind
    family = kind.lower().partition(".")[0]
    return kind if family in SHARED | FUSE else ""


def check_place(path: Path, mounts: Sequence[Mount], *, trusted: bool) -> None:
    """Raises StoreProblem for a file system that is refused."""
    kind = "" if trusted else shared_kind(path, mounts)
    if kind:
        raise StoreProblem(
            f"{path} lies on a network or shared file system ({kind}), where SQLite would damage "
            "it (use a local disk, or an Azure table for several hosts; if one kernel alone ever "
            f"opens it, and its locks and shared memory work: {TRUST})"
        )


def check_names(path: Path, mounts: Sequence[Mount]) -> None:
    """Raises StoreProblem when the file at `path`, or one that SQLite keeps beside it, may have
    another name.
    """
    with suppress(OSError):  # `names_problem` reports it
        if path.stat().st_nlink > 1:
            _remove_fresh_name(path)
    if problem := names_problem(path):
        raise StoreProblem(problem)
    points = {mount.point for mount in mounts}
    for file in (path, *(Path(f"{path}{end}") for end in SIDE_FILES)):
        if str(file) in points and mount_at(file, mounts).point == str(file):
            raise StoreProblem(
                f"{file} is itself a mount point, so it has another name elsewhere, and workers "
                "under the two names would not see each other's writes (mount the folder that "
                "holds it, not the file)"
            )


def names_problem(path: Path) -> str:
    """What is wrong with the links of the file and of those beside it; "" when nothing is."""
    for end in ("", *SIDE_FILES):
        file = f"{path}{end}"
        try:
            status = os.lstat(file)
        except FileNotFoundError:
            continue
        except OSError as error:
            return unreachable(file, error)
        if not S_ISREG(status.st_mode):
            return f"{file} is not a plain file (put a plain file there, or remove it)"
        if status.st_nlink > 1:
            return (
                f"{file} has {status.st_nlink} names (hard links); workers under two of them would "
                "not see each other's writes (`find -samefile` shows the names: remove all but "
                "one, or use a symbolic link)"
            )
    return ""


def unreachable(file: str | Path, error: OSError) -> str:
    """Why a file cannot be looked at."""
    return (
        f"{file} cannot be reached: {error.strerror} (check its name, and owner, permissions and "
        "mount of it and of the folders above it)"
    )


def check_left_behind(path: Path) -> None:
    """Raises StoreProblem when a new file would use the log of a removed one: SQLite would write
    the log's content over the new file. Raises it also where no file can be beside it, as its name
    is too long.
    """
    for end in SIDE_FILES:
        left = Path(f"{path}{end}")
        try:
            left.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreProblem(unreachable(left, error)) from None
        if not path.exists():
            raise StoreProblem(
                f"{left} is left of a file that is gone (move {path} back beside it, or remove "
                "what is left)"
            )


def _remove_fresh_name(path: Path) -> None:
    """Removes the name under which the file was filled, which a process that is killed while it
    makes a board leaves behind.
    """
    for name in path.parent.glob(f"{FRESH}*"):
        with suppress(OSError):  # another process may remove its own meanwhile
            if not name.is_symlink() and name.samefile(path):
                name.unlink()
