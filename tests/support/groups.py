"""A group whose partitions workers share: real pumps, on a clock that the test advances."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from blackboard.assembly import WorkerSetup, group_worker
from blackboard.board_worker import WorkerSettings
from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent
from blackboard.handlers.context import Context, HandlerItem
from blackboard.handlers.handler import Handler, handlers_of, pump
from blackboard.handlers.registry import by_type
from blackboard.model import Item
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.shares import Balance
from blackboard.runners.inline import InlineRunner
from blackboard.settings import Settings, resolver
from blackboard.sharing.partitions import GroupWorker
from blackboard.sharing.races import Races
from tests.support.boards import disagreements
from tests.support.fleet import Fleet, Network, NetworkTable, with_fleet
from tests.support.simulated_bus import SharedBus, SimulatedBus

LEASE, ROUND, DRAIN = 30.0, 10.0, 5.0
GROUP = "clicks"
SAVED_EVERY = 5
"""Seconds between two saves of a pump, the first of which is after one."""


@dataclass
class Log:
    """A record of what the pumps of a group did."""

    fleet: Fleet
    running: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The workers whose pump runs, by partition."""
    began: list[tuple[float, str, str]] = field(default_factory=list)
    ended: list[tuple[float, str, str]] = field(default_factory=list)
    saved: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    together: int = 0
    """Pumps that began while another of their partition ran."""
    deaf: bool = False
    """Whether pumps ignore that they are asked to end."""
    saving: bool = True
    """Whether pumps save how many seconds of their partition are pumped."""
    killed: int = 0
    """Pumps that were stopped before they returned."""
    failing: bool = False
    unasked: Container[str] = ()
    """Partitions whose pumps return without being asked to."""
    unlocked: bool = False
    """Whether people take locks away: then a pump may go on after the next one has begun."""

    async def pump(self, item: HandlerItem, ctx: Context) -> None:
        now = self.fleet.clock.monotonic
        self.together += bool(self.running[item.id]) and not self.unlocked
        self.running[item.id].append(ctx.worker)
        self.began.append((now(), item.id, ctx.worker))
        begin = position = ctx.checkpoint or 0
        assert position >= self.saved[item.id], "an acknowledged save is where the next one begins"
        try:
            if self.failing:
                raise OSError("no such stream")
            while (self.deaf or not ctx.stopping) and item.id not in self.unasked:
                await self.fleet.clock.sleep(1.0)
                position += 1
                if self.saving and (position - begin) % SAVED_EVERY == 1:
                    await ctx.save(position)
                    self.saved[item.id] = position
        except asyncio.CancelledError:
            self.killed += 1
            raise
        finally:
            self.running[item.id].remove(ctx.worker)
            self.ended.append((now(), item.id, ctx.worker))

    @property
    def owners(self) -> dict[str, str]:
        return {one: some[0] for one, some in self.running.items() if some}

    @property
    def counts(self) -> list[int]:
        return sorted(Counter(self.owners.values()).values())

    def gaps(self, since: float) -> list[float]:
        """Seconds from each end of a pump to the next start in its partition."""
        found = []
        for moment, partition, _ in self.ended:
            if moment >= since:
                after = [at for at, one, _ in self.began if one == partition and at >= moment]
                found.append(min(after, default=float("inf")) - moment)
        return found


@dataclass
class Hand:
    """A worker of the group."""

    worker: GroupWorker
    table: NetworkTable
    task: asyncio.Task[None]
    told: list[BoardEvent]

    async def stops(self) -> None:
        self.worker.stop()

    async def dies(self) -> None:
        await self.table.kill(self.task)


@dataclass
class Group:
    """A fleet whose workers share a group."""

    fleet: Fleet
    log: Log
    handler: Handler
    hands: dict[str, Hand] = field(default_factory=dict)
    shared: SharedBus = field(default_factory=SharedBus)
    """The bus of pumps with the balance `grab`."""
    settings: Settings = field(default_factory=Settings)

    @property
    def board(self) -> BoardTable:
        found = self.fleet.board.group(GROUP)
        found.resolve = resolver(self.settings, by_type([self.handler]))
        return found

    def bus(self, *, on_away: Callable[[str], None], on_back: Callable[[], None]) -> SimulatedBus:
        """Opens the bus of a worker."""
        clock, chance = self.fleet.clock, self.fleet.board.chance
        return SimulatedBus(self.shared, clock, chance, on_away=on_away, on_back=on_back)

    async def join(self, *owners: str, network: Network | None = None) -> None:
        races = self.handler.pump is not None and self.handler.pump.balance is Balance.GRAB
        for owner in owners:
            own = await self.fleet.open_table(self.fleet.clock)
            under = NetworkTable(
                own, network or self.fleet.network, clock=self.fleet.clock, owner=owner
            )
            self.fleet.tables.append(under)
            told: list[BoardEvent] = []
            events = EventEmitter(owner)
            events.subscribe(told.append)
            worker = group_worker(
                self.board.using(under),
                WorkerSetup(
                    settings=WorkerSettings(),
                    events=events,
                    inline=InlineRunner(),
                    process=InlineRunner(),
                ),
                parent=self.fleet.board.name,
                pump=self.handler,
                races=Races(open_bus=self.bus) if races else None,
            )
            task = asyncio.get_running_loop().create_task(worker.work())
            self.hands[owner] = Hand(worker, under, task, told)
        await self.fleet.settle()

    async def item(self, partition: str) -> Item:
        item = await self.board.item(partition)
        assert item is not None
        return item


def sharing(partitions: int = 12, **said: Any) -> Callable[..., Callable[..., None]]:
    """Run an async test with a group on a fresh board of every store."""

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        async def story(fleet: Fleet) -> None:
            log = Log(fleet)

            async def serve(item: HandlerItem, ctx: Context) -> None:
                await log.pump(item, ctx)

            said.setdefault("drain", f"{DRAIN:g}s")
            declared = pump(GROUP, partitions=partitions, **said)(serve)
            group = Group(fleet, log, handlers_of(declared)[0])
            try:
                await test(group)
                assert log.together == 0
                assert await disagreements(group.board) == []
            finally:
                for one in group.hands.values():
                    await one.dies()

        story.__name__, story.__doc__ = test.__name__, test.__doc__
        return with_fleet(story)

    return decorate
