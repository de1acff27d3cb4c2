"""Which scale this process reads monotonic times on: those of one boot compare, others do not.

The kernel has one id for each boot. Where the id that is read is the kernel's own, another such id
in the same file is of another boot of this host, and what wrote it has ended: such names begin with
`kernel:`. A container may be shown an id of its own, or live in a time namespace whose monotonic
clock is set off, while the host it shares the file with goes on. Its name says what it was shown
and where; nothing follows from its being another.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path

from blackboard.errors import StoreProblem
from blackboard.tables.mounts import mount_at, mount_table

KERNEL = "kernel:"
_SHOWN = Path("/proc/sys/kernel/random/boot_id")
_INITIAL = "time:[4026531834]"
"""The namespace that all processes are in unless they are put in another."""


@cache
def boot_id() -> str:
    """The same for all processes that share a monotonic clock. Raises StoreProblem."""
    try:
        if sys.platform == "darwin":
            return KERNEL + _darwin()
        shown, elsewhere = _SHOWN.read_text("ascii").strip(), _time_namespace()
        own = not elsewhere and _is_the_kernels()
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreProblem(
            f"this system does not say which boot it is in, so no lock could go stale safely: "
            f"{error}"
        ) from None
    return f"{KERNEL if own else ''}{shown}{elsewhere}"


def one_has_ended(boot: str, other: str) -> bool:
    """Whether two names are of two boots of one host."""
    return boot != other and boot.startswith(KERNEL) and other.startswith(KERNEL)


def unproven(boot: str) -> str:
    """The name for a file that other kernels may write too: nothing follows from another one."""
    return boot.removeprefix(KERNEL)


def _is_the_kernels() -> bool:
    """Whether nothing is mounted over the file that the kernel shows."""
    mount = mount_at(_SHOWN, mount_table())
    if mount.kind != "proc":
        return False
    within = Path(mount.root) / _SHOWN.relative_to(mount.point)
    return within == Path("/") / _SHOWN.relative_to("/proc")


def _time_namespace() -> str:
    """Nothing in the initial one; else which it is, and by how much its clocks are off: a number
    is used again once a namespace is gone.
    """
    here = Path("/proc/self/ns/time")
    if not here.exists():
        return ""
    name = str(here.readlink())
    if name == _INITIAL:
        return ""
    offsets = Path("/proc/self/timens_offsets").read_text("ascii").split()
    return f"+{name}+{'+'.join(offsets)}"


def _darwin() -> str:
    command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
    return subprocess.run(  # noqa: S603 - a fixed command
        command, check=True, capture_output=True, text=True, timeout=10
    ).stdout.strip()
