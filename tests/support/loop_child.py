"""A process with a watched event loop, which commands on stdin block.

`block` and `hold` block the loop: in Python, or with the interpreter's lock held; `wait` blocks it
for twice its `PATIENCE`; `free` ends the watch over it; any other command ends the process. Each
turn of the loop is reported to the watch, and then printed as `turning`.
"""

import asyncio
import ctypes
import faulthandler
import math
import sys
import time

from blackboard.runners.process import ProcessRunner

PATIENCE = 1.0
BEAT = 0.1


def block() -> None:
    time.sleep(600)


def hold_the_lock() -> None:
    ctypes.PyDLL(None).sleep(600)


async def main() -> None:
    faulthandler.enable()
    runner = ProcessRunner(idle=1)
    words = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(words), sys.stdin
    )
    asking = asyncio.ensure_future(words.readline())
    free = False
    while True:
        runner.loop_turns(math.inf if free else time.monotonic() + PATIENCE)
        sys.stdout.write(f"turning {runner.watch.guard}\n")
        sys.stdout.flush()
        done, _ = await asyncio.wait([asking], timeout=BEAT)
        if not done:
            continue
        match asking.result():
            case b"block\n":
                block()
            case b"hold\n":
                hold_the_lock()
            case b"wait\n":
                time.sleep(2 * PATIENCE)  # noqa: ASYNC251 - that is the point
            case b"free\n":
                free = True
            case _:
                break
        asking = asyncio.ensure_future(words.readline())
    await runner.close()


if __name__ == "__main__":
    asyncio.run(main())
