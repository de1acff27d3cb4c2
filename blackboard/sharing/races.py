"""A worker's part in the lease grab of one group: carries out what `rules/grab.py` decides.

Messages, answers of the bus, ends of pumps and the clock are events; each makes the next state and
actions. Actions of one partition are carried out one after the other, those of several at the same
time. An action that the bus does not answer is left out: the next race decides.

`GroupRaces` judges whether races decide at all: a bus that is away for longer than a lease leaves
it to shares, and so do workers of which not all race.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from blackboard.bus import Bus, BusAway, OpenBus
from blackboard.clock import Clock
from blackboard.events import BusBack, BusUnavailable, GroupTrouble
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
from blackboard.rules.shares import Picture
from blackboard.sharing.group_rows import GroupRows

MOMENT = 0.1
"""Seconds between two checks whether all partitions were released."""


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
    release: Callable[[str], None]
    """Asks a pump to end. `ended` is to be called when it has, and its lock is released."""
    holders: Callable[[], LockHolders]
    """The newest view of the lock rows."""
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
        """Releases all partitions, and returns when that is published."""
        self.take(Leaving())
        while self._tasks or self.grab.pumping:
            await self.clock.sleep(MOMENT)

    def take(self, event: Event) -> None:
        self.grab, actions = self.grab.step(event, self.clock.monotonic(), self.holders())
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
                self.release(partition)
            case Publish(channel, partition):
                await self.bus.publish(channel, partition)
            case Put(hash_name, partition, value):
                await self.bus.put(hash_name, partition, value)
            case DropIf(hash_name, partition, value):
                await self.bus.drop_if(hash_name, partition, value)


@dataclass(slots=True, kw_only=True)
class GroupRaces:
    """The races of a worker in one group."""

    races: Races
    owner: str
    rows: GroupRows
    start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    claim: Callable[[str], Awaitable[bool]]
    release: Callable[[str], None]
    """These three as `LeaseGrab` has them."""
    node: LeaseGrab = field(init=False)
    _holders: LockHolders = field(default_factory=lambda: LockHolders({}))
    """The holders of the partitions, by the last look."""
    _away_since: float | None = None
    """Since when the bus is away."""
    _behind: dict[str, float] = field(default_factory=dict)
    """The workers that hold at least two partitions less than another, and since when each has got
    none; -inf for all of them: races took too long, and shares decide until no worker is behind.
    """

    def __post_init__(self) -> None:
        self.node = LeaseGrab(
            node=self.owner,
            bus=self.races.open_bus(on_away=self._bus_away, on_back=self._bus_back),
            clock=self.rows.board.clock,
            times=self.races.times,
            start=self.start,
            claim=self.claim,
            release=self.release,
            holders=lambda: self._holders,
            may_race=lambda: self.decide,
        )

    @property
    def decide(self) -> bool:
        """Whether races decide, and not shares."""
        since, now = self._away_since, self.rows.board.clock.monotonic()
        is_there = since is None or now - since <= self.rows.lease
        return is_there and not self._is_uneven

    @property
    def _is_uneven(self) -> bool:
        """Whether races took too long to make the shares even."""
        return -math.inf in self._behind.values()

    def looked(self, picture: Picture, names: Iterable[str], held: Iterable[str]) -> None:
        """Takes over what a look at the rows has shown: `names` are all partitions, `held` those
        whose pump this worker runs.
        """
        self._see_who_is_behind(picture)
        self._holders = LockHolders(picture.held, picture.paused)
        self.node.rows_read(names, held)

    def _see_who_is_behind(self, picture: Picture) -> None:
        """Notes which workers hold too little, and for how long. Where workers join one after
        another, one is always behind: so it counts how long the same one has got nothing.
        """
        now, longest, group = self.node.clock.monotonic(), self.races.times.maximum, self.rows.group
        before, held = self._holders, picture.counts
        most = picture.biggest
        order = sorted(picture.workers, key=lambda worker: (held[worker], worker))
        behind = [worker for worker in order if held[most] - held[worker] >= 2]
        if self._is_uneven:  # shares deal now: that a worker gets some does not show that races do
            self._behind = dict.fromkeys(behind, -math.inf)
            return
        self._behind = {
            worker: now if held[worker] > before.held(worker) else self._behind.get(worker, now)
            for worker in behind
        }
        for worker, since in self._behind.items():
            if now - since > longest:
                self._behind = dict.fromkeys(behind, -math.inf)
                message = (
                    f"{group} goes by shares until it is even: {worker} holds {held[worker]}, "
                    f"{most} {held[most]}, and {worker} has got none for longer than {longest:g} s "
                    "(does a worker have another Redis, or another balance?)"
                )
                self.rows.events.emit(GroupTrouble, message=message)
                return

    def _bus_away(self, problem: str) -> None:
        self._away_since = self.node.clock.monotonic()
        message = f"{problem}; {self.rows.group} goes by shares unless it is back within a lease"
        self.rows.events.emit(BusUnavailable, message=message)

    def _bus_back(self) -> None:
        self._away_since = None
        message = f"the bus is back: the partitions of {self.rows.group} are raced for"
        self.rows.events.emit(BusBack, message=message)
