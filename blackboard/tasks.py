"""Waiting for several things at a time, and for work that a cancellation must not cut short."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")


async def until_one_ends(*waiting: Awaitable[object]) -> None:
    """Waits until one of these has ended. The others are cancelled; what any raises is dropped."""
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()


async def finishing(work: Awaitable[Result], stop: Callable[[], object] = lambda: None) -> Result:
    """What `work` returns. At a cancellation, such as Ctrl-C, `stop` is called, so that it begins
    nothing more, and what is under way is finished before the cancellation is raised; what it
    raises then is dropped. A second cancellation is raised at once.
    """
    under_way = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        stop()
        await asyncio.gather(asyncio.shield(under_way), return_exceptions=True)
        raise
