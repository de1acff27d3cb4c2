"""Fetches the feeds of one run: a queue for each host, so that no host delays the others.

A host gets a few requests at once. All hosts together have a number of places, and a request that
takes long gives its place back while it goes on, so that slow or silent hosts do not use the places
of others. A host that timed out twice is down for this run, and what waits for it fails at once. A
host is a name and a port.

A time for the next request (Retry-After) is waited for once, by all feeds of the host, if it is
soon. Else it is that of the feed alone, as many hosts answer so for a page that is broken: the host
gets no more requests in this run when it says 429, or when two of its feeds are refused.

Each redirect waits in the queue of its host, and the time in a queue is not counted. `request.py`
makes one request, `cache.py` keeps what other cities have fetched. Where the settings allow it, a
feed may be a file of this machine.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from blackboard.clock import Clock, SystemClock
from blackboard.named_files import NotAFile, regular_file

from .addresses import Policy, file_path, meant, plain_too, scheme_of, without
from .cache import FetchCache
from .request import NoConnection, Requester, Resolve, host_and_port, url_of
from .responses import (
    Body,
    Fetched,
    FetchFailed,
    Inflater,
    Limits,
    Seconds,
    TimedOut,
    Why,
    error_line,
)

TIMEOUTS = 2
"""Timeouts after which a host is down."""


@dataclass(slots=True)
class _Host:
    places: asyncio.Semaphore
    timeouts: int = 0
    refused: int = 0
    """Feeds that got a Retry-After."""
    until: datetime | None = None
    """When the host wants the next request."""
    rested: bool = False
    """Whether its Retry-After was waited for once."""
    is_waited_for: bool = False
    """Whether its present Retry-After is waited for."""
    down: str = ""
    """Why it gets no more requests in this run."""


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
        """Waits for a place at the host. Raises FetchFailed when it gets no requests."""
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
        """Notes that it did not answer in time."""
        host = self._host(name)
        host.timeouts += 1
        if host.timeouts >= TIMEOUTS:
            host.down = f"not asked: its host timed out {host.timeouts} times in this run"

    def asked_for_time(self, name: str, until: datetime, *, busy: bool, first: bool) -> bool:
        """Notes the Retry-After of a feed, the first one that it got, or a later one; `busy` is
        whether it is surely the host's. Returns whether it is waited for.
        """
        host, now = self._host(name), self.clock.now()
        host.refused += first
        resting = host.until is not None and host.until > now
        latest = max(until, host.until or until)
        soon = latest - now <= timedelta(seconds=self.limits.longest_wait)
        waits = soon and (host.is_waited_for if resting else not host.rested)
        if waits or busy or host.refused > 1:
            host.until, host.is_waited_for, host.rested = latest, waits, True
        return waits

    async def _until_wanted(self, host: _Host) -> None:
        while True:
            if host.down:
                raise FetchFailed(host.down)
            left = (host.until - self.clock.now()).total_seconds() if host.until else 0.0
            if host.until is None or left <= 0:
                return
            if not host.is_waited_for:
                raise FetchFailed(waiting(host.until))
            await self.clock.sleep(left)

    def _host(self, name: str) -> _Host:
        if name not in self._hosts:
            self._hosts[name] = _Host(asyncio.Semaphore(self.limits.per_host))
        return self._hosts[name]


def waiting(until: datetime) -> str:
    """Why there is no request after a Retry-After."""
    return f"not asked: its server wants no request until {until:%Y-%m-%dT%H:%M:%SZ}"


_PIECE = 256 * 1024


def read_file(path: Path, limit: int, folder: Path | None) -> Body:
    """A regular file's bytes; a gzip file is unpacked."""
    inflater = Inflater("", limit, Body(folder))
    try:
        with regular_file(path) as source:
            while piece := source.read(_PIECE):
                inflater.feed(piece)
        return inflater.finished()
    except NotAFile:
        raise FetchFailed("not a file", why=Why.REFUSED) from None
    except (FileNotFoundError, NotADirectoryError):
        raise FetchFailed("no such file", why=Why.GONE) from None
    except FetchFailed:
        inflater.body.close()
        raise
    except (OSError, ValueError) as problem:
        inflater.body.close()
        raise FetchFailed(f"cannot be read: {error_line(problem)}") from None


