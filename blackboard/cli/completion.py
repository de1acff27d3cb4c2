"""What a shell offers for ids, labels, types, groups, elections, jobs, zones; nothing on errors."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from zoneinfo import available_timezones

import click
from click.shell_completion import CompletionItem

from blackboard.cli.options import Chosen
from blackboard.cli.session import Session
from blackboard.clock import SystemClock
from blackboard.display.item_queries import first_items
from blackboard.handlers.registry import shipped
from blackboard.patterns import STATE, is_label, named, names_label
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import group_names
from blackboard.protocol.leaders import open_elections
from blackboard.rules.status import STATES

MOST = 100
"""The most ids that are offered."""
MOST_READ = 2_000
"""The most items that are read for their labels."""
PATIENCE = 2.0
"""Seconds that completion takes, about."""
OF_JOBS = 1.5
"""Seconds of these for the import of jobs, whose types are in the cache mostly."""


def complete(subject: str, ctx: click.Context, start: str) -> list[CompletionItem]:
    """The completions of a text: `subject` is "ids", "types", "jobs", "zones", "groups",
    "elections", "owner" or "tag".
    """
    with suppress(Exception):
        match subject:
            case "types":
                session = _with_types(Session.start(_chosen(ctx)))
                return _like(session.types | {item.type for item in session.settings.items}, start)
            case "jobs":
                files = CompletionItem(start, type="file")
                return [*_like(shipped(), start), files]
            case "zones":
                return _like(available_timezones(), start)
            case "ids" if start.startswith(STATE):
                return _like(map(STATE.__add__, STATES), start)
            case _:
                until = SystemClock().monotonic() + PATIENCE
                session = Session.start(_chosen(ctx))
                if subject in {"owner", "tag"} or names_label(f"{start}*"):
                    session = _with_types(session)
                values = asyncio.run(_on_board(subject, session, start, until=until))
                return [CompletionItem(value) for value in values]
    return []


async def _on_board(subject: str, session: Session, start: str, *, until: float) -> list[str]:
    within = max(until - SystemClock().monotonic(), PATIENCE - OF_JOBS)
    async with asyncio.timeout(within), session.open() as board:
        match subject:
            case "groups":
                return [group for group in await group_names(board) if group.startswith(start)]
            case "elections":
                return await _ids_like(await open_elections(board), start)
            case "ids" if is_label(f"{start}*"):
                kind, colon, name = start.partition(":")
                return [f"{kind}{colon}{value}" for value in await _named(board, kind, name)]
            case "ids":
                return await _ids_like(board, start)
            case "tag":
                before, comma, name = start.rpartition(",")  # of several tags, the last
                return [f"{before}{comma}{value}" for value in await _named(board, subject, name)]
            case _:
                return await _named(board, subject, start)


async def _named(board: BoardTable, kind: str, start: str) -> list[str]:
    """The tags, owners or types with a beginning that the first items of the board have."""
    names, read = set[str](), 0
    async for item in board.items():
        names.update(named(kind, item.type, board.labels(item)))
        read += 1
        if read == MOST_READ:
            break
    return sorted(
        value for value in names if value and value.startswith(start) and value.isprintable()
    )


def _like(values: Iterable[str], start: str) -> list[CompletionItem]:
    alike = sorted(value for value in set(values) if value.lower().startswith(start.lower()))
    return [CompletionItem(value) for value in alike]


def _with_types(session: Session) -> Session:
    """With the types of its jobs, where these can be described in time."""
    with suppress(Exception):
        return session.with_types(within=OF_JOBS)
    return session


def _chosen(ctx: click.Context) -> Chosen:
    chosen = Chosen()
    context: click.Context | None = ctx
    while context is not None:
        value_of = context.params.get
        chosen = chosen.under(
            Chosen(store=value_of("store"), board=value_of("board"), config=value_of("config"))
        )
        context = context.parent
    return chosen


async def _ids_like(board: BoardTable, start: str) -> list[str]:
    """Ids with a beginning, read by range: a large board answers as fast as a small one."""
    items = await first_items(board, MOST, beginning=start)
    return [item.id for item in items if item.id.isprintable()]
