"""One request to one host: conditional, within limits, and only to an allowed address.

The host's name is resolved, all its addresses are checked, and the connection goes to one that was
checked: an answer of the name server that changes in between changes nothing. Each request has a
client of its own, so neither cookies nor connections pass from one host to another that shares its
address. Cookies that a host sets with a redirect are for its next requests in the same chain alone.
Proxies of the environment are not used.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from blackboard.clock import Clock
from blackboard.host_names import is_unresolved_for_now

from .addresses import Address, Policy, why_refused
from .responses import (
    Fetched,
    FetchFailed,
    Limits,
    Seconds,
    TimedOut,
    Why,
    error_line,
    freshness,
    next_request_at,
    read_body,
    read_head,
    words_of,
)

Resolve = Callable[[str, int], Awaitable[list[Address]]]
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_WHY = {404: Why.GONE, 410: Why.GONE, 429: Why.BUSY}
_LATER = frozenset({429, 503})
_BROKEN = {
    "without sending complete message body": "cut off: the connection ended before the feed did",
    "without sending a response": "the connection ended before an answer",
    "Receive buffer too long": "its headers are too large",
}
"""Failures in plain words, by what the HTTP client says of them."""
_PORTS = 65_536
_RESOLVERS = 64
"""Threads for name servers, apart from other work: a server that does not answer occupies one."""
_IN_FULL = 4
"""Addresses of a host that have the whole time for a connection each; more share that of four."""
_ADDRESSES = 32
"""Addresses of a host that are tried, at most: whoever has a name can give it thousands."""
_WORDS_WITHIN = 2.0
"""Seconds to read the words of an error page."""
_HEADERS = {
    "User-Agent": "blackboard-calendars/0.1",
    "Accept": "text/calendar, text/plain;q=0.5, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}


class NoConnection(FetchFailed):
    """None of a host's addresses took the connection."""


async def resolve_host(
    host: str, port: int, *, threads: ThreadPoolExecutor | None = None
) -> list[Address]:
    """All addresses of a host."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    entries = await asyncio.get_running_loop().run_in_executor(threads, look_up)
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries]
    return list(dict.fromkeys(addresses))


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where else to look."""

    address: str
    cookies: dict[str, str]
    """Those that the host sets: their values by their names."""


