"""Fetches feeds: conditionally, politely, within limits, and only from where it may.

A host's name is resolved once for each hop, all its addresses are judged, and the connection goes
to one that was judged: an answer of the name server that changes in between changes nothing. Each
hop has a client of its own, so neither cookies nor connections pass from one host to another that
shares its address. Proxies of the environment are not used.
"""

import asyncio
import ipaddress
import os
import socket
import ssl
import stat
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2

from .addresses import Address, Policy
from .bodies import BadEncoding, TooLarge, read_body
from .locate import meant, path_of, scheme_of

Resolve = Callable[[str, int], Awaitable[list[Address]]]
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_GONE = frozenset({404, 410})
_HEADERS = {
    "User-Agent": "blackboard-calendars/0.1",
    "Accept": "text/calendar, text/plain;q=0.5, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}


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


class FetchFailed(Exception):
    """No feed. `gone`: there is none and it is of no use to wait for it, so that what it said
    before is no longer shown either.
    """

    def __init__(self, problem: str, *, gone: bool = False) -> None:
        super().__init__(problem)
        self.gone = gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What came. `body` is None when the server says that nothing changed."""

    body: bytes | None
    etag: str = ""
    modified: str = ""
    charset: str = ""


async def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a host, as this machine sees them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    return list(dict.fromkeys(addresses))


class Fetcher:
    """Fetches for one run: remembers how many are under way, and to which hosts."""

    def __init__(self, policy: Policy, limits: Limits, resolve: Resolve = resolve) -> None:
        self._policy = policy
        self._limits = limits
        self._resolve = resolve
        self._together = asyncio.Semaphore(limits.together)
        self._hosts: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(limits.per_host)
        )
        self._nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls: ssl.SSLContext | None = None

    async def fetch(self, address: str, *, etag: str = "", modified: str = "") -> Fetched:
        """The feed at an address; FetchFailed says in one line why there is none."""
        address = meant(address)
        scheme = scheme_of(address)
        if scheme in {"http", "https"}:
            conditions = {"If-None-Match": etag, "If-Modified-Since": modified}
            asked = {name: value for name, value in conditions.items() if value}
            async with self._hosts[_checked(address).host], self._together:
                return await self._in_time(address, asked)
        if scheme not in {"file", ""}:
            raise FetchFailed(f"{scheme}: is not fetched, only http and https", gone=True)
        if not self._policy.files:
            raise FetchFailed("not an http or https address; files are not allowed", gone=True)
        try:
            path = path_of(address)
        except ValueError:
            raise FetchFailed("not a well-formed address", gone=True) from None
        if path is None:
            raise FetchFailed("a file: address that names another host", gone=True)
        return Fetched(body=await asyncio.to_thread(_read_file, path, self._limits.size))

    async def _in_time(self, address: str, asked: dict[str, str]) -> Fetched:
        """Waiting for a turn is not counted, name servers and redirects are."""
        try:
            async with asyncio.timeout(self._limits.total):
                return await self._follow(address, asked)
        except TimeoutError:
            raise FetchFailed(f"no feed within {self._limits.total:g} s") from None

    async def _follow(self, address: str, asked: dict[str, str]) -> Fetched:
        for _hop in range(self._limits.redirects + 1):
            url = _checked(address)
            got = await self._first(url, await self._judged(url), asked)
            if isinstance(got, Fetched):
                return got
            address = got
        raise FetchFailed(f"more than {self._limits.redirects} redirects")

    async def _judged(self, url: httpx2.URL) -> list[Address]:
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await self._resolve(url.raw_host.decode("ascii"), port)
        except (OSError, ValueError):
            raise FetchFailed(f"the host {url.host!r} is not known") from None
        refusal = self._policy.refusal(url.host, port, addresses)
        if refusal:
            raise FetchFailed(f"refused: {refusal}", gone=True)
        if not addresses:
            raise FetchFailed(f"the host {url.host!r} has no address")
        return addresses

    async def _first(
        self, url: httpx2.URL, addresses: list[Address], asked: dict[str, str]
    ) -> Fetched | str:
        """The answer of the first address that takes the connection."""
        problem: Exception | None = None
        for address in addresses[:4]:
            try:
                return await self._ask(url, address, asked)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as failure:
                problem = failure
            except httpx2.TimeoutException:
                raise FetchFailed(f"silent for {self._limits.read:g} s") from None
            except httpx2.HTTPError as failure:
                raise FetchFailed(f"{_told(failure)} while reading") from None
        raise FetchFailed(f"no connection: {_told(problem)}")

    async def _ask(self, url: httpx2.URL, address: Address, asked: dict[str, str]) -> Fetched | str:
        """One request to one address; the answer is a feed, or where else to look."""
        limits = self._limits
        timeout = httpx2.Timeout(limits.read, connect=limits.connect)
        host = url.netloc.decode("ascii")
        extensions = {"sni_hostname": url.raw_host.decode("ascii")}
        async with (
            httpx2.AsyncClient(trust_env=False, verify=self._context(url), timeout=timeout) as one,
            one.stream(
                "GET",
                url.copy_with(host=str(address)),
                headers={**_HEADERS, **asked, "Host": host},
                extensions=extensions,
            ) as response,
        ):
            place = response.headers.get("location", "")
            if response.status_code in _REDIRECTS and place:
                return _joined(url, place)
            return await self._feed(response, asked)

    async def _feed(self, response: httpx2.Response, asked: dict[str, str]) -> Fetched:
        status, headers = response.status_code, response.headers
        found = Fetched(
            body=None,
            etag=headers.get("etag", ""),
            modified=headers.get("last-modified", ""),
            charset=response.charset_encoding or "",
        )
        if status == 304 and asked:
            return found
        if status != 200:
            raise FetchFailed(f"HTTP {status}", gone=status in _GONE)
        try:
            body = await read_body(
                response.aiter_raw(), headers.get("content-encoding", ""), self._limits.size
            )
        except TooLarge:
            raise FetchFailed(_too_large(self._limits.size)) from None
        except BadEncoding as problem:
            raise FetchFailed(str(problem)) from None
        return Fetched(body=body, etag=found.etag, modified=found.modified, charset=found.charset)

    def _context(self, url: httpx2.URL) -> ssl.SSLContext:
        """One TLS context for the run: loading the authorities takes longer than a request.
        For http an empty one, which would trust nobody.
        """
        if url.scheme != "https":
            return self._nobody
        if self._tls is None:
            self._tls = httpx2.create_ssl_context(trust_env=False)
        return self._tls


def _checked(address: str) -> httpx2.URL:
    try:
        url = httpx2.URL(address.strip())
    except (httpx2.InvalidURL, ValueError):
        raise FetchFailed("not a well-formed address", gone=True) from None
    if url.scheme not in {"http", "https"}:
        raise FetchFailed(f"{url.scheme or 'a path'}: only http and https are fetched", gone=True)
    if url.userinfo:
        raise FetchFailed("an address with a user or password is refused", gone=True)
    if not url.host:
        raise FetchFailed("an address without a host", gone=True)
    return url


def _joined(url: httpx2.URL, place: str) -> str:
    try:
        return str(url.join(place))
    except (httpx2.InvalidURL, ValueError):
        raise FetchFailed("redirected to something that is no address") from None


def _read_file(path: Path, limit: int) -> bytes:
    """A regular file: opening a pipe or a device would wait, or never end."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise FetchFailed("not a file", gone=True)
            body = source.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise FetchFailed("no such file", gone=True) from None
    except (OSError, ValueError) as problem:
        raise FetchFailed(f"cannot be read: {_told(problem)}") from None
    if len(body) > limit:
        raise FetchFailed(_too_large(limit))
    return body


def _too_large(limit: int) -> str:
    return f"larger than {limit / 1024 / 1024:g} MiB"


def _told(problem: Exception | None) -> str:
    """One line about a failure. Never the address: it may carry what must not be shown."""
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return " ".join(str(problem).split())[:200] or type(problem).__name__
