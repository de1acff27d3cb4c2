"""Commands in sessions of their own, which are ended with all that they have started there."""

import asyncio
from collections.abc import Sequence
from typing import Any

from blackboard.runners import guard


async def start_command(argv: Sequence[str], **about: Any) -> asyncio.subprocess.Process:
    """Start a command; `about` is what asyncio takes besides. Who is cancelled before it has the
    process leaves nothing behind: asyncio alone would kill the command, and not what that has
    started. Raises OSError, and ValueError for a NUL character.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(*argv, start_new_session=True, **about)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_kill)
        await asyncio.wait([starting])
        raise


def _kill(starting: "asyncio.Future[asyncio.subprocess.Process]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        guard.kill(starting.result().pid)
