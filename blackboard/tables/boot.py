"""Which boot of which host this is: monotonic times compare within one boot only."""

import subprocess
import sys
from functools import cache
from pathlib import Path

from blackboard.errors import StoreProblem


@cache
def boot_id() -> str:
    """The same for all processes until the host boots again. Raises StoreProblem."""
    try:
        if sys.platform == "darwin":
            return _darwin()
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreProblem(
            f"this system does not say which boot it is in, so no lock could go stale safely: "
            f"{error}"
        ) from None


def _darwin() -> str:
    command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
    return subprocess.run(  # noqa: S603 - a fixed command
        command, check=True, capture_output=True, text=True, timeout=10
    ).stdout.strip()