@dataclass(slots=True)
class _Way:
    """The fetch of one feed: its next address, and the time so far."""

    address: str
    conditions: dict[str, str]
    left: float
    """Seconds left for its requests."""
    redirects: int = 0
    again: bool = True
    """Whether a Retry-After may be waited for."""
    seconds: Seconds = field(default_factory=Seconds)
    asked: list[str] = field(default_factory=list)
    """The addresses so far, whose secrets the result must not show."""
    cookies: dict[str, dict[str, str]] = field(default_factory=dict)
    """By hosts."""


class Fetcher:
    """Fetches for one run, until `close`."""

    def __init__(
        self,
        policy: Policy,
        limits: Limits,
        resolve: Resolve | None = None,
        *,
        clock: Clock | None = None,
        fetch_cache: FetchCache | None = None,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._clock = clock or SystemClock()
        self._cache = fetch_cache or FetchCache(clock=self._clock)
        self._hosts = Hosts(limits, self._clock)
        self._requester = Requester(
            policy, limits, self._clock, resolve=resolve, folder=self._cache.folder
        )

    def close(self) -> None:
        """Closes without waiting for name servers."""
        self._requester.close()

    async def fetch(self, address: str, *, etag: str = "", modified: str = "") -> Fetched:
        """The feed at an address; FetchFailed says in one line why there is none."""
        scheme = scheme_of(meant(address))
        if scheme in {"http", "https"}:
            conditions = {"If-None-Match": etag, "If-Modified-Since": modified}
            can_be_sent = {
                name: value
                for name, value in conditions.items()
                if value and value.isascii() and value.isprintable()
            }
            return await self._asked_for(_Way(address, can_be_sent, self._limits.total))
        if scheme not in {"file", ""}:
            problem = f"{scheme}: is not fetched, only http and https"
            raise FetchFailed(problem, why=Why.REFUSED)
        if not self._policy.files:
            problem = "not an http or https address; files are not allowed"
            if scheme:
                problem += ' (allow = ["file"] under [jobs.calendars])'
            raise FetchFailed(problem, why=Why.REFUSED)
        return await self._from_file(address)

    async def _from_file(self, address: str) -> Fetched:
        try:
            path = file_path(address)
        except ValueError:
            raise FetchFailed("not a well-formed address", why=Why.REFUSED) from None
        if path is None:
            raise FetchFailed("a file: address that names another host", why=Why.REFUSED)
        begun = self._clock.monotonic()
        content = await asyncio.to_thread(read_file, path, self._limits.size, self._cache.folder)
        return Fetched(content=content, seconds=Seconds(read=self._clock.monotonic() - begun))

    async def _asked_for(self, way: _Way) -> Fetched:
        """Follows redirects. A fetch that another city makes now is waited for, and used."""
        key = str(url_of(meant(way.address)).copy_with(fragment=None))
        begun = False
        try:
            while True:
                place = host_and_port(url_of(meant(way.address)))
                async with self._hosts.turn(place):
                    if not begun:
                        shared = await self._cache.taken(key, way.conditions, self._limits.total)
                        if shared is not None:
                            return shared
                        begun = self._cache.begin(key)
                    got = await self._request_once(way, place)
                if isinstance(got, Fetched):
                    self._cache.put(key, got)
                    return replace(got, way=tuple(way.asked))
        except FetchFailed as problem:
            problem.args = (without(str(problem), way.address, *way.asked),)
            problem.seconds = way.seconds
            raise
        finally:
            if begun:
                self._cache.end(key)

    async def _request_once(self, way: _Way, place: str) -> Fetched | None:
        """One request. None: another follows, to another address or later."""
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
                first, way.again, busy = way.again, False, problem.why is Why.BUSY
                waits = self._hosts.asked_for_time(place, problem.until, busy=busy, first=first)
                if not (waits and first):
                    raise
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
        """The answer of the present address: a feed, or where else to look. A webcal: address that
        takes no connection over https is asked for over http, which is what it once meant.
        """
        addresses = [meant(way.address), *plain_too(way.address)]
        for address in addresses:
            try:
                url = url_of(address)
                way.asked.append(str(url))
                cookies = way.cookies.setdefault(host_and_port(url), {})
                got = await self._requester.ask(
                    url, way.conditions, way.seconds, way.asked, cookies
                )
            except NoConnection as problem:
                failure = problem
                continue
            if isinstance(got, Fetched):
                return got
            cookies |= got.cookies
            return got.address
        raise FetchFailed(str(failure))
