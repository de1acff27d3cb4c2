"""A few child processes that parse feeds, each killed when a feed takes it beyond its deadline.

The deadline is one of processor time, so a busy machine refuses no feed that an idle one takes; the
kernel keeps it. A reader that waits or hangs takes no processor time, so there is a bound by the
clock, too.

They start when the first feed needs parsing: a run on unchanged feeds starts none.

**SharedPlaces.** Several cities may be aggregated at a time, each in a process of its own, and the
memory of their parsers is bounded together. So a parser lives only while its run holds a place: a
lock on one of a few files in the folder of temporary files, which are deleted when they are not
used. Workers that each have such a folder of their own (containers, services with PrivateTmp=yes)
share no places. A parser gives its place back after some seconds, when it has nothing to do, or
after a feed that may have made it large. The kernel releases the lock of a run that dies, and its
parsers die with it. Where these files cannot be used (the folder cannot be written, or another user
has made them) each run has its own places.
"""

import asyncio
import errno
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from blackboard.runners.commands import how_it_ended, send_signal
from blackboard.runners.interpreter import program, python

from .records import ANSWER, HEAD, Ask, Parsed

LONGEST = 120.0
"""Seconds by the clock that a feed may take to read, however busy the machine is."""
_PAUSE = 0.05


class SharedPlaces:
    """`number` places as locked files in a folder. Without a folder they are this run's own."""

    def __init__(self, number: int, folder: Path | None) -> None:
        self._number = number
        self._folder = folder
        self._mine = asyncio.Semaphore(number)
        self._paths: dict[int, Path] = {}

    async def take(self) -> int:
        """Waits for a place; returns the argument for `free`."""
        await self._mine.acquire()
        if self._folder is None:
            return -1
        try:
            while True:
                for one in range(self._number):
                    held = _locked(_file(self._folder, one))
                    if held is not None:
                        self._paths[held] = _file(self._folder, one)
                        return held
                await asyncio.sleep(_PAUSE)
        except OSError:
            return -1
        except BaseException:
            self._mine.release()
            raise

    def free(self, held: int) -> None:
        if held >= 0:
            self._paths.pop(held).unlink(missing_ok=True)
            os.close(held)
        self._mine.release()


def _file(folder: Path, number: int) -> Path:
    return folder / f"blackboard-calendars-{os.getuid()}-reader-{number}.lock"


def _locked(path: Path) -> int | None:
    """The file, locked; None when another holds it. Raises OSError when it cannot be used: another
    user who has made it might never give it back.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is of another user", str(path))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)  # locked by another, or deleted by the one that had it
    return None


_FOLDER = str(Path(__file__).resolve().parent)
_BOOT = """
import types
package = types.ModuleType("calendars_child")
package.__path__ = [sys.argv[1]]
sys.modules["calendars_child"] = package
from calendars_child.parser import main
main(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
"""
"""Makes this folder a package without running its `__init__`, which is for workers."""


_LIFE = 5.0
"""Seconds that a parser keeps its place while others may wait for one."""
_IDLE = 0.25
"""Seconds that an idle parser keeps its place."""
_SMALL = 512 * 1024
"""Bytes of a feed that does not enlarge the parser for good."""


class ParserPool:
    """At most `size` processes, for the length of an `async with`."""

    def __init__(
        self,
        *,
        size: int,
        deadline: float,
        memory: int,
        folder: Path | None = None,
        longest: float = LONGEST,
    ) -> None:
        """`deadline` is the processor time for a feed, `longest` its time by the clock, in seconds;
        `memory` is bytes for each process, `folder` that of `SharedPlaces`.
        """
        self._deadline = deadline
        self._longest = longest
        self._memory = memory
        self._places = SharedPlaces(size, folder)
        self._turns = asyncio.Semaphore(size)
        self._idle: list[asyncio.subprocess.Process] = []
        self._all: dict[asyncio.subprocess.Process, tuple[int, float]] = {}
        """Each with its place, and the time to give it back, in seconds of the loop."""
        self._served = 0
        self._last: dict[asyncio.subprocess.Process, int] = {}
        """The number of the last feed of each."""
        self._ending: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
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
                async with asyncio.timeout(self._longest):
                    parsed = await _exchange(process, body, ask)
            except TimeoutError:
                await self._end(process)
                return Parsed(error=f"takes more than {self._longest:g} s to read")
            except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):
                await self._end(process)
                code = await process.wait()
                if code == -signal.SIGPROF:
                    much = f"more than {self._deadline:g} s of processor time"
                    return Parsed(error=f"takes {much} to read")
                return Parsed(error=f"its reader died: {how_it_ended(code)}")
            except BaseException:
                await self._end(process)
                raise
            is_over = asyncio.get_running_loop().time() > self._all[process][1]
            if parsed.large or len(body) > _SMALL or is_over:
                await self._end(process)
            else:
                self._idle.append(process)
                self._rests(process)
            return parsed

    async def _start(self) -> asyncio.subprocess.Process:
        place = await self._places.take()
        try:
            process = await asyncio.create_subprocess_exec(
                *python("-c", program(_BOOT), _FOLDER),
                *map(str, (os.getpid(), self._memory, self._deadline)),
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
        """Ends a parser that was idle for a while."""
        served = self._served = self._served + 1
        self._last[process] = served

        def retire() -> None:
            if process in self._idle and self._last.get(process) == served:
                self._idle.remove(process)
                self._ending.append(asyncio.ensure_future(self._end(process)))

        asyncio.get_running_loop().call_later(_IDLE, retire)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Gives its place back once it has ended."""
        self._last.pop(process, None)
        held = self._all.pop(process, None)
        if held is None:
            return
        try:
            send_signal(process, signal.SIGKILL)
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
