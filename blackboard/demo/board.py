"""The board of the demo: its folder with settings, calendars and logs, and its worker processes.

The board is a file in the folder, or in another store. Two workers are started, one is killed, and
none is left behind: each leads a session of its own, so Ctrl-C reaches only the demo, which ends
them. If the demo itself is killed, they end by themselves as soon as nothing is due or running.
"""

import asyncio
import json
import os
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date
from itertools import cycle
from pathlib import Path

from blackboard.clock import Clock
from blackboard.demo.feeds import TOWNS, GroupCalendar, Page, Town, feeds_of
from blackboard.demo.output import Output
from blackboard.display.toml_text import lines_of
from blackboard.errors import BlackboardError
from blackboard.location import DEFAULT_BOARD, Location
from blackboard.protocol.board_table import BoardTable
from blackboard.runners.commands import end_command, send_signal, start_command
from blackboard.settings import Settings

SLOTS = 3
"""The most runs of a worker at a time."""
_HEAD = """\
# The demo's board: sixteen towns, whose calendars are aggregated every eight hours.

[board]
{board}
jobs = ["calendars"]

[worker]
cycle = "2s"            # a minute is usual; a demo has to be short
slots = {slots}
grace = "1s"

[types.calendars]
every = "8h"
stale_after = "5s"      # likewise: a minute is a good value
timeout = "1m"

[jobs.calendars]
allow = ["127.0.0.1"]   # feeds on this machine are refused unless this says otherwise
"""
_FILE = "blackboard.db"
_QUICKEST = 1.0
_STEPS = (0.7, 0.9, 0.6, 0.8, 1.0)
"""Seconds until a town's first feed is served, and between two feeds: some towns are slower."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    path: Path
    elsewhere: str = ""
    """The URL of the store of the board; "" for a file in the folder."""
    board: str = DEFAULT_BOARD
    """Its name: unique in a store that others use."""

    @property
    def settings(self) -> Path:
        return self.path / "blackboard.toml"

    @property
    def store(self) -> str:
        """The value of `--store` that works from any folder."""
        return self.elsewhere or str(self.path / _FILE)

    @property
    def location(self) -> Location:
        return Location(settings=Settings(), folder=self.path, store=self.store, name=self.board)

    @property
    def board_table(self) -> Mapping[str, str]:
        """The keys of `[board]` that say where the board is."""
        return {"store": self.elsewhere or _FILE, "name": self.board}

    @property
    def options(self) -> str:
        """The options after the name of the program by which a reader selects this board."""
        options = f"--config {shlex.quote(str(self.settings))}"
        if "BLACKBOARD_STORE" in os.environ:  # it counts before the settings do
            options += f" --store {shlex.quote(self.store)}"
        return options

    @property
    def out(self) -> Path:
        return self.path / "out"

    def write_settings(self, *, site: str, today: date) -> None:
        """Declare the board, with feeds at `site`."""
        lines = [_HEAD.format(board="\n".join(lines_of(self.board_table)), slots=SLOTS)]
        for town in TOWNS:
            urls = [
                {"url": site + path_of(town, feed), "name": feed.group}
                for feed in feeds_of(town, today)
            ]
            item = {"id": town.id, "type": "calendars", "timezone": town.zone}
            params = {"out": str(self.out), "feeds": urls}
            lines += ["[[items]]", *lines_of(item), "[items.params]", *lines_of(params), ""]
        self.settings.write_text("\n".join(lines), encoding="utf-8")


def pages(today: date) -> dict[str, Page]:
    """The pages of the web server: every feed of every town."""
    return {
        path_of(town, feed): Page(body=feed.body, kind=feed.kind, delay=_QUICKEST + step * number)
        for town, step in zip(TOWNS, cycle(_STEPS), strict=False)
        for number, feed in enumerate(feeds_of(town, today))
    }


def path_of(town: Town, feed: GroupCalendar) -> str:
    return f"/{town.id}/{feed.group}.ics"


_GRACE = 3.0
"""Seconds that a worker may take to end after SIGTERM."""


@dataclass(slots=True)
class DemoWorker:
    name: str
    log: Path
    process: Process

    @property
    def pid(self) -> int:
        return self.process.pid

    def owns(self, owner: str) -> bool:
        """Whether a worker named host:pid:boot nonce is this one."""
        return owner.split(":")[-2:-1] == [str(self.pid)]

    async def kill(self) -> None:
        """SIGKILL: as when a machine loses its power."""
        send_signal(self.process, signal.SIGKILL)
        await self.process.wait()

    async def end(self) -> None:
        """SIGTERM, and SIGKILL where that does not end it in time."""
        if self.process.returncode is not None:
            return
        send_signal(self.process, signal.SIGTERM)
        try:
            async with asyncio.timeout(_GRACE):
                await self.process.wait()
        except TimeoutError:
            return
        finally:
            await end_command(self.process)


@dataclass(slots=True)
class DemoWorkers:
    folder: DemoFolder
    workers: list[DemoWorker] = field(default_factory=list)

    async def start(self, name: str, *arguments: str) -> DemoWorker:
        """Start `blackboard worker` with these arguments."""
        return await self.run(name, *_command(self.folder, ["worker", *arguments]))

    async def run(self, name: str, *command: str) -> DemoWorker:
        """Start a program in the folder."""
        log = self.folder.path / f"worker-{name}.log"
        with log.open("wb") as sink:
            process = await start_command(
                command, stdin=DEVNULL, stdout=sink, stderr=sink, cwd=self.folder.path
            )
        self.workers.append(DemoWorker(name, log, process))
        return self.workers[-1]

    def name_of(self, owner: str) -> str:
        names = (f"{worker.name} {worker.pid}" for worker in self.workers if worker.owns(owner))
        return next(names, owner)

    def check(self) -> None:
        """Raises BlackboardError when a worker has failed without being killed."""
        for worker in self.workers:
            code = worker.process.returncode
            if code not in {None, 0, -signal.SIGKILL}:
                raise BlackboardError(f"worker {worker.name} ended with {code}: see {worker.log}")


@asynccontextmanager
async def demo_workers(folder: DemoFolder) -> AsyncIterator[DemoWorkers]:
    """The workers of a demo; all have ended when this ends."""
    workers = DemoWorkers(folder)
    try:
        yield workers
    finally:
        await asyncio.gather(*(worker.end() for worker in workers.workers))


@asynccontextmanager
async def demo_pages(folder: DemoFolder) -> AsyncIterator[str]:
    """The board in a browser, for as long as this lasts; its address. Raises BlackboardError."""
    command = _command(folder, ["serve", "--operator", "--listen", "127.0.0.1:0", "--json"])
    process = await start_command(
        command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, cwd=folder.path
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise BlackboardError("the page of the demo could not be served: `blackboard serve`")
        yield json.loads(line)["url"]
    finally:
        await DemoWorker("pages", folder.path, process).end()


async def apply(folder: DemoFolder) -> None:
    """`blackboard apply` in the demo's folder. Raises BlackboardError when it is refused."""
    process = await start_command(
        _command(folder, ["apply"]), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=folder.path
    )
    try:
        _, output = await process.communicate()
    finally:
        if process.returncode is None:
            await end_command(process)
    if process.returncode:
        raise BlackboardError(f"the demo's board cannot be made: {output.decode().strip()}")


def _command(folder: DemoFolder, arguments: Sequence[str]) -> Sequence[str]:
    """The command itself. The store is an option, because the environment might name another."""
    where = ("--config", str(folder.settings), "--store", folder.store)
    return (sys.executable, "-m", "blackboard", *where, *arguments)


_LOOK_EVERY = 0.2
LIMIT = 180.0
"""Seconds that a story may take. Half a minute is usual, and several times that on a busy host."""


@dataclass(slots=True, kw_only=True)
class Story:
    """What the stories have in common: their board, its workers, and a limit of time."""

    board: BoardTable
    workers: DemoWorkers
    output: Output
    clock: Clock
    folder: DemoFolder
    ends: float = field(init=False)
    """When the story must be over, in monotonic seconds."""

    def __post_init__(self) -> None:
        self.ends = self.clock.monotonic() + LIMIT

    async def wait(self) -> None:
        """Wait until the next look at the board. Raises BlackboardError when a worker has failed,
        or the story takes too long.
        """
        self.workers.check()
        if self.clock.monotonic() > self.ends:
            raise BlackboardError(f"not done after {LIMIT:g} s: see the logs in {self.folder.path}")
        await self.clock.sleep(_LOOK_EVERY)
