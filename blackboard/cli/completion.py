"""What a shell offers for ids, types, jobs and zones. Errors are hidden: nothing is printed."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from zoneinfo import available_timezones

import click
from click.shell_completion import CompletionItem

from blackboard.cli.options import Chosen
from blackboard.cli.session import Session
from blackboard.display.queries import first_items
from blackboard.handlers.registry import shipped

MOST = 100
PATIENCE = 2.0
"""Seconds to wait for the store, at most."""


def complete(what: str, ctx: click.Context, start: str) -> list[CompletionItem]:
    """The completions of a text: `what` is "ids", "types", "jobs" or "zones"."""
    with suppress(Exception):
        match what:
            case "ids":
                found = asyncio.run(_ids_like(_chosen(ctx), start))
                return [CompletionItem(one) for one in found]
            case "types":
                return _like(_types(Session.start(_chosen(ctx))), start)
            case "jobs":
                files = CompletionItem(start, type="file")
                return [*_like(shipped(), start), files]
            case "zones":
                return _like(available_timezones(), start)
    return []


def _like(values: Iterable[str], start: str) -> list[CompletionItem]:
    found = sorted(one for one in set(values) if one.lower().startswith(start.lower()))
    return [CompletionItem(one) for one in found]


def _types(session: Session) -> set[str]:
    with suppress(Exception):
        session = session.with_types()
    return {*session.types, *(one.type for one in session.settings.items)}


def _chosen(ctx: click.Context) -> Chosen:
    chosen = Chosen()
    context: click.Context | None = ctx
    while context is not None:
        said = context.params.get
        chosen = chosen.under(
            Chosen(store=said("store"), board=said("board"), config=said("config"))
        )
        context = context.parent
    return chosen


async def _ids_like(chosen: Chosen, start: str) -> list[str]:
    """Ids with a beginning, read by range: a large board answers as fast as a small one."""
    async with asyncio.timeout(PATIENCE), Session.start(chosen).open() as board:
        found = await first_items(board, MOST, beginning=start)
    return [item.id for item in found if item.id.isprintable()]
