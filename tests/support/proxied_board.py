"""A board on Azurite, with and without a proxy in front of it, and workers that run it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from blackboard.assembly import WorkerSetup, assemble
from blackboard.board_worker import WorkerSettings
from blackboard.clock import SystemChance, SystemClock
from blackboard.doctor import Examination, examine
from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent
from blackboard.handlers.handler import Handler, handler, handlers_of
from blackboard.model import Outcome, Run
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.runners.inline import InlineRunner
from blackboard.settings import Settings, resolver
from blackboard.spec import Spec
from blackboard.table import Table
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import credential_for
from blackboard.worker.wake import CycleWake
from blackboard.worker.worker import Mode, Worker
from tests.support.proxy import Proxy

Found = TypeVar("Found", bound=BoardEvent)

SLOTS = 8
AT_ONCE = 16
"""The most items that are added at a time."""


async def opened(port: int, table: str) -> AzureTable:
    """A table of the emulator, or of a proxy in front of it, at a port of this machine."""
    address = azure_address(f"azurite://127.0.0.1:{port}/{table}")
    credential = credential_for(address, lambda name: None, interactive=False)
    return await AzureTable.open(address, SystemClock(), credential=credential, create=True)


@dataclass(kw_only=True)
class Place:
    """One board, opened through a proxy and directly."""

    proxy: Proxy
    name: str
    through: BoardTable
    direct: BoardTable
    ran: Counter[tuple[str, datetime]] = field(default_factory=Counter)
    """Calls of handlers, by item and slot."""
    told: list[BoardEvent] = field(default_factory=list)
    """The events of all workers."""
    tables: list[Table] = field(default_factory=list)

    async def add(self, *ids: str) -> None:
        """Adds items that became due a minute ago, and are due again in an hour. Tests wait for no
        item; and a client may take the store's time to be a second earlier than it is.
        """
        spec, due = Spec(every="1h"), await self.direct.table.now() - timedelta(minutes=1)
        for number in range(0, len(ids), AT_ONCE):
            some = ids[number : number + AT_ONCE]
            adding = (
                add(self.direct, New(id=one, type="noop", spec=spec, first=due)) for one in some
            )
            await asyncio.gather(*adding)

    async def works(self, owner: str) -> None:
        """Runs a worker until nothing is due and nothing runs."""
        await (await self.hired(owner)).work(Mode.UNTIL_IDLE)

    async def hired(self, owner: str) -> Worker:
        """A worker with a connection of its own."""
        table = await opened(self.proxy.port, self.name)
        self.tables.append(table)
        return self._worker(await board_on(table), owner)

    def _worker(self, board: BoardTable, owner: str) -> Worker:
        @handler("noop", every="1h")
        async def noop(item: Any, ctx: Any) -> None:
            self.ran[item.id, ctx.due] += 1

        found = handlers_of(noop)[0]
        handlers: Mapping[str, Handler] = {found.type: found}
        events, inline = EventEmitter(owner), InlineRunner()
        events.subscribe(self.told.append)
        return assemble(
            board,
            WorkerSetup(
                settings=WorkerSettings(cycle=timedelta(seconds=1), slots=SLOTS),
                events=events,
                inline=inline,
                process=inline,
            ),
            handlers=handlers,
            wake=CycleWake(1.0, board.chance),
        )

    def of(self, kind: type[Found]) -> list[Found]:
        return [event for event in self.told if isinstance(event, kind)]

    async def histories(self) -> dict[str, list[Run]]:
        """The runs of each item, the oldest first."""
        return {
            item.id: [run async for run in self.direct.runs(item.id)][::-1]
            async for item in self.direct.items()
        }

    async def problems(self) -> list[str]:
        """The errors on a board whose items were due once, and on which no lock went stale."""
        found = [f"ran {count} times: {what}" for what, count in self.ran.items() if count > 1]
        for item, runs in (await self.histories()).items():
            good = [run for run in runs if run.outcome is Outcome.OK]
            if len(good) != 1:
                found.append(f"{item}: {[(run.fence, run.outcome.value) for run in runs]}")
        report = await examine(self.direct, Examination(types=["noop"]))
        return found + [str(finding) for finding in report.findings if finding.grave]


async def board_on(table: Table) -> BoardTable:
    return await BoardTable.create(
        table,
        name="town",
        shards=1,
        clock=SystemClock(),
        chance=SystemChance(),
        resolve=resolver(Settings(), {}),
    )


@asynccontextmanager
async def place_behind(proxy: Proxy) -> AsyncIterator[Place]:
    """A fresh board behind a proxy that does no harm yet."""
    name = f"test{SystemChance().nonce()}"
    through, direct = await opened(proxy.port, name), await opened(proxy.upstream, name)
    place = Place(
        proxy=proxy,
        name=name,
        through=await board_on(through),
        direct=await board_on(direct),
        tables=[through, direct],
    )
    try:
        yield place
    finally:
        for table in place.tables:
            await table.close()
