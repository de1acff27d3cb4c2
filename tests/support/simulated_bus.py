"""A bus in memory, with seeded delays and losses; it may be away.

A node that listens notices at once that the bus is away or back again, as when a connection breaks.
Any other node notices it at its next request.
"""

from asyncio import Queue
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from blackboard.bus import BusAway
from blackboard.clock import Chance, Clock
from blackboard.rules.grab import Channel, Hash, Notified
from blackboard.simulator.network import BusFault

LATE = 3.0
"""Extra seconds of each request and message, at most, while the bus answers late."""
LOST = 0.5
"""The share of messages that are lost while the bus loses messages."""
AWAY = "the simulated bus is away"
Arriving = tuple[float, Notified | None]
"""The moment of arrival, and the message; None in its place: the bus went away or came back."""


@dataclass(slots=True, kw_only=True)
class SharedBus:
    """The state of a bus, which the nodes of a group share. Faults change it between requests."""

    lost: float = 0.0
    """The share of messages that a listener does not get."""
    late: float = 0.0
    """Extra seconds of each request and message, at most."""
    is_away: bool = False
    requests: int = 0
    """Requests so far, including those that publish."""
    published: int = 0
    """Messages so far."""
    hashes: dict[Hash, dict[str, str]] = field(default_factory=lambda: {one: {} for one in Hash})
    listeners: list["_Listener"] = field(default_factory=list)

    def fail(self, how: BusFault) -> None:
        match how:
            case BusFault.AWAY:
                self.go_away()
            case BusFault.LATE:
                self.late = LATE
            case BusFault.LOST:
                self.lost = LOST

    def recover(self) -> None:
        """Ends all faults."""
        self.late = self.lost = 0.0
        self.come_back()

    def go_away(self) -> None:
        self.is_away = True
        self._break_connections()

    def come_back(self) -> None:
        self.is_away = False
        self._break_connections()

    def _break_connections(self) -> None:
        for listener in self.listeners:
            listener.messages.put_nowait((0.0, None))


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

    def __init__(
        self,
        shared: SharedBus,
        clock: Clock,
        chance: Chance,
        *,
        on_away: Callable[[str], None] = lambda _: None,
        on_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.shared = shared
        self.clock = clock
        self.chance = chance
        self.on_away = on_away
        self.on_back = on_back
        self.usual = (0.0, 0.0)
        """The shortest and the longest time of a request or a message, in seconds."""
        self.late = 0.0
        """Extra seconds of each request and message of this node, at most: the node is busy."""
        self._was_away = False
        """Whether the bus was away when the node last noticed."""

    def delay(self) -> float:
        shortest, longest = self.usual
        usual = shortest + self.chance.fraction() * (longest - shortest)
        return usual + self.chance.fraction() * (self.late + self.shared.late)

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
        self._notice()
        try:
            yield self._arrivals(listener)
        finally:
            self.shared.listeners.remove(listener)

    async def close(self) -> None:
        """Does nothing: there is no connection."""

    async def _arrivals(self, listener: _Listener) -> AsyncIterator[Notified]:
        while True:
            moment, message = await listener.messages.get()
            if message is None:
                self._notice()
                continue
            await self.clock.sleep(moment - self.clock.monotonic())
            yield message

    async def _reach(self, hash_name: Hash) -> dict[str, str]:
        await self._wait()
        return self.shared.hashes[hash_name]

    async def _wait(self) -> None:
        self.shared.requests += 1
        await self.clock.sleep(self.delay())
        self._notice()
        if self.shared.is_away:
            raise BusAway(AWAY)

    def _notice(self) -> None:
        is_away = self.shared.is_away
        if is_away and not self._was_away:
            self.on_away(AWAY)
        if self._was_away and not is_away:
            self.on_back()
        self._was_away = is_away
