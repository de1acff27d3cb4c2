"""A few child processes that read feeds, each killed when a feed takes it beyond its deadline.

They start when the first feed needs parsing: a run on unchanged feeds starts none. A reader lives
while it holds a place (`places.py`), and gives it back after some seconds, when it has nothing to
do, or after a feed that may have made it large.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from .places import Places
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


_LIFE = 5.0
"""Seconds that a reader keeps its place while others may wait for one."""
_IDLE = 0.25
"""Seconds that one without a feed keeps its place."""
_SMALL = 512 * 1024
"""Bytes of a feed after which a reader is as small as before."""


class Parsers:
    """At most `size` processes, for the length of an `async with`."""

    def __init__(
        self, *, size: int, deadline: float, memory: int, folder: Path | None = None
    ) -> None:
        self._deadline = deadline
        self._memory = memory
        self._places = Places(size, folder)
        self._turns = asyncio.Semaphore(size)
        self._idle: list[asyncio.subprocess.Process] = []
        self._all: dict[asyncio.subprocess.Process, tuple[int, float]] = {}
        """Each with its place, and when it is to be given back, in seconds of the loop."""
        self._served = 0
        self._last: dict[asyncio.subprocess.Process, int] = {}
        """Which feed each has read last, by number."""
        self._ending: list[asyncio.Future[None]] = []

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
        await asyncio.gather(*self._ending)

    async def parse(
        self, body: bytes, ask: Ask, *, begins: Callable[[], None] = lambda: None
    ) -> Parsed:
        """What the feed says. A feed that takes too long, or kills its reader, is an answer too.
        Calls `begins` once a reader is at hand.
        """
        async with self._turns:
            process = self._idle.pop() if self._idle else await self._start()
            begins()
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
            if parsed.error or len(body) > _SMALL or self._spent(process):
                await self._end(process)
            else:
                self._idle.append(process)
                self._rests(process)
            return parsed

    def _spent(self, process: asyncio.subprocess.Process) -> bool:
        return asyncio.get_running_loop().time() > self._all[process][1]

    async def _start(self) -> asyncio.subprocess.Process:
        place = await self._places.take()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _BOOT, _FOLDER, str(os.getpid()), str(self._memory)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except BaseException:
            self._places.free(place)
            raise
        self._all[process] = place, asyncio.get_running_loop().time() + _LIFE
        return process

    def _rests(self, process: asyncio.subprocess.Process) -> None:
        """Ends a reader that has nothing to do for a while."""
        served = self._served = self._served + 1
        self._last[process] = served

        def retire() -> None:
            if process in self._idle and self._last.get(process) == served:
                self._idle.remove(process)
                self._ending.append(asyncio.ensure_future(self._end(process)))

        asyncio.get_running_loop().call_later(_IDLE, retire)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Gives its place back once it is gone."""
        self._last.pop(process, None)
        held = self._all.pop(process, None)
        if held is None:
            return
        try:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        finally:
            self._places.free(held[0])


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
