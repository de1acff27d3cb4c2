"""The channels through which notices are sent: a webhook, a command; and the dead-man address.

`${NAME}` is taken from the worker's environment each time something is sent, and no message about a
channel repeats its value.

HTTP requests use the standard library. No redirect is followed: it would turn a POST into a GET,
and only the configured address may be asked. Proxies are those of the environment (`https_proxy`,
`no_proxy`).
"""

import asyncio
import json
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from blackboard import __version__
from blackboard.errors import BadInput
from blackboard.handlers.context import expand
from blackboard.inputs import number_of
from blackboard.notify.notices import Payload
from blackboard.notify.settings import NoticeKind, NotifyTable, RouteTable, check_address, place
from blackboard.patterns import matches
from blackboard.runners.commands import child_environment, end_command, how_it_ended, start_command
from blackboard.schedule.times import parse_duration
from blackboard.spec import Labels
from blackboard.tasks import SerialExecutor

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector, Request


class NotSent(Exception):
    """The receiver did not accept it. The message says why, without secrets. `final`: a retry does
    not help. `retry_after`: seconds to wait before the next try.
    """

    def __init__(self, reason: str, *, final: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.final = final
        self.retry_after = retry_after


class NoticeChannel(Protocol):
    """One channel, as a route names it."""

    @property
    def name(self) -> str:
        """Its name in the settings, such as `webhook` or `routes.1.command`."""
        ...

    def check(self) -> None:
        """Raises NotSent when a variable is missing in the environment."""
        ...

    def where(self) -> str:
        """The address or program that it sends to, without secrets; "" where that is not known."""
        ...

    async def send(self, payload: Payload) -> None:
        """Sends a notice. Returns when it was accepted. Raises NotSent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An http or https address: JSON is posted to it, or it is only requested."""

    name: str
    template: str
    seconds: float
    environ: Mapping[str, str]

    def check(self) -> None:
        self._address()

    def where(self) -> str:
        try:
            return place(self._address())
        except NotSent:
            return ""

    async def send(self, payload: Payload) -> None:
        await self._ask(json.dumps(payload).encode())

    async def ping(self) -> None:
        """Requests the address. Returns when it has answered. Raises NotSent."""
        await self._ask(None)

    async def _ask(self, body: bytes | None) -> None:
        exchange = Exchange(self._address(), body, seconds=self.seconds)
        try:
            async with asyncio.timeout(self.seconds):
                # A thread of its own each time: one that hangs holds up no other, nor the end.
                await SerialExecutor("blackboard-notify").close(exchange.run)
        except TimeoutError:
            raise NotSent(f"it did not answer within {self.seconds:g} s") from None
        finally:
            exchange.end()

    def _address(self) -> str:
        address = _filled(self.template, self.environ)
        try:
            check_address(address, self.name)
        except BadInput as problem:
            names = ", ".join(dict.fromkeys(_VARIABLE.findall(self.template)))
            of = f" (with what {names} is here)" if names else ""
            raise NotSent(f"{problem.problem}{of}", final=True) from None
        return address


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program that reads JSON from its standard input, and a part of it from BLACKBOARD_EVENT,
    _ITEM, _TYPE, _OUTCOME and _TEXT. It exits with 0 when it accepts the notice. No shell is
    involved.
    """

    argv: tuple[str, ...]
    seconds: float
    environ: Mapping[str, str]
    name: str = "command"

    def check(self) -> None:
        self._argv()

    def where(self) -> str:
        return self.argv[0]

    async def send(self, payload: Payload) -> None:
        about = {
            f"BLACKBOARD_{name}": str(payload.get(key) or "").replace("\0", "")
            for name, key in _VARIABLES.items()
        }
        try:
            process = await start_command(
                self._argv(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={**child_environment(self.environ), **about},
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it holds a NUL character"
            raise NotSent(f"it cannot be run: {reason}", final=True) from None
        try:
            async with asyncio.timeout(self.seconds):
                await process.communicate(json.dumps(payload).encode())
        except TimeoutError:
            raise NotSent(f"it did not end within {self.seconds:g} s") from None
        finally:
            if process.returncode is None:
                await end_command(process)
        if process.returncode:
            raise NotSent(f"it ended: {how_it_ended(process.returncode)}")

    def _argv(self) -> list[str]:
        return [_filled(arg, self.environ) for arg in self.argv]


_VARIABLES = {"EVENT": "event", "ITEM": "id", "TYPE": "type", "OUTCOME": "outcome", "TEXT": "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where the notices of some items go."""

    match: tuple[str, ...] | None
    """Patterns of items; None: it is for all that no other route matches."""
    channels: tuple[NoticeChannel, ...]
    on: frozenset[NoticeKind]

    def matches(self, item_id: str, item_type: str, labels: Labels) -> bool:
        return self.match is None or any(
            matches(pattern, item_id=item_id, item_type=item_type, labels=labels)
            for pattern in self.match
        )


def routes_of(table: NotifyTable, environ: Mapping[str, str]) -> list[Route]:
    """The routes in their order; the last one is that of `[notify]` itself."""
    seconds = parse_duration(table.timeout, "timeout").total_seconds()

    def route(said: NotifyTable | RouteTable, prefix: str) -> Route:
        channels: list[NoticeChannel] = []
        if said.webhook is not None:
            name = f"{prefix}webhook"
            channels.append(
                Address(name=name, template=said.webhook, seconds=seconds, environ=environ)
            )
        if said.command:
            name, argv = f"{prefix}command", tuple(said.command)
            channels.append(Command(name=name, argv=argv, seconds=seconds, environ=environ))
        return Route(
            match=tuple(said.match) if isinstance(said, RouteTable) else None,
            channels=tuple(channels),
            on=frozenset(map(NoticeKind, table.on if said.on is None else said.on)),
        )

    numbered = enumerate(table.routes, 1)
    return [*(route(declared, f"routes.{n}.") for n, declared in numbered), route(table, "")]


def dead_man_of(table: NotifyTable, environ: Mapping[str, str]) -> Address | None:
    """The dead-man address; None where none is set."""
    if table.dead_man is None:
        return None
    seconds = parse_duration(table.timeout, "timeout").total_seconds()
    return Address(name="dead_man", template=table.dead_man, seconds=seconds, environ=environ)


def _filled(template: str, environ: Mapping[str, str]) -> str:
    try:
        return str(expand({"value": template}, environ)["value"])
    except BadInput as problem:
        raise NotSent(problem.problem, final=True) from None


REDIRECTS = {301, 302, 303, 307, 308}
TRANSIENT = {408, 425, 429}
"""Refusals that a retry may overcome, besides the server's own errors."""
_VARIABLE = re.compile(r"\$\{\w+\}")


class Exchange:
    """One request: GET of an address, or POST of JSON to it. It blocks in a thread of its own, and
    `end`, called from another, closes its connection: a receiver that sends one byte of an answer
    now and then would keep a thread for ever.
    """

    def __init__(self, address: str, body: bytes | None, *, seconds: float) -> None:
        self._address = address
        self._body = body
        self._seconds = seconds
        self._sockets: list[socket.socket] = []
        self._ended = False

    def run(self) -> None:
        """`seconds` limits each wait on the way. Raises NotSent, without anything of the address in
        its message.
        """
        # Imported when something is sent: a worker without notices does not wait for it.
        from http.client import HTTPException  # noqa: PLC0415
        from urllib.error import HTTPError, URLError  # noqa: PLC0415
        from urllib.request import Request  # noqa: PLC0415

        headers = {"User-Agent": f"blackboard/{__version__}"}
        if self._body is not None:
            headers["Content-Type"] = "application/json"
        request = Request(self._address, self._body, headers)  # noqa: S310 - it was checked
        try:
            with self._opener().open(request, timeout=self._seconds):
                return
        except HTTPError as answer:
            answer.close()
            problem = _refusal(answer.code, answer.headers.get("Retry-After", ""))
        except URLError as error:
            problem = NotSent(_words(error.reason))
        except (OSError, HTTPException, ValueError) as error:
            problem = NotSent(_words(error))
        finally:
            for held in self._sockets:
                held.close()
        raise problem

    def end(self) -> None:
        """Closes the connection, if there is one."""
        self._ended = True
        for held in self._sockets:
            with suppress(OSError):  # it is closed already
                held.shutdown(socket.SHUT_RDWR)

    def _opener(self) -> "OpenerDirector":
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415
        from urllib.request import (  # noqa: PLC0415
            HTTPHandler,
            HTTPRedirectHandler,
            HTTPSHandler,
            build_opener,
        )

        def connected(*about: Any) -> socket.socket:
            made = socket.create_connection(*about)
            self._keep(made)
            return made

        class Kept(HTTPConnection):
            """Its socket is kept before a proxy answers."""

            def connect(self) -> None:
                self._create_connection = connected
                super().connect()

        class KeptTLS(HTTPSConnection, Kept):
            """Its socket is kept before the handshake."""

        class Plain(HTTPHandler):
            def http_open(self, request: "Request") -> "HTTPResponse":
                return self.do_open(Kept, request)

        class TLS(HTTPSHandler):
            def https_open(self, request: "Request") -> "HTTPResponse":
                return self.do_open(KeptTLS, request)

        class NoRedirect(HTTPRedirectHandler):
            def http_error_302(self, *_args: Any, **_named: Any) -> None:
                """The reply is a refusal, wherever it leads."""

            http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

        return build_opener(Plain, TLS, NoRedirect)

    def _keep(self, connected: socket.socket) -> None:
        """A duplicate stays valid when TLS takes the socket over."""
        self._sockets.append(connected.dup())
        if self._ended:
            self.end()


def _refusal(code: int, retry_after: str) -> NotSent:
    if code in REDIRECTS:
        return NotSent(f"it redirects ({code}): name the address it redirects to", final=True)
    seconds = float(number_of(retry_after.strip()) or 0)
    final = code not in TRANSIENT and not 500 <= code < 600
    return NotSent(f"it answered {code}", final=final, retry_after=seconds)


def _words(reason: object) -> str:
    """What is wrong, in words of the operating system or our own: other texts might repeat the
    address.
    """
    from http.client import HTTPException, RemoteDisconnected  # noqa: PLC0415

    match reason:
        case TimeoutError():
            return "it did not answer in time"
        case RemoteDisconnected():
            return "it closed the connection without an answer"
        case OSError(strerror=str() as words) if words:
            return words
        case OSError():  # of http.client: "Tunnel connection failed: 407 ..."
            code = re.search(r"\b[1-5]\d\d\b", str(reason))
            return f"the proxy answered {code[0]}" if code else "the proxy refused"
        case HTTPException():
            return "what it answers is not HTTP"
        case UnicodeError():
            return "its host is not a name that a host can have"
        case str():
            return "its address, or that of the proxy, is of no kind that is known here"
        case _:
            return type(reason).__name__