class Requester:
    """Makes requests for one run."""

    def __init__(
        self,
        policy: Policy,
        limits: Limits,
        clock: Clock,
        *,
        resolve: Resolve | None,
        folder: Path | None,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._clock = clock
        self._folder = folder
        self._threads = ThreadPoolExecutor(_RESOLVERS, "calendars-names")
        self._resolve = resolve or partial(resolve_host, threads=self._threads)
        self._no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls: ssl.SSLContext | None = None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ask(
        self,
        url: httpx2.URL,
        conditions: Mapping[str, str],
        seconds: Seconds,
        way: Sequence[str],
        cookies: Mapping[str, str],
    ) -> Fetched | Redirect:
        """The answer of the first address that takes the connection: a feed, or where else to
        look. What it took is added to `seconds`. `way` are the addresses that led to this one, and
        this one: what a server says may quote their secrets. `cookies` are those of the host.
        """
        own = {"Host": url.netloc.decode("ascii")}
        if cookies:
            own["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        begun = self._clock.monotonic()
        try:
            addresses = await self._judged(url, is_listed=len(way) < 2)
        finally:
            seconds.connect += self._clock.monotonic() - begun
        problem: Exception | None = None
        addresses = addresses[:_ADDRESSES]
        connect = self._limits.connect * min(1.0, _IN_FULL / len(addresses))
        for address in addresses:
            watch = _Watch(seconds, self._clock)
            try:
                return await self._request(
                    url, address, conditions, watch, way, own=own, connect=connect
                )
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as failure:
                problem = failure
            except httpx2.TimeoutException:
                raise TimedOut(f"silent for {self._limits.read:g} s") from None
            except httpx2.HTTPError as failure:
                raise FetchFailed(_broken_off(failure)) from None
        if isinstance(problem, httpx2.ConnectTimeout):
            any_of = f" at any of {len(addresses)} addresses" if len(addresses) > 1 else ""
            raise TimedOut(f"no connection within {connect:.2g} s{any_of}")
        assert problem is not None, "a host that was judged has an address"
        raise NoConnection(f"no connection: {error_line(problem)}")

    async def _judged(self, url: httpx2.URL, *, is_listed: bool) -> list[Address]:
        """The addresses of a host. How to allow one is said of a listed feed alone, as a server
        may redirect to whatever it likes.
        """
        port = _port_of(url)
        try:
            async with asyncio.timeout(self._limits.connect):
                addresses = await self._resolve(url.raw_host.decode("ascii"), port)
        except TimeoutError:
            problem = f"no name server knew {url.host!r} within {self._limits.connect:g} s"
            raise TimedOut(problem) from None
        except (OSError, ValueError) as unresolved:
            is_for_now = is_unresolved_for_now(unresolved)
            why = "cannot be resolved now" if is_for_now else "is not known"
            raise FetchFailed(f"the host {url.host!r} {why}") from None
        refused = self._policy.refused(url.host, port, addresses)
        if refused is not None:
            problem = f"refused: {refused} is {why_refused(refused)}"
            place = f"[{refused}]:{port}" if refused.version == 6 else f"{refused}:{port}"
            helps = is_listed and not refused.is_link_local  # where clouds keep their secrets
            allow = f' (allow = ["{place}"] under [jobs.calendars])' if helps else ""
            raise FetchFailed(f"{problem}{allow}", why=Why.REFUSED)
        if not addresses:
            raise FetchFailed(f"the host {url.host!r} has no address")
        return addresses

    async def _request(
        self,
        url: httpx2.URL,
        address: Address,
        conditions: Mapping[str, str],
        watch: "_Watch",
        way: Sequence[str],
        *,
        own: Mapping[str, str],
        connect: float,
    ) -> Fetched | Redirect:
        """One request to one address. `own` are the headers of the host, `connect` the seconds for
        the connection.
        """
        timeout = httpx2.Timeout(self._limits.read, connect=connect)
        extensions = {"sni_hostname": url.raw_host.decode("ascii"), "trace": watch.trace}
        try:
            async with (
                httpx2.AsyncClient(
                    trust_env=False, verify=self._context(url), timeout=timeout
                ) as client,
                client.stream(
                    "GET",
                    url.copy_with(host=str(address)),
                    headers={**_HEADERS, **conditions, **own},
                    extensions=extensions,
                ) as response,
            ):
                watch.now("read")
                place = response.headers.get("location", "")
                if response.status_code in _REDIRECTS and place:
                    return Redirect(_joined(url, place), _cookies(response.headers))
                return await self._feed(response, conditions, watch.seconds, way)
        finally:
            watch.now("")

    async def _feed(
        self,
        response: httpx2.Response,
        conditions: Mapping[str, str],
        seconds: Seconds,
        way: Sequence[str],
    ) -> Fetched:
        status, headers = response.status_code, response.headers
        content = None
        if status != 304 or not conditions:
            if status not in {200, 203}:  # 203: a proxy on the way has changed it
                raise await self._no_feed(response, way)
            encoding = headers.get("content-encoding", "")
            content = await read_body(
                response.aiter_raw(), encoding, self._limits.size, self._folder
            )
        return Fetched(
            content=content,
            etag=headers.get("etag", ""),
            modified=headers.get("last-modified", ""),
            charset=response.charset_encoding or "",
            fresh=freshness(headers),
            seconds=seconds,
        )

    async def _no_feed(self, response: httpx2.Response, way: Sequence[str]) -> FetchFailed:
        """The failure for a status other than 200, with the server's words."""
        status, headers = response.status_code, response.headers
        head = b""
        with suppress(TimeoutError, httpx2.HTTPError):  # the status says enough
            async with asyncio.timeout(min(_WORDS_WITHIN, self._limits.read)):
                head = await read_head(response.aiter_raw(), headers.get("content-encoding", ""))
        until = next_request_at(headers, self._clock.now()) if status in _LATER else None
        later = f", to be asked again from {until:%Y-%m-%dT%H:%M:%SZ} on" if until else ""
        why, words = _WHY.get(status, Why.TROUBLE), words_of(head, *way)
        return FetchFailed(f"HTTP {status}{later}", why=why, said=words, until=until)

    def _context(self, url: httpx2.URL) -> ssl.SSLContext:
        """One TLS context for the run: loading the authorities takes longer than a request.
        For http an empty one, which trusts no authority.
        """
        if url.scheme != "https":
            return self._no_tls
        if self._tls is None:
            self._tls = httpx2.create_ssl_context(trust_env=False)
        return self._tls


class _Watch:
    """Measures the phases of a request."""

    def __init__(self, seconds: Seconds, clock: Clock) -> None:
        self.seconds = seconds
        self._clock = clock
        self._doing = "connect"
        self._since = clock.monotonic()

    def now(self, doing: str) -> None:
        """Begins a phase: a field of Seconds, or none."""
        now = self._clock.monotonic()
        if self._doing:
            spent = getattr(self.seconds, self._doing) + now - self._since
            setattr(self.seconds, self._doing, spent)
        self._doing, self._since = doing, now

    async def trace(self, event: str, _about: Mapping[str, Any]) -> None:
        """Takes in a progress event of the HTTP client."""
        if event.endswith(".send_request_headers.started"):
            self.now("wait")


def url_of(address: str) -> httpx2.URL:
    """The address as a URL that may be requested. Raises FetchFailed."""
    try:
        url = httpx2.URL(address.strip())
    except (httpx2.InvalidURL, ValueError):
        raise FetchFailed("not a well-formed address", why=Why.REFUSED) from None
    if not 0 < _port_of(url) < _PORTS:
        raise FetchFailed("not a well-formed address", why=Why.REFUSED)
    if url.scheme not in {"http", "https"}:
        problem = f"{url.scheme or 'a path'}: only http and https are fetched"
        raise FetchFailed(problem, why=Why.REFUSED)
    if url.userinfo:
        raise FetchFailed("an address with a user or password is refused", why=Why.REFUSED)
    if not url.host:
        raise FetchFailed("an address without a host", why=Why.REFUSED)
    return url


def host_and_port(url: httpx2.URL) -> str:
    """The host and port of an address."""
    return f"{url.host.lower().rstrip('.')}:{_port_of(url)}"


def _port_of(url: httpx2.URL) -> int:
    if url.port is None:
        return 443 if url.scheme == "https" else 80
    return url.port


def _joined(url: httpx2.URL, place: str) -> str:
    try:
        joined = url.join(place)
        if 0 < _port_of(joined) < _PORTS:
            return str(joined)
    except (httpx2.InvalidURL, ValueError):
        pass
    raise FetchFailed("redirected to something that is not an address")


def _cookies(headers: httpx2.Headers) -> dict[str, str]:
    """The cookies that an answer sets, without those that no request can hold."""
    pairs = (one.partition(";")[0].strip() for one in headers.get_list("set-cookie"))
    named = (one.partition("=") for one in pairs if one.isascii() and one.isprintable())
    return {name: value for name, equals, value in named if name and equals}


def _broken_off(problem: httpx2.HTTPError) -> str:
    for sign, words in _BROKEN.items():
        if sign in str(problem):
            return words
    line = error_line(problem).partition(": bytearray(")[0]  # without what came, as Python has it
    return f"{line} while reading"
