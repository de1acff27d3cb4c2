"""A bus in memory, with seeded delays and losses."""

from asyncio import Queue
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from blackboard.bus import BusAway
from blackboard.clock import Chance, Clock
from blackboard.rules.grab import Channel, Hash, Notified

Arriving = tuple[float, Notified]
"""A message, and the moment at which it arrives."""


@dataclass(slots=True, kw_only=True)
class SharedBus:
    """What the nodes of a group share. Its values are changed between their requests."""

    lost: float = 0.0
    """The part of messages that a listener does not get."""
    is_away: bool = False
    requests: int = 0
    """Requests so far, those that publish included."""
    published: int = 0
    """Messages so far."""
    hashes: dict[Hash, dict[str, str]] = field(default_factory=lambda: {one: {} for one in Hash})
    listeners: list["_Listener"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Listener:
    """A node that listens. Its messages arrive in their order, as over one connection."""

    bus: "SimulatedBus"
    messages: Queue[Arriving]
    last: float = 0.0

    def send(self, message: Notified) -> None:
        bus = self.bus
        if bus.chance.fraction() >= bus.shared.lost:
            self.last = max(self.last, bus.clock.monotonic() + bus.delay())
            self.messages.put_nowait((self.last, message))


class SimulatedBus:
    """The bus as one node uses it, by the node's clock. All clocks of a bus must run alike."""

    def __init__(self, shared: SharedBus, clock: Clock, chance: Chance) -> None:
        self.shared = shared
        self.clock = clock
        self.chance = chance
        self.usual = (0.0, 0.0)
        """Seconds that a request or a message takes, from and to."""
        self.late = 0.0
        """Seconds that the node takes besides, at the most, because it is busy."""

    def delay(self) -> float:
        shortest, longest = self.usual
        usual = shortest + self.chance.fraction() * (longest - shortest)
        return usual + self.chance.fraction() * self.late

    async def set_if_absent(self, hash_name: Hash, field: str, value: str) -> str:
        return (await self._reach(hash_name)).setdefault(field, value)

    async def get(self, hash_name: Hash, field: str) -> str | None:
        return (await self._reach(hash_name)).get(field)

    async def put(self, hash_name: Hash, field: str, value: str) -> None:
        (await self._reach(hash_name))[field] = value

    async def drop_if(self, hash_name: Hash, field: str, value: str) -> bool:
        values = await self._reach(hash_name)
        if values.get(field) != value:
            return False
        del values[field]
        return True

    async def publish(self, channel: Channel, message: str) -> None:
        await self._wait()
        self.shared.published += 1
        for listener in self.shared.listeners:
            listener.send(Notified(channel, message))

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[Notified]]:
        listener = _Listener(self, Queue())
        self.shared.listeners.append(listener)
        try:
            yield self._arrivals(listener)
        finally:
            self.shared.listeners.remove(listener)

    async def close(self) -> None:
        """There is nothing to end."""

    async def _arrivals(self, listener: _Listener) -> AsyncIterator[Notified]:
        while True:
            moment, message = await listener.messages.get()
            await self.clock.sleep(moment - self.clock.monotonic())
            yield message

    async def _reach(self, hash_name: Hash) -> dict[str, str]:
        await self._wait()
        return self.shared.hashes[hash_name]

    async def _wait(self) -> None:
        self.shared.requests += 1
        await self.clock.sleep(self.delay())
        if self.shared.is_away:
            raise BusAway("the simulated bus is away")
