"""The contract of a bus: six verbs for the two hashes and the two channels of a lease grab.

Any key-value store with publish and subscribe will do. A write to a field is atomic. A message goes
to the listeners of the moment, in the order in which it was published, once or not at all: a
listener that is away does not get it later. So a bus is not a place for what must not be lost. The
lock rows of the store say who holds what; the bus only makes the sharing quick.

Each group of nodes has a prefix of its own: `prefix:allocation`, `prefix:grab`,
`prefix:grab-lease`, `prefix:allocated`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from blackboard.errors import BadInput, BlackboardError
from blackboard.rules.grab import Channel, Hash, Notified

REDIS_URL = "BLACKBOARD_REDIS_URL"
"""The environment variable with the URL of Redis, which may hold a password."""

TCP = ("redis", "rediss")
SCHEMES = (*TCP, "unix")


def redis_parts(url: str, field: str) -> SplitResult:
    """The parts of a URL of Redis. Raises BadInput, which quotes nothing: text behind a password
    may be a part of it. So it does for a password that is not in `REDIS_URL`.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in SCHEMES and "@" in parts.path + parts.query + parts.fragment:
            remedy = "quote / in the password as %2F, ? as %3F and # as %23; elsewhere @ as %40"
            raise BadInput(field, "there is an @ behind its host", remedy)
        is_good = parts.scheme in SCHEMES and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        remedy = "give redis://HOST:6379/0, rediss://... or unix://PATH"
        raise BadInput(field, "it is not a URL of Redis", remedy)
    if field != REDIS_URL and (parts.password or "password=" in parts.query):
        raise BadInput(field, "it holds a password", f"give it in {REDIS_URL} instead")
    return parts


class BusAway(BlackboardError):
    """The bus did not answer, or it refused. What was asked may or may not have been done."""

    exit_code = 3


class OpenBus(Protocol):
    """Opens the bus of one group, for one node."""

    def __call__(self, *, on_away: Callable[[str], None], on_back: Callable[[], None]) -> "Bus":
        """`on_away` is called with the reason when the bus stops answering, `on_back` when it
        answers again: each once.
        """
        ...


class Bus(Protocol):
    """The bus of one group, as one node uses it. Each verb raises BusAway."""

    async def set_if_absent(self, hash_name: Hash, field: str, value: str) -> str:
        """Writes a field that is empty. Returns the value that the field has now."""
        ...

    async def get(self, hash_name: Hash, field: str) -> str | None:
        """The value of a field. None: it is empty."""
        ...

    async def put(self, hash_name: Hash, field: str, value: str) -> None:
        """Writes a field."""
        ...

    async def drop_if(self, hash_name: Hash, field: str, value: str) -> bool:
        """Clears a field that has this value. Returns whether it had."""
        ...

    async def publish(self, channel: Channel, message: str) -> None:
        """Sends a message to all listeners, the node's own included."""
        ...

    def listen(self) -> AbstractAsyncContextManager[AsyncIterator[Notified]]:
        """Messages of both channels from here on. While the bus is away there are none, and they
        go on when it is back: the iterator ends with its context alone.
        """
        ...

    async def close(self) -> None:
        """Ends all connections."""
        ...
