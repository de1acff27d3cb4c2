"""Blocks of programs that end at SIGTERM, where the program does not handle it itself."""

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple, Protocol

EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of a program that SIGTERM has ended."""


class Block(Protocol):
    """The body of an `async with`."""

    def terminate(self) -> None:
        """Begins to end the block, on the loop that it belongs to."""


class _Caught(NamedTuple):
    """The blocks of a loop, and its handler."""

    blocks: list[Block]
    handler: Callable[[int, FrameType | None], None]
    """The handler of SIGTERM, as long as the program installs no other."""


_caught: dict[asyncio.AbstractEventLoop, _Caught] = {}
"""The blocks that end at SIGTERM, by their loop."""


def catch(block: Block) -> None:
    """Ends the block at SIGTERM from now on, where the program does not handle that itself."""
    loop = asyncio.get_running_loop()
    if loop not in _caught:
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return

        def heard(number: int, _frame: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_terminate, loop)
                return
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

        _caught[loop] = _Caught([], heard)
        # Not by the loop's method: with that, `release` could not see whether this is still in use.
        signal.signal(signal.SIGTERM, heard)
    _caught[loop].blocks.append(block)


def _terminate(loop: asyncio.AbstractEventLoop) -> None:
    if loop in _caught:
        for one in tuple(_caught[loop].blocks):
            one.terminate()


def release(block: Block) -> bool:
    """Removes a block. Returns whether its loop has no other one: then SIGTERM is as it was before,
    unless the program has installed another handler.
    """
    loop = asyncio.get_running_loop()
    if loop not in _caught:
        return True
    blocks, handler = _caught[loop]
    if block in blocks:
        blocks.remove(block)
        if not blocks:
            del _caught[loop]
            if signal.getsignal(signal.SIGTERM) is handler:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return not blocks
