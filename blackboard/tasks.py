"""Waiting for several things at the same time."""

import asyncio
from collections.abc import Awaitable


async def until_one_ends(*waiting: Awaitable[object]) -> None:
    """Wait until one of these has ended. The others are cancelled; what any raises is dropped."""
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
