"""A few child processes that read feeds, each killed when a feed takes it beyond its deadline.

They start when the first feed needs parsing: a run on unchanged feeds starts none.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from .records import ANSWER, HEAD, Ask, Parsed

_FOLDER = str(Path(__file__).resolve().parent)
_BOOT = """
import sys, types
package = types.ModuleType("calendars_child")
package.__path__ = [sys.argv[1]]
sys.modules["calendars_child"] = package
from calendars_child.child import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""
"""Makes this folder a package without running its `__init__`, which is for workers."""


class Parsers:
    """At most `size` processes, for the length of an `async with`."""

    def __init__(self, *, size: int, deadline: float, memory: int) -> None:
        self._deadline = deadline
        self._memory = memory
        self._places = asyncio.Semaphore(size)
        self._idle: list[asyncio.subprocess.Process] = []
        self._all: set[asyncio.subprocess.Process] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _problem: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for process in tuple(self._all):
            await self._end(process)

    async def parse(self, body: bytes, ask: Ask) -> Parsed:
        """What the feed says. A feed that takes too long, or kills its reader, is an answer too."""
        async with self._places:
            process = self._idle.pop() if self._idle else await self._start()
            try:
                async with asyncio.timeout(self._deadline):
                    parsed = await _exchange(process, body, ask)
            except TimeoutError:
                await self._end(process)
                return Parsed(error=f"takes more than {self._deadline:g} s to read")
            except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):
                await self._end(process)
                return Parsed(error=f"its reader died: exit status {process.returncode}")
            except BaseException:
                await self._end(process)
                raise
            self._idle.append(process)
            return parsed

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _BOOT, _FOLDER, str(os.getpid()), str(self._memory)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._all.add(process)
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._all.discard(process)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _exchange(process: asyncio.subprocess.Process, body: bytes, ask: Ask) -> Parsed:
    assert process.stdin is not None
    assert process.stdout is not None
    request = msgspec.json.encode(ask)
    process.stdin.write(HEAD.pack(len(request), len(body)) + request)
    process.stdin.write(body)
    await process.stdin.drain()
    head = await process.stdout.readexactly(ANSWER.size)
    (length,) = ANSWER.unpack(head)
    return msgspec.json.decode(await process.stdout.readexactly(length), type=Parsed)
