"""Where a board's file may lie: on a file system of this host, under one name.

WAL needs memory that all processes share, so a file that is reached over a network, or shared
between a virtual machine and its host, is refused: it would work in every test and be damaged one
day. The same is assumed of all that FUSE serves. `trust_filesystem=1` opens a board there on the
user's word.

SQLite keeps what is not yet in the file beside it, in `NAME-wal`, and finds that by the name. A
file with two names has two logs, and two workers that do not see each other's writes. Symbolic
links are followed to the one name that they mean; a hard link, or a file that is mounted by itself
at another path, is a name of its own. So a file with more than one link is refused, and one that
is itself a mount point. No word of the user changes that.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from blackboard.errors import StoreProblem
from blackboard.tables.mounts import Mount, mount_at

SHARED = frozenset(
    [
        "9p",
        "acfs",
        "afpfs",
        "afs",
        "applevirtiofs",
        "auristorfs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "cvfs",
        "davfs",
        "drvfs",
        "fakeowner",
        "fhgfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "grpcfuse",
        "hgfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "osxfs",
        "panfs",
        "prl_fs",
        "pvfs2",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "webdav",
        "wekafs",
    ]
)
"""Kinds of file system, in lower case, that other kernels write too: those of other machines, or
of the host of a virtual one."""

FUSE = frozenset(["fuse", "fusefs", "macfuse", "osxfuse"])
"""What FUSE serves is named by one of them, with what serves it behind a dot. `fuseblk` is not
among them: that is on a disk of this host."""

SIDE_FILES = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside the file, by the ends of their names."""
FRESH = ".blackboard-"
"""How the name begins under which a new file is filled."""
TRUST = "sqlite:PATH?trust_filesystem=1"


def shared_kind(path: Path, mounts: Sequence[Mount]) -> str:
    """The kind of file system that `path` (absolute, resolved) lies on, if SQLite cannot be
    trusted there; else "".
    """
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
    """Raises StoreProblem for a file, or what SQLite keeps beside it, that may have another name.
    `path` is there.
    """
    if path.stat().st_nlink > 1:
        _remove_fresh_name(path)
    if problem := names_problem(path):
        raise StoreProblem(problem)
    for file in (path, *(Path(f"{path}{end}") for end in SIDE_FILES)):
        if mount_at(file, mounts).point == str(file):
            raise StoreProblem(
                f"{file} is itself a mount point, so it has another name elsewhere, and workers "
                "under the two names would not see each other's writes (mount the folder that "
                "holds it, not the file)"
            )


def names_problem(path: Path) -> str:
    """What is wrong with the links of the file and of what is beside it, as far as they are there;
    "" when nothing is.
    """
    for end in ("", *SIDE_FILES):
        file = f"{path}{end}"
        try:
            found = os.lstat(file)
        except FileNotFoundError:
            continue
        if not S_ISREG(found.st_mode):
            return f"{file} is not a plain file (put a plain file there, or remove it)"
        if found.st_nlink > 1:
            return (
                f"{file} has {found.st_nlink} names (hard links); workers under two of them would "
                "not see each other's writes (`find -samefile` shows the names: remove all but "
                "one, or use a symbolic link)"
            )
    return ""


def check_left_behind(path: Path) -> None:
    """Raises StoreProblem when a file that is to be made would take up another's log: SQLite would
    write what is in it over the new file.
    """
    for end in SIDE_FILES:
        left = Path(f"{path}{end}")
        if os.path.lexists(left) and not path.exists():
            raise StoreProblem(
                f"{left} is left of a file that is gone (move {path} back beside it, or remove "
                "what is left)"
            )


def _remove_fresh_name(path: Path) -> None:
    """Remove the name under which the file was filled. Who makes a board does that itself, unless
    it is killed just before.
    """
    with suppress(OSError):
        for name in path.parent.glob(f"{FRESH}*"):
            if not name.is_symlink() and name.samefile(path):
                name.unlink(missing_ok=True)
