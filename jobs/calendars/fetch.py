"""Fetches the feeds of one run: each hop in its turn at its host, and all of them within limits.

`hosts.py` says whose turn it is, `hop.py` makes one request, `shelf.py` keeps what other cities
have fetched. The time in which a feed waits for its turn is not counted.
"""

import asyncio
from dataclasses import dataclass, field, replace

from blackboard.clock import Clock, SystemClock

from .addresses import Policy
from .fetched import Fetched, FetchFailed, Seconds, TimedOut, Why
from .hop import Hop, NoConnection, Resolve, place_of, url_of
from .hosts import Hosts, Limits
from .local import read_file
from .locate import meant, path_of, plain_too, scheme_of
from .redact import without
from .shelf import Shelf


@dataclass(slots=True)
class _Way:
    """One feed on its way: where it is asked for next, and what that took so far."""

    address: str
    conditions: dict[str, str]
    left: float
    """Seconds that its hops may yet take."""
    redirects: int = 0
    again: bool = True
    """Whether it may be asked for once more when its host wants some time."""
    seconds: Seconds = field(default_factory=Seconds)
    asked: list[str] = field(default_factory=list)
    """The addresses so far, whose secrets nothing of the outcome may show."""


class Fetcher:
    """Fetches for one run, until `close`."""

    def __init__(
        self,
        policy: Policy,
        limits: Limits,
        resolve: Resolve | None = None,
        *,
        clock: Clock | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._clock = clock or SystemClock()
        self._shelf = shelf or Shelf(clock=self._clock)
        self._hosts = Hosts(limits, self._clock)
        self._hop = Hop(policy, limits, self._clock, resolve=resolve, folder=self._shelf.folder)

    def close(self) -> None:
        """Waits for no name server."""
        self._hop.close()

    async def fetch(self, address: str, *, etag: str = "", modified: str = "") -> Fetched:
        """The feed at an address; FetchFailed says in one line why there is none."""
        scheme = scheme_of(meant(address))
        if scheme in {"http", "https"}:
            conditions = {"If-None-Match": etag, "If-Modified-Since": modified}
            asked = {name: value for name, value in conditions.items() if value}
            return await self._asked_for(_Way(address, asked, self._limits.total))
        if scheme not in {"file", ""}:
            problem = f"{scheme}: is not fetched, only http and https"
            raise FetchFailed(problem, why=Why.REFUSED)
        if not self._policy.files:
            problem = "not an http or https address; files are not allowed"
            raise FetchFailed(problem, why=Why.REFUSED)
        return await self._from_file(address)

    async def _from_file(self, address: str) -> Fetched:
        try:
            path = path_of(address)
        except ValueError:
            raise FetchFailed("not a well-formed address", why=Why.REFUSED) from None
        if path is None:
            raise FetchFailed("a file: address that names another host", why=Why.REFUSED)
        begun = self._clock.monotonic()
        content = await asyncio.to_thread(read_file, path, self._limits.size, self._shelf.folder)
        return Fetched(content=content, seconds=Seconds(read=self._clock.monotonic() - begun))

    async def _asked_for(self, way: _Way) -> Fetched:
        """From hop to hop. What other cities fetch just now is waited for, and used."""
        key = str(url_of(meant(way.address)).copy_with(fragment=None))
        begun = False
        try:
            while True:
                place = place_of(url_of(meant(way.address)))
                async with self._hosts.turn(place):
                    if not begun:
                        found = await self._shelf.taken(key, way.conditions, self._limits.total)
                        if found is not None:
                            return found
                        begun = self._shelf.begin(key)
                    got = await self._hopped(way, place)
                if isinstance(got, Fetched):
                    self._shelf.put(key, got)
                    return replace(got, way=tuple(way.asked))
        except FetchFailed as problem:
            problem.args = (without(str(problem), way.address, *way.asked),)
            problem.seconds = way.seconds
            raise
        finally:
            if begun:
                self._shelf.end(key)

    async def _hopped(self, way: _Way, place: str) -> Fetched | None:
        """One hop. None: the way goes on, elsewhere or later."""
        async with self._hosts.place():
            begun = self._clock.monotonic()
            try:
                async with asyncio.timeout(max(way.left, 0.0)):
                    got = await self._answer(way)
            except TimedOut:
                self._hosts.timed_out(place)
                raise
            except TimeoutError:
                self._hosts.timed_out(place)
                raise TimedOut(f"no feed within {self._limits.total:g} s") from None
            except FetchFailed as problem:
                if problem.until is None:
                    raise
                if not (self._hosts.asked_for_time(place, problem.until) and way.again):
                    raise
                way.again = False
                return None
            finally:
                way.left -= self._clock.monotonic() - begun
        if isinstance(got, Fetched):
            return got
        way.redirects += 1
        if way.redirects > self._limits.redirects:
            raise FetchFailed(f"more than {self._limits.redirects} redirects")
        way.address = got
        return None

    async def _answer(self, way: _Way) -> Fetched | str:
        """The answer of the hop's address: a feed, or where else to look. A webcal: address that
        takes no connection over https is asked for over http, which is what it once meant.
        """
        addresses = [meant(way.address), *plain_too(way.address)]
        for address in addresses:
            try:
                url = url_of(address)
                way.asked.append(str(url))
                return await self._hop.ask(url, way.conditions, way.seconds, way.asked)
            except NoConnection as problem:
                failure = problem
        raise FetchFailed(str(failure))
