"""The ways in which notices go out: a webhook, a command; and the dead-man address.

`${NAME}` is taken from the worker's environment each time something is sent, and no message of a
way repeats its value.

HTTP requests use the standard library. No redirect is followed: a POST would become a GET on the
way, and only the configured address is asked. Proxies are those of the environment (`https_proxy`,
`no_proxy`).
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from blackboard import __version__
from blackboard.errors import BadInput
from blackboard.executor import SerialExecutor
from blackboard.handlers.context import expand
from blackboard.notify.notices import Payload
from blackboard.notify.settings import (
    NoticeKind,
    NotifyTable,
    RouteTable,
    check_address,
    place,
)
from blackboard.patterns import matches
from blackboard.runners.commands import end_command, start_command
from blackboard.schedule.times import parse_duration
from blackboard.spec import Labels
from blackboard.tables.azure_address import child_environment


class NotSent(Exception):
    """It was not accepted: why, in words that hold nothing secret. `final`: a retry cannot help."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Way(Protocol):
    """One way out."""

    @property
    def name(self) -> str:
        """As in the settings."""
        ...

    def check(self) -> None:
        """Raises NotSent when a variable is missing in the environment."""
        ...

    def where(self) -> str:
        """Where it leads, without what is secret; "" when that is not known."""
        ...

    async def send(self, payload: Payload) -> None:
        """Returns when it was accepted. Raises NotSent."""
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
        """Returns when it answered. Raises NotSent."""
        await self._ask(None)

    async def _ask(self, body: bytes | None) -> None:
        asking = partial(ask, self._address(), body, seconds=self.seconds)
        try:
            async with asyncio.timeout(self.seconds):
                # A thread of its own each time: one that hangs holds up no other, nor the end.
                await SerialExecutor("blackboard-notify").close(asking)
        except TimeoutError:
            raise NotSent(f"it did not answer within {self.seconds:g} s") from None

    def _address(self) -> str:
        address = _filled(self.template, self.environ)
        try:
            check_address(address, self.name)
        except BadInput as problem:
            raise NotSent(problem.problem, final=True) from None
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
            raise NotSent(f"it ended with {process.returncode}")

    def _argv(self) -> list[str]:
        return [_filled(one, self.environ) for one in self.argv]


_VARIABLES = {"EVENT": "event", "ITEM": "id", "TYPE": "type", "OUTCOME": "outcome", "TEXT": "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where the notices of some items go."""

    match: tuple[str, ...] | None
    """Patterns of items; None: it is for all that no other route matches."""
    ways: tuple[Way, ...]
    on: frozenset[NoticeKind]

    def matches(self, item_id: str, item_type: str, labels: Labels) -> bool:
        return self.match is None or any(
            matches(one, item_id=item_id, item_type=item_type, labels=labels) for one in self.match
        )


def routes_of(table: NotifyTable, environ: Mapping[str, str]) -> list[Route]:
    """The routes in their order; the last one is that of `[notify]` itself."""
    seconds = parse_duration(table.timeout, "timeout").total_seconds()

    def route(one: NotifyTable | RouteTable, prefix: str) -> Route:
        ways: list[Way] = []
        if one.webhook is not None:
            name = f"{prefix}webhook"
            ways.append(Address(name=name, template=one.webhook, seconds=seconds, environ=environ))
        if one.command:
            name, argv = f"{prefix}command", tuple(one.command)
            ways.append(Command(name=name, argv=argv, seconds=seconds, environ=environ))
        return Route(
            match=tuple(one.match) if isinstance(one, RouteTable) else None,
            ways=tuple(ways),
            on=frozenset(map(NoticeKind, table.on if one.on is None else one.on)),
        )

    numbered = enumerate(table.routes, 1)
    return [*(route(one, f"routes.{n}.") for n, one in numbered), route(table, "")]


def dead_man_of(table: NotifyTable, environ: Mapping[str, str]) -> Address | None:
    """The address that is only requested."""
    if table.dead_man is None:
        return None
    seconds = parse_duration(table.timeout, "timeout").total_seconds()
    return Address(name="dead_man", template=table.dead_man, seconds=seconds, environ=environ)


def _filled(template: str, environ: Mapping[str, str]) -> str:
    try:
        return str(expand({"value": template}, environ)["value"])
    except BadInput as problem:
        raise NotSent(problem.problem, final=True) from None


TRANSIENT = {408, 425, 429}
"""Refusals that a retry may overcome, besides the server's own errors."""


def ask(address: str, body: bytes | None, *, seconds: float) -> None:
    """GET an address, or POST JSON to it; blocks. `seconds` limits each wait on the way. Raises
    NotSent, without anything of the address in its message.
    """
    # Imported when something is sent: a worker without notices does not wait for it.
    from http.client import HTTPException  # noqa: PLC0415
    from urllib.error import HTTPError, URLError  # noqa: PLC0415
    from urllib.request import HTTPRedirectHandler, Request, build_opener  # noqa: PLC0415

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_args: Any, **_named: Any) -> None:
            """The reply is a refusal."""

    headers = {"User-Agent": f"blackboard/{__version__}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    request = Request(address, body, headers)  # noqa: S310 - the address was checked
    try:
        with build_opener(NoRedirect).open(request, timeout=seconds):
            return
    except HTTPError as answer:
        answer.close()
        problem = _refusal(answer.code)
    except URLError as error:
        problem = NotSent(_words(error.reason))
    except (OSError, HTTPException, ValueError) as error:
        problem = NotSent(_words(error))
    raise problem


def _refusal(code: int) -> NotSent:
    if 300 <= code < 400:
        return NotSent(f"it redirects ({code}): name the address it redirects to", final=True)
    final = 400 <= code < 500 and code not in TRANSIENT
    return NotSent(f"it answered {code}", final=final)


def _words(reason: object) -> str:
    """What is wrong, in words of the operating system: other texts might repeat the address."""
    if isinstance(reason, TimeoutError):
        return "it did not answer in time"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return type(reason).__name__
