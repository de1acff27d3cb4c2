"""What is mounted on this host, and which mount a path lies on."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath


@dataclass(frozen=True, slots=True)
class Mount:
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
    """The mount that `path` (absolute, resolved) lies on; of no kind where that is not said."""
    within = [mount for mount in mounts if PurePath(path).is_relative_to(mount.point)]
    found = _root(within)
    if found.id:
        # The kernel goes down the path and enters each mount that it meets: what is mounted on a
        # mount that is hidden by now is not met.
        while inner := [mount for mount in within if mount.parent == found.id]:
            found = min(inner, key=_depth)
            within = [mount for mount in within if mount is not found]
        return found
    for mount in within:
        if _depth(mount) >= _depth(found):  # a later one of the same depth hides the earlier one
            found = mount
    return found


def _root(mounts: Sequence[Mount]) -> Mount:
    """The mount that is on no other of the table. A process that has changed its root to a folder
    sees no such line: then it is unknown what the root lies on.
    """
    ids = {mount.id for mount in mounts}
    tops = [mount for mount in mounts if mount.id and mount.parent not in ids]
    return next((mount for mount in tops if mount.point == "/"), _unknown(tops))


def _unknown(tops: Sequence[Mount]) -> Mount:
    return Mount("/", "", id=tops[0].parent if tops else 0)


def mount_table() -> list[Mount]:
    """The mounts of this host; none where that cannot be told."""
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
