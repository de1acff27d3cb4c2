"""The channels through which notices are sent: a webhook, a command; and the dead-man address.

`${NAME}` in an address is taken from the worker's environment each time something is sent, and no
message about a channel repeats its value.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from blackboard.errors import BadInput
from blackboard.handlers.context import expand, unescaped
from blackboard.notify.exchange import Exchange, NotSent
from blackboard.notify.notices import Payload
from blackboard.notify.settings import NoticeKind, NotifyTable, RouteTable, check_address, place
from blackboard.patterns import matches
from blackboard.runners.commands import child_environment, end_command, how_it_ended, start_command
from blackboard.schedule.times import parse_duration
from blackboard.spec import Labels
from blackboard.tasks import SerialExecutor


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
    involved. All users of the host can read its arguments, so none of them has the value of a
    variable: it finds those of the worker in its environment.
    """

    argv: tuple[str, ...]
    seconds: float
    environ: Mapping[str, str]
    name: str = "command"

    def check(self) -> None:
        """Nothing of it is taken from the environment."""

    def where(self) -> str:
        return self.argv[0]

    async def send(self, payload: Payload) -> None:
        about = {
            f"BLACKBOARD_{name}": str(payload.get(key) or "").replace("\0", "")
            for name, key in _VARIABLES.items()
        }
        try:
            process = await start_command(
                [unescaped(one) for one in self.argv],
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


_VARIABLE = re.compile(r"\$\{\w+\}")
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
    seconds = _seconds(table)

    def route(declared: NotifyTable | RouteTable, prefix: str) -> Route:
        channels: list[NoticeChannel] = []
        if declared.webhook is not None:
            name = f"{prefix}webhook"
            channels.append(
                Address(name=name, template=declared.webhook, seconds=seconds, environ=environ)
            )
        if declared.command:
            name, argv = f"{prefix}command", tuple(declared.command)
            channels.append(Command(name=name, argv=argv, seconds=seconds, environ=environ))
        return Route(
            match=tuple(declared.match) if isinstance(declared, RouteTable) else None,
            channels=tuple(channels),
            on=frozenset(map(NoticeKind, table.on if declared.on is None else declared.on)),
        )

    numbered = enumerate(table.routes, 1)
    return [*(route(declared, f"routes.{n}.") for n, declared in numbered), route(table, "")]


def dead_man_of(table: NotifyTable, environ: Mapping[str, str]) -> Address | None:
    """The dead-man address; None where none is set."""
    if table.dead_man is None:
        return None
    return Address(
        name="dead_man", template=table.dead_man, seconds=_seconds(table), environ=environ
    )


def _seconds(table: NotifyTable) -> float:
    """How long one request, or one call of the command, may take."""
    return parse_duration(table.timeout, "timeout").total_seconds()


def _filled(template: str, environ: Mapping[str, str]) -> str:
    try:
        return str(expand({"value": template}, environ)["value"])
    except BadInput as problem:
        raise NotSent(problem.problem, final=True) from None
