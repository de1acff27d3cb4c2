"""Starts commands, each in a session of its own, and ends them with all that they have started
there; and the environment that they and child processes get.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from blackboard.runners import guard
from blackboard.runners.secrets import OWN

_ENDS_WITHIN = 5.0
"""Seconds that the end of a killed command is waited for."""


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for processes in which handlers run, or which they start: without the
    scheduler's own secrets. A job that needs one can be given it under another name.
    """
    return {name: text for name, text in environ.items() if name not in OWN}


async def start_command(argv: Sequence[str], **about: Any) -> asyncio.subprocess.Process:
    """Starts a command; `about` are further arguments of asyncio. A caller that is cancelled before
    it gets the process leaves none behind: asyncio alone would kill the command, and not what that
    has started. Raises OSError, and ValueError for a NUL character.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(*argv, start_new_session=True, **about)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Shielded as well: a caller that is cancelled twice leaves nothing behind either.
        await asyncio.shield(asyncio.ensure_future(_end_started(starting)))
        raise


async def end_command(process: asyncio.subprocess.Process) -> None:
    """Kills a command with all that it has started in its process group, and waits for its end; or,
    right after its end, kills what it has left there. One that runs as another user cannot be
    killed, and is waited for no longer than a moment.
    """
    # The system gives the number of a group to no other process while one of the group is left,
    # and after that only when all other numbers have had their turn.
    guard.kill(process.pid)
    with suppress(TimeoutError):
        async with asyncio.timeout(_ENDS_WITHIN):
            await process.wait()


def send_signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Sends a signal to a process, or does nothing where that has ended.

    asyncio's own, up to Python 3.12, asks the system for the exit code first. The thread of asyncio
    that waits for it may then find none: the process seems to have ended with 255.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def _end_started(starting: "asyncio.Future[asyncio.subprocess.Process]") -> None:
    await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await end_command(starting.result())


def how_it_ended(code: int) -> str:
    """A return code in words: "exit code 3", "killed by SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    has_name = -code in set(signal.Signals)  # real-time signals have no names
    return f"killed by {signal.Signals(-code).name if has_name else f'signal {-code}'}"
