"""A worker's part in the lease grab of one group: carries out what `rules/grab.py` decides.

Messages, answers of the bus, ends of pumps and the clock are events; each makes the next state and
actions. Actions of one partition are carried out one after the other, those of several at the same
time. An action that the bus does not answer is left out: the next race decides.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from blackboard.bus import Bus, BusAway, OpenBus
from blackboard.clock import Clock
from blackboard.rules.grab import (
    Action,
    DropIf,
    Event,
    Found,
    Get,
    Grab,
    Leaving,
    LockHolders,
    Publish,
    PumpEnded,
    PumpStarted,
    Put,
    Raced,
    RowsRead,
    SetIfAbsent,
    StartPump,
    StopPump,
    Times,
    WakeAt,
    Woken,
)

MOMENT = 0.1
"""Seconds between two checks whether all partitions were let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Races:
    """The bus over which the nodes of a group race, and the durations of the races."""

    open_bus: OpenBus
    times: Times = field(default_factory=Times)


@dataclass(slots=True, kw_only=True)
class LeaseGrab:
    """One node of a group. `run` is called once, as a task that is cancelled at the end."""

    node: str
    bus: Bus
    clock: Clock
    times: Times
    start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Starts a task, which its owner cancels at the end."""
    claim: Callable[[str], Awaitable[bool]]
    """Claims a partition and starts its pump. Returns whether this node holds it."""
    let_go: Callable[[str], None]
    """Asks a pump to end. `ended` is to be called when it has, and its lock is released."""
    guard: Callable[[], LockHolders | None]
    """The newest view of the lock rows; None: the rule is as published."""
    may_race: Callable[[], bool] = lambda: True
    """Whether it may take part in races: not where the bus is away, for example."""
    grab: Grab = field(init=False)
    _order: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    """Held while actions of a partition are carried out: others wait in line."""
    _tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """Actions that are being carried out."""
    _timer: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.grab = Grab(node=self.node, times=self.times)

    async def run(self) -> None:
        """Receives the messages of the bus."""
        async with self.bus.listen() as messages:
            async for message in messages:
                self.take(message)

    def rows_read(self, partitions: Iterable[str], held: Iterable[str]) -> None:
        """Takes over, from the rows, which partitions there are, and which this node holds."""
        self.take(RowsRead(frozenset(partitions), frozenset(held)))

    def ended(self, held: Collection[str]) -> None:
        """Notes that a pump has ended; `held` are the partitions that are still held."""
        for name in sorted(self.grab.pumping.difference(held)):
            self.take(PumpEnded(name))

    async def leave(self) -> None:
        """Lets all partitions go, and returns when that is published."""
        self.take(Leaving())
        while self._tasks or self.grab.pumping:
            await self.clock.sleep(MOMENT)

    def take(self, event: Event) -> None:
        self.grab, actions = self.grab.step(event, self.clock.monotonic(), self.guard())
        of_partitions = defaultdict[str, list[Action]](list)
        for action in actions:
            if isinstance(action, WakeAt):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self.start(self._wake(action.moment))
            else:
                of_partitions[action.partition].append(action)
        for partition, its_actions in of_partitions.items():
            task = self.start(self._carry_out(partition, its_actions))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _wake(self, moment: float) -> None:
        await self.clock.sleep(moment - self.clock.monotonic())
        self._timer = None
        self.take(Woken())

    async def _carry_out(self, partition: str, actions: Iterable[Action]) -> None:
        async with self._order[partition]:
            for action in actions:
                with suppress(BusAway):
                    await self._do(action)

    async def _do(self, action: Action) -> None:
        match action:
            case SetIfAbsent(hash_name, partition, value):
                winner: str | None = None
                with suppress(BusAway):
                    if self.may_race():
                        winner = await self.bus.set_if_absent(hash_name, partition, value)
                self.take(Raced(partition, winner))
            case Get(hash_name, partition):
                self.take(Found(hash_name, partition, await self.bus.get(hash_name, partition)))
            case StartPump(partition):
                is_held = await self.claim(partition)
                self.take(PumpStarted(partition) if is_held else PumpEnded(partition))
            case StopPump(partition):
                self.let_go(partition)
            case Publish(channel, partition):
                await self.bus.publish(channel, partition)
            case Put(hash_name, partition, value):
                await self.bus.put(hash_name, partition, value)
            case DropIf(hash_name, partition, value):
                await self.bus.drop_if(hash_name, partition, value)
