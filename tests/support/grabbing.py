"""Nodes of a lease grab over any bus, with pumps that only take time to end."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from blackboard.bus import Bus
from blackboard.clock import Chance, Clock
from blackboard.rules.grab import Grab, Leaving, LockHolders, PumpEnded, Times
from blackboard.sharing.races import LeaseGrab
from blackboard.simulator.processes import HostClock, ProcessLoop, Timeline, stream
from tests.support.simulated_bus import SharedBus, SimulatedBus

Drain = tuple[float, float]
"""The shortest and the longest time that a pump takes to end, in seconds."""


@dataclass(slots=True)
class Pumps:
    """The pumps that run on any node, as an observer sees them, and the lock rows."""

    running: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The nodes whose pump of a partition runs."""
    owners: dict[str, str] = field(default_factory=dict)
    """The holders in the lock rows, by partition."""
    moves: int = 0
    """Starts of a pump."""
    at_once: int = 0
    """Starts of a pump while another one of its partition ran."""

    def start(self, node: str, partition: str) -> bool:
        if self.owners.setdefault(partition, node) != node:
            return False
        self.moves += 1
        self.at_once += bool(self.running[partition])
        self.running[partition].add(node)
        return True

    def end(self, node: str, partition: str) -> None:
        self.running[partition].discard(node)
        if self.owners.get(partition) == node:
            del self.owners[partition]

    def killed(self, node: str) -> None:
        """Ends the pumps of a node. Its locks stay: they go stale later."""
        for nodes in self.running.values():
            nodes.discard(node)

    def stale(self, node: str) -> None:
        """Frees what a killed node held, when its locks are stale."""
        self.owners = {name: owner for name, owner in self.owners.items() if owner != node}

    def of(self, node: str) -> int:
        return sum(node in nodes for nodes in self.running.values())

    def unowned(self) -> int:
        return sum(not nodes for nodes in self.running.values())


class GrabNode:
    """One node: the driver of the product, over pumps that only take time to end."""

    def __init__(
        self,
        name: str,
        bus: Bus,
        *,
        clock: Clock,
        chance: Chance,
        pumps: Pumps,
        times: Times,
        drain: Drain = (0.05, 0.5),
        holders: Callable[[], LockHolders] | None = None,
    ) -> None:
        self.name = name
        self.clock = clock
        self.chance = chance
        self.pumps = pumps
        self.drain = drain
        self.tasks: set[asyncio.Task[None]] = set()
        self.driver = LeaseGrab(
            node=name,
            bus=bus,
            clock=clock,
            times=times,
            start=self._start,
            claim=self._claim,
            release=self._release,
            holders=holders or (lambda: LockHolders(pumps.owners)),
        )

    @property
    def grab(self) -> Grab:
        return self.driver.grab

    async def run(self, partitions: Iterable[str]) -> None:
        """Takes part until it is cancelled."""
        self.driver.rows_read(partitions, ())
        try:
            await self.driver.run()
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    def leave(self) -> None:
        self.driver.take(Leaving())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _claim(self, partition: str) -> bool:
        return self.pumps.start(self.name, partition)

    def _release(self, partition: str) -> None:
        self._start(self._stop(partition))

    async def _stop(self, partition: str) -> None:
        shortest, longest = self.drain
        await self.clock.sleep(shortest + self.chance.fraction() * (longest - shortest))
        self.pumps.end(self.name, partition)
        self.driver.take(PumpEnded(partition))


@dataclass(frozen=True, slots=True)
class _SimulatedNode:
    loop: ProcessLoop
    bus: SimulatedBus
    node: GrabNode


class GrabWorld:
    """A group of nodes in virtual time, on a simulated bus."""

    def __init__(
        self,
        partitions: int,
        *,
        seed: int,
        view_every: float = 0.0,
        times: Times | None = None,
        lease: float = 30.0,
    ) -> None:
        """`view_every` is how often a node reads the lock rows; 0: for each decision. `lease` is
        how long the locks of a killed node last.
        """
        self.partitions = [f"{number:02}" for number in range(partitions)]
        self.seed = seed
        self.view_every = view_every
        self.times = times or Times()
        self.lease = lease
        self.timeline = Timeline()
        self.shared = SharedBus()
        self.pumps = Pumps()
        for name in self.partitions:
            self.pumps.running[name] = set()
        self.nodes: dict[str, _SimulatedNode] = {}

    def join(self, *names: str, late: float = 0.0) -> None:
        """Starts nodes, each at a moment within the next second. A request or message takes 1 to
        10 ms, and up to `late` seconds more.
        """
        for name in names:
            loop = ProcessLoop(self.timeline)
            clock = HostClock(self.timeline, loop, offset=0.0)
            chance = stream(self.seed, name)
            bus = SimulatedBus(self.shared, clock, chance)
            bus.usual = (0.001, 0.010)
            bus.late = late
            node = GrabNode(
                name,
                bus,
                clock=clock,
                chance=chance,
                pumps=self.pumps,
                times=self.times,
                holders=self._holders(),
            )
            self.nodes[name] = _SimulatedNode(loop, bus, node)
            begin = self.timeline.now + chance.fraction()
            self.timeline.at(begin, lambda of=loop, it=node: of.spawn(it.run(self.partitions)))

    def _holders(self) -> Callable[[], LockHolders]:
        """The lock rows as a node sees them that reads them every `view_every` seconds."""
        read_at = -self.view_every
        view = LockHolders({})

        def look() -> LockHolders:
            nonlocal read_at, view
            if self.timeline.now - read_at >= self.view_every:
                read_at = self.timeline.now
                view = LockHolders(dict(self.pumps.owners))
            return view

        return look

    def kill(self, name: str) -> None:
        self.nodes.pop(name).loop.kill()
        self.pumps.killed(name)
        self.timeline.at(self.timeline.now + self.lease, self.pumps.stale, name)

    def leave(self, name: str) -> None:
        one = self.nodes[name]
        one.loop.call_soon(one.node.leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.nodes.values():
            one.loop.kill()

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.timeline.run(self.timeline.now + seconds)
        assert not self.timeline.failures, self.timeline.failures

    def shares(self) -> Counter[str]:
        return Counter({name: self.pumps.of(name) for name in self.nodes})

    def spread(self) -> int:
        held = self.shares().values()
        return max(held) - min(held)

    def moves_in(self, seconds: float) -> int:
        before = self.pumps.moves
        self.run(seconds)
        return self.pumps.moves - before


FOUR = ("elk", "fox", "jay", "owl")
QUIET_HOUR = 3600.0
"""Seconds in which no partition should move."""


def settled(world: GrabWorld, *nodes: str, late: dict[str, float] | None = None) -> None:
    """Lets nodes join, each up to so many seconds late, and waits until nothing moves any more."""
    for name in nodes:
        world.join(name, late=(late or {}).get(name, 0.0))
    world.run(900)
