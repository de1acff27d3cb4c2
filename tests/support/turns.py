"""Turns of the event loop, for tests that turn the clock by hand: while other tasks can go on, they
do; where none can, the test does not spin.
"""

import asyncio

REST = 0.0005
"""Seconds that a test leaves to the threads and sockets of stores."""
MOST_TURNS = 1_000
"""Turns after which tasks count as settled although some go on."""


async def settled() -> None:
    """Lets other tasks run until all of them wait: for the clock, for a thread or for a reply."""
    for _ in range(MOST_TURNS):
        await asyncio.sleep(0)
        if not _others_are_ready():
            return


async def one_turn() -> None:
    """Lets other tasks run once; rests if all of them wait."""
    await asyncio.sleep(0)
    if not _others_are_ready():
        await asyncio.sleep(REST)


def _others_are_ready() -> bool:
    return bool(vars(asyncio.get_running_loop())["_ready"])
