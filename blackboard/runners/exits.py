"""Learning that a process has ended, while its number is still its own.

asyncio's own subprocesses are reaped the moment they end; from then on the number may be another
process's, and to kill what was left of the group would be a gamble. Here the loop hears first,
and whoever asked reaps.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from subprocess import Popen


def when_ended(process: Popen[bytes], tell: Callable[[], None]) -> None:
    """Have `tell` called on the running loop once the process has ended. It is not reaped yet:
    `process.wait()` then answers at once.
    """
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, or a sandbox that forbids it
        _when_ended_by_thread(process, loop, tell)
        return

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        tell()

    loop.add_reader(handle, ended)


def _when_ended_by_thread(
    process: Popen[bytes], loop: asyncio.AbstractEventLoop, tell: Callable[[], None]
) -> None:
    def wait() -> None:
        if sys.platform == "linux":
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=wait, name=f"end of {process.pid}", daemon=True).start()
