"""How old the rows of a file in SQLite are, and in which boot of the host they were written.

**Boots.** Monotonic times compare within one boot. The kernel has one id for each boot. Where the
id that a process reads is the kernel's own, the name of the boot begins with `kernel:`, and another
such name in the same file is of an earlier or later boot of this host: the older writer has ended.
A container may be shown an id of its own, or live in a time namespace whose monotonic clock has an
offset, while the host that shares the file goes on. Then the name has the id and the namespace, and
another name does not prove that a boot has ended.

**Ages.** A stamp is a time on the monotonic clock of one boot. A stamp of the reader's own boot
gives the age. A stamp of an earlier boot of this host makes the row infinitely old. Any other stamp
gives no age: its writer may be alive in such a container, or the reader's machine was set back to a
snapshot and the stamp lies in its future. Such a row is as old as the time for which the reader has
seen it unchanged, on the reader's own clock; client-go and the DynamoDB lock client compute all
ages so. That is never more than its true age: a lock that is renewed never goes stale, and one that
is not does, one lease after it was first read. A command, which reads once, never sees such a lock
as stale.
"""

import math
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from blackboard.clock import Clock
from blackboard.errors import StoreProblem
from blackboard.table import Etag, Row
from blackboard.tables.sqlite_file import Stamp
from blackboard.tables.sqlite_filesystem import mount_at, mount_table

KERNEL = "kernel:"
_SHOWN = Path("/proc/sys/kernel/random/boot_id")
_INITIAL = "time:[4026531834]"
"""The time namespace of all processes that were not put in another."""


@cache
def boot_id() -> str:
    """The name of this boot: the same for all processes that share a monotonic clock. Raises
    StoreProblem.
    """
    try:
        if sys.platform == "darwin":
            return KERNEL + _darwin_boot()
        shown, elsewhere = _SHOWN.read_text("ascii").strip(), _time_namespace()
        own = not elsewhere and _is_the_kernels()
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreProblem(
            f"this system does not say which boot it is in, so no lock could go stale safely: "
            f"{error}"
        ) from None
    return f"{KERNEL if own else ''}{shown}{elsewhere}"


def one_has_ended(boot: str, other: str) -> bool:
    """Whether two names are of different boots of one host."""
    return boot != other and boot.startswith(KERNEL) and other.startswith(KERNEL)


def unproven(boot: str) -> str:
    """The name for a file that other kernels may write too: another name then proves nothing."""
    return boot.removeprefix(KERNEL)


def _is_the_kernels() -> bool:
    """Whether the file with the id is the kernel's own, and nothing is mounted over it."""
    mount = mount_at(_SHOWN, mount_table())
    if mount.kind != "proc":
        return False
    within = Path(mount.root) / _SHOWN.relative_to(mount.point)
    return within == Path("/") / _SHOWN.relative_to("/proc")


def _time_namespace() -> str:
    """Empty in the initial namespace; else its number and the offsets of its clocks, because the
    kernel reuses the number of a namespace that has ended.
    """
    here = Path("/proc/self/ns/time")
    if not here.exists():
        return ""
    name = str(here.readlink())
    if name == _INITIAL:
        return ""
    offsets = Path("/proc/self/timens_offsets").read_text("ascii").split()
    return f"+{name}+{'+'.join(offsets)}"


def _darwin_boot() -> str:
    command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
    return subprocess.run(  # noqa: S603 - a fixed command
        command, check=True, capture_output=True, text=True, timeout=10
    ).stdout.strip()


MANY = 10_000
"""Rows whose first reading is remembered, before those that were not read lately are dropped."""
KEEP_SIGHT = 3600.0
"""Seconds since a row was last read, after which it may be dropped."""


@dataclass(slots=True)
class _Sight:
    """When this reader first and last read a row with its present etag."""

    first: float
    last: float


class Ages:
    """Computes the ages of rows for one reader, in the boot `boot`."""

    def __init__(self, boot: str, clock: Clock) -> None:
        self._boot = boot
        self._clock = clock
        self._sights: dict[tuple[str, Etag], _Sight] = {}
        """By key and etag. Boards of one file have rows of the same key, but an etag belongs to one
        batch of the file."""
        self._many = MANY

    def of(self, row: Row) -> float:
        """Seconds since the row was written, at least; infinity when that boot has ended."""
        now, stamp = self._clock.monotonic(), row.stamp
        assert isinstance(stamp, Stamp)
        if one_has_ended(stamp.boot, self._boot):
            return math.inf
        if stamp.boot == self._boot and stamp.touched <= now:
            return now - stamp.touched
        return now - self._first_seen(row, now)

    def _first_seen(self, row: Row, now: float) -> float:
        sight = self._sights.get((row.key, row.etag))
        if sight is None or sight.first > now:
            self._drop_old(now)
            sight = self._sights[row.key, row.etag] = _Sight(now, now)
        sight.last = now
        return sight.first

    def _drop_old(self, now: float) -> None:
        if len(self._sights) < self._many:
            return
        kept = {key: sight for key, sight in self._sights.items() if now - sight.last < KEEP_SIGHT}
        self._sights, self._many = kept, max(MANY, 2 * len(kept))
