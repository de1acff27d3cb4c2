"""`[notify]` of `blackboard.toml`: what it may say, and what of it is refused.

The address of a webhook is a secret: it is enough to write to the channel behind it. No message
repeats more of an address than its scheme and its host.
"""

from datetime import timedelta
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from blackboard.errors import BadInput
from blackboard.handlers.context import variables
from blackboard.patterns import state_in
from blackboard.schedule.times import parse_duration

NEVER = "never"
LONGEST_TIMEOUT = timedelta(minutes=1)
"""For one notice: a worker that takes longer counts as dead."""
REMEDY = 'such as "https://hooks.example.org/path", or "${NAME}" for a variable that holds it'


class NoticeKind(StrEnum):
    """What a notice may say of an item."""

    FAILED = "failed"
    """Its run was no success, and its retries are used up."""
    RECOVERED = "recovered"
    OVERDUE = "overdue"
    """Its token has been ready for long, and a walk could not claim it."""
    WARNED = "warned"
    """Its runs were ok, and the last ones had warnings."""
    CLOCK = "clock"
    """Its times were those of a wrong clock, and the coordinator has put them right."""


class RouteTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Where the notices of some items go instead. The first route that matches an item counts."""

    match: list[str]
    """Ids, globs of ids, `tag:NAME`, `owner:NAME`, `type:NAME`: items that one of them means."""
    webhook: str | None = None
    """As in `[notify]`; a route without webhook and command sends nothing."""
    command: list[str] = []
    """As in `[notify]`."""
    on: tuple[str, ...] | None = None
    """The events that are sent. Default: those of `[notify]`."""


class NotifyTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Who is notified, and of what. `${NAME}` in an address is replaced from the environment of the
    worker.
    """

    webhook: str | None = None
    """An http or https address that is sent each notice as JSON by POST."""
    command: list[str] = []
    """A program and its arguments; it reads the JSON from its standard input."""
    dead_man: str | None = None
    """An http or https address that is requested (GET) after each walk that succeeded."""
    on: tuple[str, ...] = tuple(kind.value for kind in NoticeKind)
    """The events that are sent."""  # text: `check_notify` has a better message than msgspec
    overdue: str = "10m"
    """How long an item may be ready, but not started, before it is overdue."""
    warned_after: int = 3
    """How many good runs in a row must have warnings before `warned` is sent."""
    again: str = "24h"
    """What lasts is sent once more after this time; `never`: it is not."""
    at_most: int = 20
    """Requests a minute of one worker; the last one takes up to 100 notices, as one summary."""
    timeout: str = "10s"
    """For one request or one call of the command; at most 1m."""
    routes: list[RouteTable] = []
    """`[[notify.routes]]`: where the notices of some items go instead."""


def check_notify(table: NotifyTable) -> None:
    """Raises BadInput for what types alone cannot refuse."""
    tables: list[NotifyTable | RouteTable] = [table, *table.routes]
    if not (table.dead_man or any(each.webhook or each.command for each in tables)):
        raise BadInput(
            "webhook", "there is nowhere to send notices", "add a webhook, a command or a dead_man"
        )
    _check_address_given(table.dead_man, "dead_man")
    _check_ways(table)
    parse_duration(table.overdue, "overdue")
    if table.again != NEVER:
        parse_duration(table.again, "again")
    _check_number("at_most", table.at_most)
    _check_number("warned_after", table.warned_after)
    if parse_duration(table.timeout, "timeout") > LONGEST_TIMEOUT:
        raise BadInput("timeout", f"{table.timeout!r} is too long", "1m or less")


def check_route(route: RouteTable) -> None:
    """Raises BadInput for what types alone cannot refuse."""
    _check_ways(route)
    if not all(route.match) or not route.match:
        raise BadInput("match", "it matches nothing", 'such as ["type:report", "tag:billing"]')
    if of_state := [pattern for pattern in route.match if state_in(pattern)]:
        problem = f"{of_state[0]!r} is no pattern of items: their state changes"
        raise BadInput("match", problem, "ids, globs, tag:, owner: or type:")


def _check_ways(table: NotifyTable | RouteTable) -> None:
    _check_address_given(table.webhook, "webhook")
    if table.command and not table.command[0]:
        raise BadInput("command", "it is empty", 'such as ["notify-send", "blackboard"]')
    for name in sorted(variables(table.command)):
        problem = f"${{{name}}} would show in the list of processes"
        remedy = f"the program finds {name} in its environment; a shell reads it where you write"
        raise BadInput("command", problem, f"{remedy} $${{{name}}}")
    kinds = [kind.value for kind in NoticeKind]
    for event in table.on or ():
        if event not in kinds:
            raise BadInput("on", f"there is no {event!r}", f"known here: {', '.join(kinds)}")


def _check_address_given(address: str | None, name: str) -> None:
    if address is not None and not address.startswith("${"):
        check_address(address, name)


def _check_number(name: str, number: int) -> None:
    if number < 1:
        raise BadInput(name, f"{number} is too few", "1 or more")


def check_address(address: str, field: str) -> None:
    """Raises BadInput for what is not an http or https address, without repeating it."""
    if not address.isascii() or not address.isprintable() or " " in address:
        raise BadInput(field, "it has characters that no address has", "write them as %XX")
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadInput(field, "it is not an http or https address", REMEDY)
    if "@" in parts.netloc:
        raise BadInput(field, "a user and password in it would not be sent", REMEDY)


def place(address: str) -> str:
    """What messages show of a usable address: https://hooks.example.org."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
