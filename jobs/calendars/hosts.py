"""Whose turn it is to be asked: a line for each host, so that none holds up the others.

A host is asked a few times at once. All hosts together have a number of places, and a request that
takes long gives its place back while it goes on: hosts that drip or are silent take no turn of
others. A host that timed out twice is down for this run, and what waits for it fails at once. One
that says when to come again (Retry-After) is waited for if that is soon, once; else it is left
alone.

A host is a name and a port. What waits in a line costs nothing but its task.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.clock import Clock

from .fetched import FetchFailed

TIMEOUTS = 2
"""After so many a host is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, bytes and numbers that one fetch keeps to."""

    connect: float = 10.0
    read: float = 20.0
    total: float = 60.0
    size: int = 16 * 1024 * 1024
    redirects: int = 5
    together: int = 16
    per_host: int = 4
    quick: float = 3.0
    """Seconds after which a request no longer counts among those that are made together."""
    patience: float = 30.0
    """Seconds that a host may ask for before it is asked again in the same run."""


@dataclass(slots=True)
class _Host:
    places: asyncio.Semaphore
    timeouts: int = 0
    until: datetime | None = None
    """Before then it does not want to be asked."""
    rested: bool = False
    """Whether it was given time once."""
    patient: bool = False
    """Whether the time that it asked for is waited for."""
    down: str = ""
    """Why it is not asked any more in this run."""


@dataclass(slots=True)
class Hosts:
    """The hosts of one run."""

    limits: Limits
    clock: Clock
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _together: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._together = asyncio.Semaphore(self.limits.together)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Waits for a place at the host. Raises FetchFailed when it is not to be asked."""
        host = self._host(name)
        async with host.places:
            await self._until_wanted(host)
            yield

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """One of the places that all hosts share, until it is used for too long."""
        await self._together.acquire()
        held = [self._together]

        def give_back() -> None:
            if held:
                held.pop().release()

        timer = asyncio.get_running_loop().call_later(self.limits.quick, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    def timed_out(self, name: str) -> None:
        """It did not answer in time."""
        host = self._host(name)
        host.timeouts += 1
        if host.timeouts >= TIMEOUTS:
            host.down = f"not asked: its host timed out {host.timeouts} times in this run"

    def asked_for_time(self, name: str, until: datetime) -> bool:
        """It said when to come again. Whether that is waited for."""
        host, now = self._host(name), self.clock.now()
        resting = host.until is not None and host.until > now
        host.until = max(until, host.until or until)
        soon = host.until - now <= timedelta(seconds=self.limits.patience)
        host.patient = soon and (host.patient if resting else not host.rested)
        host.rested = True
        return host.patient

    async def _until_wanted(self, host: _Host) -> None:
        while True:
            if host.down:
                raise FetchFailed(host.down)
            left = (host.until - self.clock.now()).total_seconds() if host.until else 0.0
            if host.until is None or left <= 0:
                return
            if not host.patient:
                raise FetchFailed(waiting(host.until), until=host.until)
            await self.clock.sleep(left)

    def _host(self, name: str) -> _Host:
        if name not in self._hosts:
            self._hosts[name] = _Host(asyncio.Semaphore(self.limits.per_host))
        return self._hosts[name]


def waiting(until: datetime) -> str:
    """Why a host is left alone that asked for time."""
    return f"not asked: its host wants to be left alone until {until:%Y-%m-%dT%H:%M:%SZ}"
